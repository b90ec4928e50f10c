"""Files of episodes that somebody edited or another program wrote: read as they are, or refused by file and line."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from actors import personas
from triagesim import load_backend, load_cases, score, simulate
from triagesim.config import Pool
from triagesim.dataset.export import export
from triagesim.duplicates import write_duplicates
from triagesim.environment_view import environment_view
from triagesim.errors import InputError
from triagesim.jsonl import read_table
from triagesim.language import write_language
from triagesim.measured import write_measures
from triagesim.pairing import ResolvedPairing
from triagesim.pool import select_pool
from triagesim.report.dialogues import Dialogues
from triagesim.resources import RESOURCES
from triagesim.review.kit import write_kit
from triagesim.score_rows import read_scores, write_scores
from triagesim.speech.corpus import read_corpus
from triagesim.stored import read_episodes, read_model
from triagesim.utils import compute_all_metrics

Episode = dict[str, Any]

ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    2.5,
    10**12,
    "",
    "x",
    "\x00",
    "2",
    [],
    [1],
    [None],
    [{}],
    {},
    {"a": 1},
    {"turn": 1},
]
#: Damaged episodes that each stage is shown.
TRIES = 120


@cache
def whole() -> list[Episode]:
    """An episode with a dialogue master and one without."""
    agenda = load_backend("agenda")
    cases = load_cases(RESOURCES / "cases/examples.jsonl")
    pools: Any = {"nurse_personas": personas("nurse", 2), "patient_personas": personas("patient", 2)}
    roles: Any = {"nurse_llm": agenda, "patient_llm": agenda}
    runs = (simulate(cases[:1], **roles, **pools, judge_llm=judge) for judge in (agenda, None))
    return [json.loads(json.dumps({**episode, "pairing": "p"})) for run in runs for episode in run]


STAGES: dict[str, Callable[[Path, Path], Any]] = {
    "scores": lambda file, out: write_scores(file, out / "s.csv"),
    "measures": lambda file, out: write_measures(file, None, None, out / "m.csv"),
    "language": lambda file, out: write_language(file, out / "l.csv", out / "k.csv"),
    "duplicates": lambda file, out: write_duplicates([file], out / "d.csv"),
    "pool": lambda file, out: select_pool([file], out / "p.jsonl", Pool(balanced="weights")),
    "report": lambda file, out: Dialogues.gather(
        [file], out, held=10**9, pooled=set(), spoken={}, case_flags={}
    ).index(),
    "dataset": lambda file, out: export(
        [file], out / "set", splits={"all": 1}, seed=0, salt=out / "salt", provenance="synthetic"
    ),
    "review": lambda file, out: write_kit([file], out / "kit", sample=2, repeats=0, seed=0),
}


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every part of a JSON value, itself left out."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*before, key)
        yield from places(part, (*before, key))


def damaged(draw: random.Random) -> Episode:
    """A whole episode with one part taken out or made another; a rare key is as likely as a frequent one."""
    episode = copy.deepcopy(draw.choice(whole()))
    by_kind: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for place in places(episode):
        by_kind.setdefault(tuple("#" if isinstance(key, int) else key for key in place), []).append(place)
    place = draw.choice(by_kind[draw.choice(list(by_kind))])
    holder: Any = episode
    for key in place[:-1]:
        holder = holder[key]
    if draw.random() < 0.3:
        del holder[place[-1]]
    else:
        holder[place[-1]] = draw.choice(ODD)
    return episode


@pytest.mark.parametrize("stage", STAGES)
def test_a_damaged_episode_is_taken_as_it_is_or_told_by_file_and_line(stage: str, tmp_path: Path) -> None:
    draw = random.Random(stage)
    told = 0
    for _ in range(TRIES):
        file = tmp_path / "episodes.jsonl"
        episodes = [whole()[0], {**damaged(draw), "extra": 1}]
        file.write_text("".join(json.dumps(one) + "\n" for one in episodes), encoding="utf-8")
        if said := refused(stage, file):
            told += 1
            assert f"{file}, line 2: " in said
    assert 0 < told < TRIES


def refused(stage: str, file: Path) -> str:
    """The error that a stage gives; nothing where it goes through."""
    try:
        STAGES[stage](file, file.parent)
    except InputError as error:
        return str(error)
    return ""


def test_no_episode_is_dropped_for_a_status_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "episodes.jsonl"
    for status in ("OK", "done", None, 5, ["ok"]):
        file.write_text(json.dumps({**whole()[0], "status": status}) + "\n", encoding="utf-8")
        for run in STAGES.values():
            with pytest.raises(InputError, match=r"line 1: no whole episode .*status"):
                run(file, tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"history": [{"turn": 0, "actor": "nurse"}]}, r"history\[0\]: no utterance"),
        ({"history": [{"turn": 0, "actor": "system", "event": "vital"}]}, r"history\[0\]: no name, value"),
        ({"history": [{"turn": 10**9, "actor": "system", "event": "x"}]}, r"history\[0\]\.turn: Expected `int` <="),
        ({"case": {"acuity": 3}}, "case: .*case_id"),
        ({"record": {"pain": {}}}, "record.pain: expected a text"),
    ],
)
def test_what_is_wrong_is_named_with_its_key_and_what_to_do(tmp_path: Path, change: Episode, said: str) -> None:
    file = tmp_path / "episodes.jsonl"
    file.write_text(json.dumps(whole()[0] | change) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=rf"line 1: no whole episode \({said}.*delete the file and run again"):
        list(read_episodes(file))


def test_a_key_that_every_episode_of_ours_has_is_missed(tmp_path: Path) -> None:
    file = tmp_path / "episodes.jsonl"
    for key in ("transcript", "history", "trace", "final_triage", "usage", "record"):
        file.write_text(json.dumps({k: v for k, v in whole()[0].items() if k != key}) + "\n", encoding="utf-8")
        with pytest.raises(InputError, match=f"no {key}"):
            list(read_episodes(file))


def test_a_value_that_python_writes_as_nan_is_missing(tmp_path: Path) -> None:
    """As in files of other programs, whose cases have NaN where a table had nothing."""
    episode = copy.deepcopy(whole()[0])
    episode["case"]["vitals"]["sbp"] = float("nan")
    file = tmp_path / "episodes.jsonl"
    file.write_text(json.dumps(episode) + "\n", encoding="utf-8")
    for run in STAGES.values():
        run(file, tmp_path)
    assert len(read_scores([tmp_path / "s.csv"])) == 1


def test_no_damage_to_an_episode_in_memory_makes_its_scores_or_metrics_raise() -> None:
    draw = random.Random(0)
    for _ in range(400):
        episode = damaged(draw)
        score(episode)
        compute_all_metrics(**environment_view(episode))


@pytest.mark.parametrize("damage", ["header", "cell", "short", "empty"])
def test_a_damaged_table_of_scores_is_told(tmp_path: Path, damage: str) -> None:
    file, table = tmp_path / "episodes.jsonl", tmp_path / "scores.csv"
    file.write_text("".join(json.dumps(one) + "\n" for one in whole()), encoding="utf-8")
    write_scores(file, table)
    header, *rows = table.read_text(encoding="utf-8").splitlines()
    lines = {
        "header": [header.replace("episode_id", "id"), *rows],
        "cell": [header, rows[0] + ",x", *rows[1:]],
        "short": [header, *(row.rpartition(",")[0] for row in rows)],
        "empty": [],
    }[damage]
    table.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(InputError, match=r"scores\.csv: other columns than this version writes; delete the file"):
        read_scores([table])


@pytest.mark.parametrize("content", ["", "{", "[]", "5", '{"name": "p"}', "\x00", '{"name": NaN, "limit": -Infinity}'])
def test_a_damaged_json_file_is_told_by_its_name(tmp_path: Path, content: str) -> None:
    file = tmp_path / "p.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"p\.json"):
        read_model(file, ResolvedPairing)


def recording() -> Episode:
    """A row of an audio manifest."""
    voice = {"id": "v", "gender": "female", "accent": "gb"}
    line = {"speaker": "nurse", "text": "Hello.", "spoken": "Hello.", "start": 0.1, "end": 0.9}
    return {
        "pairing": "p", "episode_id": whole()[0]["episode_id"], "file": "dialogues/p/e.flac", "sha256": "ab",
        "duration_s": 1.0, "rate": 24000, "lufs": None, "engine": {"name": "espeak", "version": "1", "licence": None},
        "voices": {"nurse": voice, "patient": voice}, "channels": {"nurse": 0, "patient": 1}, "lines": [line],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"file": "../../secret.flac"}, "file: leads out of the folder"),
        ({"file": "/etc/passwd"}, "file: "),
        ({"file": "a\x00b"}, "file: "),
        ({"channels": {"nurse": 0, "patient": 7}}, "channels.patient: "),
        ({"rate": 0}, "rate: "),
        ({"lines": [{"speaker": "nurse"}]}, r"lines\[0\]: "),
        ({"lines": [{**recording()["lines"][0], "start": -5}]}, r"lines\[0\].start: "),
        ({"voices": {}}, "voices: "),
        ({"pairing": None}, "pairing: "),
    ],
)
def test_a_damaged_row_of_an_audio_manifest_is_told(tmp_path: Path, change: Episode, said: str) -> None:
    manifest, pool = tmp_path / "manifest.jsonl", tmp_path / "pool.jsonl"
    pool.write_text(json.dumps(whole()[0]) + "\n", encoding="utf-8")
    manifest.write_text(json.dumps(recording()) + "\n", encoding="utf-8")
    assert [dialogue.id for dialogue in read_corpus(pool, [manifest])] == [f"p+{whole()[0]['episode_id']}"]
    manifest.write_text(json.dumps({**recording(), **change}) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"manifest\.jsonl, line 1: no whole row \(" + said):
        read_corpus(pool, [manifest])


def test_no_two_dialogues_have_one_name_in_the_manifests(tmp_path: Path) -> None:
    """With `__` between, pairing x and episode y__z were x__y and z."""
    names = [("x", "y__z-0"), ("x__y", "z-0"), ("x_", "y-0"), ("x", "y-0")]
    manifest, pool = tmp_path / "manifest.jsonl", tmp_path / "pool.jsonl"
    rows = [{"pairing": pairing, "episode_id": name} for pairing, name in names]
    pool.write_text("".join(json.dumps(whole()[0] | row) + "\n" for row in rows), encoding="utf-8")
    manifest.write_text("".join(json.dumps(recording() | row) + "\n" for row in rows), encoding="utf-8")
    assert len({dialogue.id.lower() for dialogue in read_corpus(pool, [manifest])}) == len(names)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a,b\n1\n", "line 2: not as many cells"),
        (b"a,b\n1,2\n1,2,3\n", "line 3: not as many cells"),
        (b"a,b\n1,caf\xe9\n", "no table"),
        (b'a,b\n1,"' + b"x" * (1 << 25), "no table"),
    ],
)
def test_a_damaged_table_is_told_by_its_name(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(InputError, match=r"t\.csv.*" + said):
        list(read_table(tmp_path / "t.csv"))
