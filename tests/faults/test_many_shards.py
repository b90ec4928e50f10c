"""Runs so large that what was meant for a few files breaks: commands that name all, memory that holds all."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from dialogues import episode, stored
from triagesim.jsonl import read_lines
from triagesim.report import dialogues
from triagesim.report.dialogues import Dialogues
from triagesim.resources import RESOURCES
from triagesim.speech.render import choose, read_pool, whole_episodes

ROOT = RESOURCES.parent


def commands(folder: Path, shards: int) -> dict[str, str]:
    """The shell commands of the rules that read the whole run, as Snakemake would run them, by their script."""
    config = {
        "data": {"source": str(RESOURCES / "cases/vignettes.jsonl"), "provenance": "synthetic"},
        "models": {"agenda": {"backend": "agenda"}},
        "pairings": [{"name": name, "nurse": "agenda", "patient": "agenda"} for name in ("one", "a.b")],
        "shards": shards,
        "audio": {"max_dialogues": 0},
        "dataset": {"of": "all"},
    }
    (folder / "config").mkdir(parents=True)
    (folder / "config/config.yaml").write_text(json.dumps(config), encoding="utf-8")
    words = ["-n", "-p", "results/review/form.html", "results/report.html", "results/dataset/README.md"]
    command = [sys.executable, "-m", "snakemake", "--directory", str(folder), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600)
    found = re.findall(r"^ *Shell command: +(python \S+/(\w+)\.py .*)$", done.stdout + done.stderr, re.MULTILINE)
    once = Counter(name for _, name in found)
    return {name: text for text, name in found if once[name] == 1}


def test_no_command_grows_with_the_shards_and_bash_makes_every_file_of_it_in_order(tmp_path: Path) -> None:
    few, many = commands(tmp_path / "few", 2), commands(tmp_path / "many", 40)
    whole = {"summarise", "find_duplicates", "describe", "select_episodes", "export", "report", "review_kit"}
    assert whole <= many.keys()
    assert {name: len(many[name]) - len(few[name]) < 100 for name in whole} == dict.fromkeys(whole, True)
    [listed] = re.findall(r"--usage (\S+)", many["summarise"])
    made = subprocess.run(["bash", "-c", f"printf '%s\\n' {listed}"], capture_output=True, text=True, check=True)
    wanted = [f"results/usage/{name}/{n}-of-40.json" for name in ("one", "a.b") for n in range(1, 41)]
    assert made.stdout.split() == wanted


def test_dialogues_that_the_page_cannot_hold_are_written_as_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialogues, "CHUNK", 2)
    path = stored(tmp_path / "in.jsonl", [episode([("patient", f"line {n}")], episode_id=f"c-{n}") for n in range(7)])
    nothing = {"pooled": set(), "spoken": {}, "case_flags": {}}
    held = Dialogues.gather([path], tmp_path, held=10**9, **nothing)
    assert (len(held.chunks), held.beside) == (4, 0)
    beside = Dialogues.gather([path], tmp_path / "data", held=len(held.chunks[0]) + 1, **nothing)
    assert (beside.chunks, beside.beside, beside.rows) == ([], 4, held.rows)
    for number, chunk in enumerate(held.chunks):
        text = (tmp_path / f"data/dialogues-{number}.js").read_text(encoding="utf-8")
        assert text == f'triagesimChunk({number}, "{chunk}");\n'


def test_of_a_pool_only_the_dialogues_that_are_spoken_are_held_whole(tmp_path: Path) -> None:
    said = {"c-0": "one two three", "b-0": "one", "a-0": "one two"}
    pool = stored(
        tmp_path / "pool.jsonl", [episode([("patient", text)], episode_id=name) for name, text in said.items()]
    )
    rows = read_pool(pool)
    assert all("history" not in row and "transcript" not in row for row in rows)
    chosen = choose(rows, None, 2)
    assert [row["episode_id"] for row in chosen] == ["b-0", "a-0"]
    whole = {row["episode_id"]: row for _, row in read_lines(pool)}
    assert whole_episodes(pool, chosen) == [whole["b-0"], whole["a-0"]]
    assert whole_episodes(pool, []) == []
