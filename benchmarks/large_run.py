"""Makes the folder of a large run of the baseline: its configuration, and cases of its own."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from triagesim.jsonl import read_lines, write_jsonl, write_text
from triagesim.resources import RESOURCES

VIGNETTES = RESOURCES / "cases" / "vignettes.jsonl"
#: Episodes of one shard.
SHARD = 500
#: How far each vital sign is moved from the vignette's: the standard deviation, in its own unit.
_MOVED = {"temperature": 0.5, "heartrate": 6, "resprate": 1, "o2sat": 0.7, "sbp": 9}


def lay_out(folder: Path, episodes: int) -> None:
    """Write cases and configuration of a run with one episode a case, one pairing and no speech."""
    write_jsonl(folder / "cases.jsonl", made_up(episodes))
    config = {
        "data": {"source": "cases.jsonl", "provenance": "synthetic"},
        "models": {"agenda": {"backend": "agenda"}},
        "pairings": [{"nurse": "agenda", "patient": "agenda"}],
        "shards": max(1, episodes // SHARD),
        "audio": {"max_dialogues": 0},
    }
    write_text(folder / "config" / "config.yaml", json.dumps(config))


def made_up(count: int) -> list[dict[str, Any]]:
    """So many cases, the same ones each time: the shipped vignettes under new ids, with other ages and vital signs."""
    vignettes = [row for _, row in read_lines(VIGNETTES)]
    draw = random.Random(0)
    return [_moved(vignettes[number % len(vignettes)], f"made-up-{number:06}", draw) for number in range(count)]


def _moved(vignette: dict[str, Any], case_id: str, draw: random.Random) -> dict[str, Any]:
    vitals: dict[str, Any] = {
        name: value
        if value is None
        else round(value + draw.gauss(0, _MOVED[name]), 1 if name == "temperature" else None)
        for name, value in vignette["vitals"].items()
    }
    if vitals.get("o2sat"):
        vitals["o2sat"] = min(vitals["o2sat"], 100)
    age = vignette.get("age")
    return {
        **vignette,
        "case_id": case_id,
        "vitals": vitals,
        "age": age and min(max(age + draw.randint(-6, 6), 18), 95),
        "prior_ed_visits": draw.randrange(5),
    }


def shards_of(episodes: int) -> int:
    """How many shards a run has."""
    return max(1, episodes // SHARD)


def fill(folder: Path, source: Path) -> None:
    """Give the shards that aren't simulated dialogues that are put together from those of another run.

    A case gets the dialogue of another case of its vignette, with some of the patient's and the nurse's lines from yet
    another one, so that no two need be alike. Answers of a model they have none.
    """
    known: dict[int, list[bytes]] = {}
    for path in sorted(source.glob("results/episodes/agenda/*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                known.setdefault(_vignette(json.loads(line)["case"]["case_id"]), []).append(line)
    usage = next(source.glob("results/usage/agenda/*.json")).read_text(encoding="utf-8")
    draw = random.Random(1)
    for path in sorted((folder / "results/cases").glob("*-of-*.jsonl")):
        out = folder / "results/episodes/agenda" / path.name
        if not out.exists():
            cases = [case["case_id"] for _, case in read_lines(path)]
            write_jsonl(out, (_mixed(case, known[_vignette(case)], draw) for case in cases))
            write_text(folder / "results/usage/agenda" / f"{path.stem}.json", usage)


def _vignette(case_id: str) -> int:
    """Which of the vignettes a made-up case is of."""
    return int(case_id.rpartition("-")[2]) % 48


def _mixed(case_id: str, known: list[bytes], draw: random.Random) -> dict[str, Any]:
    one: dict[str, Any] = json.loads(draw.choice(known))
    other = json.loads(draw.choice(known))
    spoken = {(line["actor"], line["turn"]): line["utterance"] for line in other["history"] if line.get("utterance")}
    for line in one["history"]:
        said = spoken.get((line.get("actor"), line.get("turn")))
        if said and line.get("utterance") and draw.random() < 0.5:
            line["utterance"] = said
    one["case"]["case_id"], one["episode_id"] = case_id, f"{case_id}-0"
    return one
