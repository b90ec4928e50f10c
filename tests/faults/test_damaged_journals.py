"""Journals that somebody or something damaged: what is whole replays, what is lost is asked for once, nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from actors import Puppet
from test_journal import NAME, play
from triagesim.journal import Journal, bucket, read_records
from triagesim.limits import Spent
from triagesim.requests import Completion
from triagesim.usage import Account

ANSWER = {"key": "k", "name": "n", "text": "t", "finish": "stop", "usage": [1, 1, 0, 0, 0.0], "model": "m"}
#: Lines that no journal of this program holds.
FOREIGN = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b"a sentence",
    b"\xff\xfe\x00",
    "{}".encode("utf-16"),
    b"[" * 200_000,
    b'{"key": ' + b"9" * 5000 + b"}",
    b'{"episode_id": "c0-0", "status": "ok"}',
    *(
        json.dumps(ANSWER | change).encode()
        for change in (
            {"key": ["k"]},
            {"key": None},
            {"name": 7},
            {"text": {"a": 1}},
            {"finish": None},
            {"model": []},
            {"usage": {}},
            {"usage": [1, 2]},
            {"usage": ["1", 1, 0, 0, 0]},
            {"usage": [float("nan"), 1, 0, 0, 0]},
            {"usage": [1, 1, 0, 0, float("inf")]},
            {"usage": [-5, 1, 0, 0, 0]},
        )
    ),
    *(
        json.dumps(record).encode()
        for record in (
            {"episode": ["c0-0"], "gave_up": 0, "why": "x"},
            {"episode": "c0-0", "gave_up": "soon", "why": "x"},
            {"episode": "c0-0", "done": {"a": 1}, "spec": "x"},
            {"episode": None, "done": "ok", "spec": "x"},
            {"call": ["c"], "failed": "server"},
            {"call": "c0-0/nurse/t0.s0.d0.r0.e0", "failed": ["server"]},
        )
    ),
]
LONG = 50 << 20


def cut(path: Path, chance: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: chance.randrange(len(data))])


def twice(path: Path, chance: random.Random) -> None:
    path.with_name(f"9999999999-{path.name}").write_bytes(path.read_bytes())


def lines_twice(path: Path, chance: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines for _ in range(chance.randint(1, 3))))


def with_foreign_lines(path: Path, chance: random.Random) -> None:
    lines = path.read_bytes().splitlines() + FOREIGN
    chance.shuffle(lines)
    path.write_bytes(b"\n".join(lines) + b"\n")


def with_long_lines(path: Path, chance: random.Random) -> None:
    first, rest = path.read_bytes().split(b"\n", 1)
    junk = b"x" * LONG
    padded = json.dumps({"note": "y" * LONG}).encode()
    path.write_bytes(junk + b"\n" + first + b"\n" + padded + b"\n" + rest)


def from_a_text_editor(path: Path, chance: random.Random) -> None:
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))


def emptied(path: Path, chance: random.Random) -> None:
    path.write_bytes(b"")


def middle_lost(path: Path, chance: random.Random) -> None:
    """Zeros in place of a block, as some file systems leave after a power cut."""
    data = bytearray(path.read_bytes())
    start = chance.randrange(len(data))
    data[start : start + 512] = bytes(len(data[start : start + 512]))
    path.write_bytes(data)


DAMAGES: list[Callable[[Path, random.Random], None]] = [
    cut, twice, lines_twice, with_foreign_lines, with_long_lines, from_a_text_editor, emptied, middle_lost
]  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[str, bytes]]:
    """The episodes of a run, and the files of its journal."""
    folder = tmp_path_factory.mktemp("whole")
    return play(Puppet(), folder), {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.jsonl")
    }


def names(folder: Path) -> set[str]:
    return {record["name"] for record in read_records(folder) if "key" in record}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_journal_costs_what_is_lost_and_gives_the_same_bytes(
    damage: Callable[[Path, random.Random], None], whole: tuple[list[str], dict[str, bytes]], tmp_path: Path
) -> None:
    episodes, files = whole
    for name, data in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    before, chance = names(tmp_path), random.Random(7)
    # One file is enough of 100 MB.
    for name in sorted(files)[: 1 if damage is with_long_lines else None]:
        damage(tmp_path / name, chance)
    lost = before - (left := names(tmp_path))
    assert left <= before | {"n"}
    again = Puppet()
    assert play(again, tmp_path) == episodes
    asked = [str(request.name) for request in again.requests]
    assert sorted(asked) == sorted(lost)
    assert Account.of(read_records(tmp_path)).calls >= len(before)
    assert Spent(tmp_path).so_far()[0] == 0


def test_no_foreign_line_is_a_record(tmp_path: Path) -> None:
    folder = tmp_path / bucket("c0")
    folder.mkdir()
    (folder / "1.jsonl").write_bytes(b"\n".join([*FOREIGN, json.dumps(ANSWER).encode()]) + b"\n")
    assert list(read_records(tmp_path)) == [ANSWER]


def test_an_answer_of_a_run_whose_clock_was_behind_is_the_later_one_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure of a call that the run after the first met counts: that run's episode ended with it."""
    now = 1_800_000_000
    for day, words in ((0, "first"), (-1, "second"), (+1, "third")):
        monkeypatch.setattr("triagesim.journal.time.time", lambda day=day: now + 86400 * day)
        journal = Journal(tmp_path, ["c0"], spec="s")
        assert journal.find("key") is None
        journal.keep("c0", "key", NAME, Completion(words, "error"))
        journal.close()
    monkeypatch.setattr("triagesim.journal.time.time", lambda: 1_000_000)
    last = Journal(tmp_path, ["c0"], spec="s")
    last.keep("c0", "key", NAME, Completion("last", "error"))
    last.finish("c0", "c0-0", "ok", "s", {})
    last.close()
    assert Journal(tmp_path, ["c0"], spec="s").find("key") == Completion("last", "error")
    found = sorted(path.name for path in (tmp_path / bucket("c0")).iterdir())
    assert [int(name.split("-")[0]) - now for name in found] == [0, 1, 86400, 86401]


def test_an_end_under_one_specification_is_not_forgotten_for_one_under_another(tmp_path: Path) -> None:
    for spec in ("one", "other"):
        journal = Journal(tmp_path, ["c0"], spec=spec)
        journal.keep("c0", f"key {spec}", NAME, Completion(spec, "error"))
        journal.finish("c0", "c0-0", "ok", spec, {})
        journal.close()
    for spec in ("one", "other"):
        journal = Journal(tmp_path, ["c0"], spec=spec)
        assert journal.find(f"key {spec}") == Completion(spec, "error")
        journal.finish("c0", "c0-0", "ok", spec, {})
        journal.close()
    assert len(list(read_records(tmp_path))) == 4
