"""A disk that is full while results are written.

/dev/full stands for it: every write there fails as on a full disk. And processes that may write no file of more than so
many bytes: their writes fail at any place that a test wants, by another error number of the same kind.
"""
# ruff: noqa: F811 (fixtures of another file)

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from spoken import TALK, episode
from test_command import ENVIRONMENT, ROOT, inputs  # noqa: F401
from triagesim.jsonl import write_atomically, write_jsonl

SCRIPTS = ROOT / "workflow" / "scripts"


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    def fill(_: IO[str]) -> None:
        with open("/dev/full", "w", encoding="utf-8") as full:
            full.write("x")

    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(tmp_path / "table.csv", fill)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "table.csv"))
    assert not list(tmp_path.iterdir())


def run(script: str | Path, *arguments: Any, room: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a script of the workflow with so much room for each of its files, in bytes."""

    def narrow() -> None:
        if room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    return subprocess.run(
        [sys.executable, SCRIPTS / script, *map(str, arguments)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=narrow,
        timeout=300,
    )


def sizes(folder: Path, pattern: str) -> list[int]:
    return sorted(path.stat().st_size for path in folder.glob(pattern))


def contents(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def refused(done: subprocess.CompletedProcess[str], name: Path) -> None:
    """It ended with one clear error that names what there was no room for."""
    assert done.returncode == 3, done.stdout + done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert errors[0].startswith(f"error: {name}"), errors
    assert "File too large" in errors[0]
    assert "Traceback" not in done.stderr
    assert ".part" not in done.stderr


def simulated(inputs: Path, folder: Path, room: int | None = None) -> subprocess.CompletedProcess[str]:
    arguments = [
        "--pairing",
        inputs / "agenda.json",
        "--cases",
        inputs / "cases.jsonl",
        "--out",
        folder / "out/1.jsonl",
    ]
    for role in ("nurse", "patient"):
        arguments += [f"--{role}-personas", inputs / f"{role}.jsonl"]
    return run("simulate.py", *arguments, "--journal", folder / "journal/agenda", room=room)


def test_no_room_for_an_answer_or_for_a_shard_ends_with_its_name_and_the_next_run_finishes(
    inputs: Path,
    tmp_path: Path,
) -> None:
    from triagesim.journal import read_records

    whole, narrow = tmp_path / "whole", tmp_path / "narrow"
    assert simulated(inputs, whole).returncode == 0
    journals = sizes(whole, "journal/agenda/[0-9][0-9]/*.jsonl")
    shard = whole / "out/1.jsonl"
    assert journals[-1] < shard.stat().st_size
    refused(simulated(inputs, narrow, room=journals[-1] // 2), narrow / "journal/agenda")
    assert not (narrow / "out").exists() or not list((narrow / "out").iterdir())
    refused(simulated(inputs, narrow, room=shard.stat().st_size - 1), narrow / "out/1.jsonl")
    assert not list((narrow / "out").iterdir())
    assert simulated(inputs, narrow).returncode == 0
    assert (narrow / "out/1.jsonl").read_bytes() == shard.read_bytes()
    names = [record["name"] for record in read_records(narrow / "journal") if "key" in record]
    assert len(names) == len(set(names))
    assert sorted(names) == sorted(r["name"] for r in read_records(whole / "journal") if "key" in r)


def test_no_room_for_the_growing_file_of_the_command_ends_with_its_name_and_the_next_run_finishes(
    tmp_path: Path,
) -> None:
    cases = ROOT / "resources/cases/vignettes.jsonl"

    def played(folder: Path, room: int | None = None) -> subprocess.CompletedProcess[str]:
        words = ["--model", "agenda", "--cases", cases, "--limit", 12, "--out", folder / "run.jsonl"]
        return run(ROOT / "workflow/triagesim/cli.py", *words, room=room)

    whole, narrow = tmp_path / "whole", tmp_path / "narrow"
    done = played(whole)
    assert done.returncode == 0, done.stderr
    lines = (whole / "run.jsonl").read_bytes().splitlines()
    room = sum(map(len, lines)) * 2 // 3
    assert sizes(whole, "run.jsonl.journal/[0-9][0-9]/*")[-1] < room
    refused(played(narrow, room=room), narrow / "run.jsonl")
    assert played(narrow).returncode == 0
    assert sorted((narrow / "run.jsonl").read_bytes().splitlines()) == sorted(lines)


@pytest.mark.slow
def test_no_room_for_speech_ends_with_its_name_and_the_next_run_finishes(tmp_path: Path) -> None:
    lines = [{"turn": turn // 2, "actor": who, "utterance": said} for turn, (who, said) in enumerate(TALK)]
    write_jsonl(tmp_path / "pool.jsonl", [episode(0, TALK, history=lines)])

    def rendered(folder: Path, room: int | None = None) -> subprocess.CompletedProcess[str]:
        arguments = ["--pool", tmp_path / "pool.jsonl", "--store", folder / "store", "--out", folder / "audio/m.jsonl"]
        return run("render_audio.py", *arguments, room=room)

    whole, narrow = tmp_path / "whole", tmp_path / "narrow"
    done = rendered(whole)
    assert done.returncode == 0, done.stderr
    spoken = sizes(whole, "store/*/*.flac")
    refused(rendered(narrow, room=spoken[-1] - 1), narrow / "store")
    refused(rendered(narrow, room=spoken[-1]), narrow / "audio")
    assert not (narrow / "audio/m.jsonl").exists()
    assert contents(narrow).items() <= contents(whole).items()
    assert rendered(narrow).returncode == 0
    assert contents(narrow) == contents(whole)


def test_no_room_for_a_table_of_the_dataset_ends_with_its_name_and_the_next_run_finishes(tmp_path: Path) -> None:
    from test_dataset import baseline

    write_jsonl(tmp_path / "pool.jsonl", baseline())

    def exported(folder: Path, room: int | None = None) -> subprocess.CompletedProcess[str]:
        splits = ["--splits", json.dumps({"train": 1.0}), "--salt", folder / "_salt"]
        return run("export.py", tmp_path / "pool.jsonl", "--out-dir", folder / "dataset", *splits, room=room)

    whole, narrow = tmp_path / "whole", tmp_path / "narrow"
    done = exported(whole)
    assert done.returncode == 0, done.stderr
    for kind in ("parquet/*.parquet", "*.csv", "jsonl/*.jsonl"):
        refused(exported(narrow, room=sizes(whole / "dataset", kind)[0] - 1), narrow / "dataset")
        assert contents(narrow) == {}
    assert exported(narrow).returncode == 0
    assert contents(narrow) == contents(whole)


def test_a_full_disk_leaves_no_room_for_the_stop_mark_either_and_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from triagesim.errors import StopRun
    from triagesim.limits import Limits

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("triagesim.temporaries.os.open", full)
    with pytest.raises(StopRun, match="an answer can't be kept"), Limits(tmp_path).marking("shard"):
        raise StopRun("journal: an answer can't be kept")
