"""The journal: nothing that was answered is lost or asked twice, wherever a process dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors import Puppet, a_case, personas
from triagesim import simulate
from triagesim.errors import StopRun
from triagesim.journal import Journal, bucket, read_records, shard_lock
from triagesim.requests import CallName, Completion, Request, Usage

CASES = [a_case(f"c{number}") for number in range(6)]
NAME = CallName("c0-0", "nurse", 0)


def play(llm: Any, journal: Path) -> list[str]:
    episodes = simulate(
        CASES,
        nurse_llm=llm,
        patient_llm=llm,
        nurse_personas=personas("nurse"),
        patient_personas=personas("patient"),
        max_turns=2,
        journal=journal,
    )
    return sorted(json.dumps(episode) for episode in episodes)


class Crash(BaseException):
    """Stands for the death of the process."""


def crash_after(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Let the process die once `size` bytes were written: what was written before stays, the rest never comes."""
    real, left = os.write, [size]

    def write(descriptor: int, data: bytes) -> int:
        part = data[: left[0]]
        left[0] -= len(part)
        written = real(descriptor, part) if part else 0
        if len(part) < len(data):
            raise Crash
        return written

    monkeypatch.setattr("triagesim.journal.os.write", write)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str], int]:
    """An uninterrupted run: its episodes, the calls it made, the size of its journal."""
    folder = tmp_path_factory.mktemp("whole")
    llm = Puppet()
    episodes = play(llm, folder)
    size = sum(path.stat().st_size for path in folder.rglob("*.jsonl"))
    return episodes, sorted(str(request.name) for request in llm.requests), size


@pytest.mark.parametrize("point", range(100))
def test_a_crash_at_any_byte_loses_no_answer_that_was_kept(
    point: int, whole: tuple[list[str], list[str], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    episodes, calls, size = whole
    before, after = Puppet(), Puppet()
    with monkeypatch.context() as patch:
        crash_after(patch, size * point // 100)
        with pytest.raises(Crash):
            play(before, tmp_path)
    kept = {record["name"] for record in read_records(tmp_path) if "name" in record}
    assert play(after, tmp_path) == episodes
    asked_again = [str(request.name) for request in after.requests]
    assert not kept & set(asked_again)
    assert sorted(kept | set(asked_again)) == calls
    assert len(asked_again) == len(set(asked_again))


def test_a_torn_line_is_passed_over_and_the_first_whole_line_of_a_key_wins(tmp_path: Path) -> None:
    folder = tmp_path / bucket("c0")
    folder.mkdir()
    line = {"key": "k", "name": "n", "text": "one", "finish": "stop", "usage": [1, 2, 0, 0, 0.0], "model": "m"}
    torn = json.dumps({**line, "key": "torn"})[:-9]
    (folder / "1.jsonl").write_text(json.dumps(line) + "\n" + torn, encoding="utf-8")
    (folder / "2.jsonl").write_text(json.dumps({**line, "text": "two"}) + "\n", encoding="utf-8")
    journal = Journal(tmp_path, ["c0"])
    assert journal.find("k") == Completion("one", "stop", Usage(1, 2), "m")
    assert journal.find("torn") is None


@given(text=st.text(), cost=st.floats(0, 10), prompt=st.integers(0, 10**6))
def test_an_answer_comes_back_as_it_was_kept(
    tmp_path_factory: pytest.TempPathFactory, text: str, cost: float, prompt: int
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    answer = Completion(text.encode("utf-8", "replace").decode(), "stop", Usage(prompt, 1, cost=cost), "m")
    writer = Journal(folder)
    writer.keep("c0", "key", NAME, answer)
    assert Journal(folder, ["c0"]).find("key") == answer
    writer.close()


def test_a_given_up_episode_is_asked_anew_by_the_next_run(tmp_path: Path) -> None:
    class Broken(Puppet):
        def answer(self, request: Request) -> str:
            return "{}" if request.name.episode == "c1-0" else super().answer(request)

    broken, mended, third = Broken(), Puppet(), Puppet()
    states = [json.loads(text)["status"] for text in play(broken, tmp_path)]
    assert sorted(states) == ["error", *["ok"] * 5]
    assert {json.loads(text)["status"] for text in play(mended, tmp_path)} == {"ok"}
    assert {request.name.episode for request in mended.requests} == {"c1-0"}
    assert {request.name.epoch for request in mended.requests} == {1}
    play(third, tmp_path)
    assert third.requests == []


def test_every_process_writes_a_new_file(tmp_path: Path) -> None:
    for _ in range(3):
        journal = Journal(tmp_path, ["c0"])
        journal.keep("c0", f"key{_}", NAME, Completion("x"))
        journal.close()
    assert len(list((tmp_path / bucket("c0")).iterdir())) == 3


def test_a_full_disk_stops_the_run_and_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("triagesim.journal.os.write", full)
    with pytest.raises(StopRun, match="No space left on device"):
        play(Puppet(), tmp_path / "journal")


def test_a_shard_has_one_live_driver(tmp_path: Path) -> None:
    lock = tmp_path / "locks" / "1-of-4.lock"
    holder = (
        "import sys; from pathlib import Path; from triagesim.journal import shard_lock\n"
        "with shard_lock(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "workflow")}
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        with pytest.raises(StopRun, match=f"process {process.pid} on"), shard_lock(lock, patience=0):
            pass
        process.kill()
    with shard_lock(lock, patience=0):
        pass


def test_data_that_may_not_leave_never_reaches_a_backend_that_is_not_declared_local(tmp_path: Path) -> None:
    class Hosted(Puppet):
        local = False

    for provenance in ("mimic_iv_ed", "deidentified", "identifiable", None):
        llm = Hosted()
        episodes = simulate(
            [a_case(provenance=provenance)],
            nurse_llm=llm,
            patient_llm=llm,
            nurse_personas=personas("nurse"),
            patient_personas=personas("patient"),
        )
        with pytest.raises(StopRun, match="isn't"):
            list(episodes)
        assert llm.requests == []
    for provenance in ("synthetic", "mimic_iv_ed_demo"):
        llm = Hosted()
        options: dict[str, Any] = {"nurse_personas": personas("nurse"), "patient_personas": personas("patient")}
        assert list(simulate([a_case(provenance=provenance)], nurse_llm=llm, patient_llm=llm, **options))
        assert llm.requests
