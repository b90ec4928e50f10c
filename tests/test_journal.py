"""The journal: nothing that was answered is lost or asked twice, wherever a process dies."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors import Puppet, a_case, seats
from triagesim import Features, simulate
from triagesim.errors import BackendError, StopRun
from triagesim.journal import Journal, read_records, shard_lock
from triagesim.requests import CallName, Completion, Request, Usage
from triagesim.shards import bucket

CASES = [a_case(f"c{number}") for number in range(6)]
NAME = CallName("c0-0", "nurse", 0)


def play(llm: Any, journal: Path) -> list[str]:
    episodes = simulate(
        CASES,
        **seats(llm),
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


def mark(request: Request) -> str:
    """A request's fingerprint."""
    return sha256(json.dumps([str(request.name), request.messages]).encode()).hexdigest()[:16]


class Moody(Puppet):
    """Every role at once, after as many turns of the loop as the request's seed says; now and then an answer is of no
    use, and a call of the dialogue master fails for good. An answer's `model` and a failure's text hold the request's
    fingerprint, so the journal says what was asked.
    """

    reads: Literal["messages", "view"] = "messages"
    local = True
    label = None
    spare = True
    identity = {"backend": "moody"}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__("moody", rejects=0.2)
        self.asked_for: Counter[str] = Counter()
        self.cancelled = 0

    async def start(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    async def complete(self, request: Request) -> Any:  # type: ignore[override]
        self.requests.append(request)
        chance = random.Random(f"mood {request.seed}")
        try:
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if request.role in ("judge", "script") and chance.random() < 0.03:
            raise BackendError(f"out of order <{mark(request)}>", kind="server")
        self.asked_for[mark(request)] += 1
        text = "{}" if chance.random() < 0.04 else self.answer(request)
        return Completion(text, usage=Usage(9, 4, cost=0.25), model=mark(request))


def play_judged(llm: Moody, journal: Path, speculation: Any) -> list[str]:
    episodes = simulate(
        CASES[:4],
        **seats(llm, llm),
        max_turns=3,
        features=Features(appearance=True),
        speculation=speculation,
        journal=journal,
    )
    return sorted(json.dumps(episode) for episode in episodes)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], set[str], int]:
    """An uninterrupted run with a dialogue master: its episodes, what it asked for, the size of its journal."""
    folder, llm = tmp_path_factory.mktemp("judged"), Moody()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("triagesim.calls.PAUSE", 0)
        episodes = play_judged(llm, folder, "off")
    said = "".join(episodes)
    assert {json.loads(text)["status"] for text in episodes} == {"ok"}
    assert all(part in said for part in ("out of order <", '"edited": true', '"appearance": {', '"passed": null'))
    assert any(record.get("failed") == "invalid" for record in read_records(folder))
    return episodes, set(llm.asked_for), sum(path.stat().st_size for path in folder.rglob("*.jsonl"))


@pytest.mark.parametrize("speculation", ["off", "reading", "full"])
def test_a_finished_run_is_played_again_without_a_call_also_where_the_master_failed(
    speculation: str, judged: tuple[list[str], set[str], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triagesim.calls.PAUSE", 0)
    first, second = Moody(), Moody()
    assert play_judged(first, tmp_path, speculation) == judged[0]
    assert len(first.requests) > sum(first.asked_for.values())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")}
    assert play_judged(second, tmp_path, "off") == judged[0]
    assert second.requests == []
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")} == before


@pytest.mark.parametrize("point", range(200))
def test_a_crash_at_any_byte_of_a_run_with_a_master_loses_no_answer_that_was_kept(
    point: int, judged: tuple[list[str], set[str], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    episodes, needed, size = judged
    speculation = ("off", "reading", "full")[point % 3]
    monkeypatch.setattr("triagesim.calls.PAUSE", 0)
    before, after = Moody(), Moody()
    with monkeypatch.context() as patch:
        crash_after(patch, size * point // 200)
        with pytest.raises(Crash):
            play_judged(before, tmp_path, speculation)
    kept = {record["model"] for record in read_records(tmp_path) if record.get("finish", "error") != "error"}
    assert play_judged(after, tmp_path, speculation) == episodes
    assert not kept & after.asked_for.keys()
    assert needed <= kept | after.asked_for.keys()
    if speculation == "off":
        assert needed == kept | after.asked_for.keys()
        assert set(after.asked_for.values()) <= {1}


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
            **seats(llm),
        )
        with pytest.raises(StopRun, match="isn't"):
            list(episodes)
        assert llm.requests == []
    for provenance in ("synthetic", "mimic_iv_ed_demo"):
        llm = Hosted()
        assert list(simulate([a_case(provenance=provenance)], **seats(llm)))
        assert llm.requests


def test_what_a_full_disk_tore_off_takes_no_later_answer_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, ["c0"])
    journal.keep("c0", "a", NAME, Completion("one"))
    real, left = os.write, [20]

    def write(descriptor: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(28, "No space left on device")
        size, left[0] = left[0], 0
        return real(descriptor, data[:size])

    with monkeypatch.context() as patch:
        patch.setattr("triagesim.journal.os.write", write)
        with pytest.raises(StopRun, match="No space left"):
            journal.keep("c0", "b", NAME, Completion("two"))
    journal.keep("c0", "c", NAME, Completion("three"))
    journal.close()
    read = Journal(tmp_path, ["c0"])
    assert [bool(read.find(key)) for key in "abc"] == [True, False, True]


def test_a_judge_that_was_down_leaves_no_mark_on_an_episode_that_had_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triagesim.calls.PAUSE", 0)

    class Down(Puppet):
        def complete(self, requests: list[Request]) -> list[str | Exception]:
            return [BackendError("no route", kind="connection") for _ in requests]

    def judged(judge: Any) -> list[dict[str, Any]]:
        llm, options = Puppet(), {"max_turns": 2, "concurrency": 1, "journal": tmp_path}
        return list(simulate(CASES, **seats(llm, judge), **options))

    with pytest.raises(StopRun, match="answered none of the last 5 calls"):
        judged(Down("judge"))
    for episode in judged(Puppet("judge")):
        assert "in_situ_error" not in episode
        assert all(line["verification"]["passed"] for line in episode["history"] if line["actor"] != "system")
