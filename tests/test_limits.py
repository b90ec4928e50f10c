"""What ends a run, and what an ended run leaves: kills, stop marks, budgets, time, failures; nothing is paid twice."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from actors import Puppet, a_case, personas
from fault_server import Asked, Fault, FaultServer
from test_journal import Moody, play_judged
from triagesim import simulate
from triagesim.backends.hosted import OpenAICompatible
from triagesim.calls import Seat
from triagesim.config import check_config
from triagesim.drive import Plan, TooManyErrors, write_shards
from triagesim.engine import as_backend
from triagesim.episode import Setup
from triagesim.journal import read_records
from triagesim.jsonl import dumps, write_json
from triagesim.limits import Spent, stop_mark
from triagesim.pairing import as_json, resolve
from triagesim.personas import Pool
from triagesim.requests import Request, Usage
from triagesim.usage import Account

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "workflow" / "scripts" / "simulate.py"
FATAL = ROOT / "tests" / "fatal.py"
#: The key of the played provider; no file and no text may ever hold it.
KEY = "marker-5f0e8c1d2b7a"
#: Runs a script with pauses between two tries that a test can wait for.
QUICK = (
    "import runpy, sys, triagesim.calls; triagesim.calls.PAUSE = 0.001; sys.argv = sys.argv[1:]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


@dataclass
class Ended:
    """A driver that ended."""

    code: int
    said: str
    seconds: float

    def counts(self) -> dict[str, int]:
        """The failed tries in the last progress line."""
        last = [line for line in self.said.splitlines() if " episodes" in line][-1]
        return {kind: int(count) for count, kind in re.findall(r"(\d+) × ([a-z ]+)", last)}


@dataclass
class Shard:
    """A shard of a pairing whose every role is one played OpenRouter model, and the driver of the rule for it.

    Attributes:
        root: the folder of the run; its journals are in `journal/`.
        runtime: as the workflow hands it to the driver, over what the tests need.
    """

    root: Path
    pairing: str = "played"
    cases: int = 3
    complaint: str = "Syncope"
    judge: bool = False
    simulation: dict[str, Any] = field(default_factory=dict)
    runtime: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pairing = {"name": self.pairing, "nurse": "m", "patient": "m", **({"judge": "m"} if self.judge else {})}
        config = check_config(
            {
                "data": {"source": "x", "provenance": "synthetic"},
                "models": {"m": {"backend": "openrouter", "model": "vendor/m", "sampling": {"max_tokens": 900}}},
                "pairings": [pairing],
                "simulation": {"max_turns": 2, "min_questions": 1, **self.simulation},
            }
        )
        self.folder.mkdir(parents=True)
        write_json(self.folder / "pairing.json", as_json(resolve(config, config.expanded()[0])))
        cases = [a_case(f"{self.pairing}-{n}", provenance="synthetic") for n in range(self.cases)]
        cases[0] = cases[0].model_copy(update={"chief_complaint": self.complaint})
        (self.folder / "cases.jsonl").write_text("".join(case.model_dump_json() + "\n" for case in cases), "utf-8")
        for role in ("nurse", "patient"):
            rows = "".join(persona.model_dump_json() + "\n" for persona in personas(role))
            (self.folder / f"{role}.jsonl").write_text(rows, "utf-8")

    @property
    def folder(self) -> Path:
        return self.root / "inputs" / self.pairing

    @property
    def journal(self) -> Path:
        return self.root / "journal" / self.pairing

    @property
    def out(self) -> Path:
        return self.root / "episodes" / self.pairing / "1-of-1.jsonl"

    @property
    def usage(self) -> Any:
        return json.loads((self.root / "usage" / self.pairing / "1-of-1.json").read_text("utf-8"))

    @property
    def mark(self) -> str | None:
        return stop_mark(self.root / "journal")

    def start(self, server: FaultServer, *launcher: object, parent: bool = False, **runtime: Any) -> Driver:
        """Start the driver; `launcher`: what Python runs in place of the script itself."""
        models = {"m": {"base_url": server.url, "max_workers": 4, **runtime.pop("model", {})}}
        told = {"concurrency": 4, "speculation": "off", **self.runtime, **runtime, "models": models}
        arguments = ["--pairing", self.folder / "pairing.json", "--cases", self.folder / "cases.jsonl"]
        for role in ("nurse", "patient"):
            arguments += [f"--{role}-personas", self.folder / f"{role}.jsonl"]
        arguments += ["--journal", self.journal, "--out", self.out]
        arguments += ["--usage", self.root / "usage" / self.pairing / "1-of-1.json"]
        environment = {"TRIAGESIM_RUNTIME": json.dumps(told)}
        if parent:
            environment["TRIAGESIM_PARENT"] = str(os.getpid())
        return Driver([*launcher, SCRIPT, *arguments], self.root, environment)

    def run(self, server: FaultServer, *launcher: object, **options: Any) -> Ended:
        """Run the driver to its end."""
        return self.start(server, *launcher, **options).end()

    def kept(self) -> set[str]:
        """The contents of the answers in the journal (of a server that signs its answers)."""
        return {record["model"] for record in read_records(self.journal) if "key" in record}


class Driver:
    """A process of its own group, whose output and files are searched for the key at its end."""

    def __init__(self, arguments: list[Any], folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._began = time.monotonic()
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TRIAGESIM_")}
        self.process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**clean, "PYTHONPATH": str(ROOT / "workflow"), "OPENROUTER_API_KEY": KEY, **environment},
        )

    def signal(self, number: int) -> Ended:
        """Send a signal and wait for the end; `seconds` count from it."""
        self._began = time.monotonic()
        self.process.send_signal(number)
        return self.end()

    def end(self) -> Ended:
        """Wait for the end; no process of the group is left, and no file below the folder holds the key."""
        try:
            said, _ = self.process.communicate(timeout=90)
        finally:
            self.process.kill()
        took = time.monotonic() - self._began
        with pytest.raises(ProcessLookupError):
            os.killpg(self.process.pid, 0)
        assert KEY not in said
        for path in self._folder.rglob("*"):
            assert path.is_dir() or KEY.encode() not in path.read_bytes(), path
        return Ended(self.process.returncode, said, took)


def triagesim(folder: Path, *arguments: object) -> Driver:
    return Driver(["-m", "triagesim.cli", *arguments], folder, {})


def cost(calls: list[Asked]) -> float:
    return sum(call.usage["cost"] for call in calls if call.usage)


def tokens(calls: list[Asked]) -> int:
    return sum(call.usage["total_tokens"] for call in calls if call.usage)


# Kills of the driver.


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[bytes, set[str]]]:
    """The shard of a driver that nothing disturbed, and what it asked for."""
    shard = Shard(tmp_path_factory.mktemp("undisturbed"), cases=6, judge=True)
    with FaultServer(signed=True) as server:
        done = shard.run(server)
        assert done.code == 0, done.said
        assert len(server.counts) >= 40, "long enough to be killed five times"
        yield shard.out.read_bytes(), set(server.counts)


KILLS = (("before", "SIGKILL"), ("during", "SIGKILL"), ("after", "SIGTERM"), ("after", "SIGKILL"), ("kept", "SIGKILL"))


@pytest.mark.slow
@pytest.mark.parametrize("speculation", ["off", "reading", "full", "auto"])
def test_a_driver_that_is_killed_five_times_ends_with_the_same_bytes_and_asks_no_kept_answer_again(
    speculation: str, undisturbed: tuple[bytes, set[str]], tmp_path: Path
) -> None:
    whole, needed = undisturbed
    shard = Shard(tmp_path, cases=6, judge=True)
    turn = ("off", "reading", "full", "auto").index(speculation)
    in_flight = 0
    with FaultServer(signed=True) as server:
        for kill in range(5):
            moment, name = KILLS[(kill + turn) % len(KILLS)]
            name = "SIGINT" if (name, turn % 2) == ("SIGTERM", 1) else name
            number = signal.Signals[name]
            kept, asked = shard.kept(), len(server.asked)
            fatal_call = turn % 2 + len(needed) // 8
            if moment == "during":
                server.faults = [Fault("hang", frozenset({asked + fatal_call}))]
                driver = shard.start(server, speculation=speculation)
                server.wait_for(lambda: any(call.fault for call in server.asked[asked:]))  # noqa: B023
                ended = driver.signal(number)
                server.faults = []
            else:
                fatal = [FATAL, "openrouter", tmp_path / "counts", fatal_call, moment, name]
                ended = shard.run(server, *fatal, speculation=speculation)
            assert ended.code == (-9 if number == signal.SIGKILL else 128 + number), ended.said
            assert ended.seconds < 30
            assert not shard.out.exists()
            assert not kept & {call.content for call in server.asked[asked:]}
            in_flight += len(server.asked) - asked - len(shard.kept() - kept)
        kept, asked = shard.kept(), len(server.asked)
        done = shard.run(server, speculation=speculation)
        assert done.code == 0, done.said
        assert not kept & {call.content for call in server.asked[asked:]}
        if speculation == "off":
            assert len(server.asked) == len(needed) + in_flight
            assert set(server.counts) == needed
    assert shard.out.read_bytes() == whole
    assert sorted(path.name for path in shard.out.parent.iterdir()) == ["1-of-1.jsonl"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_driver_whose_calls_hang_within_ten_seconds(number: signal.Signals, tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    with FaultServer("hang", signed=True) as server:
        driver = shard.start(server)
        server.wait_for(lambda: len(server.asked) == 3)
        ended = driver.signal(number)
        assert ended.code == 128 + number
        assert ended.seconds < 10
        assert "every answer so far is kept, the same command goes on from here" in ended.said
        assert "Traceback" not in ended.said
        server.wait_for(lambda: all(call.abandoned for call in server.asked))
    assert not shard.out.exists()


# The stop mark.


def test_without_credit_a_driver_stops_and_its_sibling_does_within_a_call_or_so(tmp_path: Path) -> None:
    first, sibling = Shard(tmp_path, "first"), Shard(tmp_path, "sibling", cases=6)
    with FaultServer("no_credit@5") as poor, FaultServer(latency=0.2, held=True) as rich:
        running = sibling.start(rich, parent=True, concurrency=1)
        rich.wait_for(lambda: len(rich.asked) == 1)
        stopped = first.run(poor, concurrency=1, parent=True)
        rich.release()
        ended = running.end()
        assert (stopped.code, ended.code) == (3, 3)
        assert "402" in stopped.said
        assert "Add credit" in stopped.said
        assert len(poor.asked) == 5
        # The mark is looked at once a second at most.
        assert len(rich.asked) <= 7
    assert first.mark is not None
    assert first.mark.startswith("simulate first 1-of-1: ")
    assert f"error: another job stopped the run: {first.mark}" in ended.said
    assert not sibling.out.exists()


def test_a_driver_of_a_running_workflow_obeys_an_old_mark_and_one_by_hand_takes_it_away(tmp_path: Path) -> None:
    shard = Shard(tmp_path, cases=1)
    with FaultServer("bad_key@1") as server:
        refused = shard.run(server)
        assert (refused.code, len(server.asked)) == (3, 1)
        assert server.asked[0].authorization == f"Bearer {KEY}"
        assert "[key]" in refused.said
        assert shard.mark is not None
        assert "no user for Bearer [key]" in shard.mark
        assert "Set OPENROUTER_API_KEY" in shard.mark
        obeyed = shard.run(server, parent=True)
        assert (obeyed.code, len(server.asked)) == (3, 1)
        assert f"another job stopped the run: {shard.mark}" in obeyed.said
        assert f"stopped: {shard.mark}" in triagesim(tmp_path, "status", tmp_path / "journal").end().said
        by_hand = shard.run(server)
        assert by_hand.code == 0, by_hand.said
    assert shard.mark is None


# Budgets.


@pytest.mark.parametrize("unit", ["usd", "tokens"])
def test_a_budget_counts_what_every_driver_spent_and_a_raised_one_goes_on(unit: str, tmp_path: Path) -> None:
    spent_on = cost if unit == "usd" else tokens
    earlier, shard = Shard(tmp_path, "earlier", cases=1), Shard(tmp_path, "later", cases=4)
    with FaultServer() as server:
        assert earlier.run(server).code == 0
        before = spent_on(server.sent)
    with FaultServer(signed=True) as server:
        budget = before * 1.5 if unit == "usd" else int(before * 1.5)
        stopped = shard.run(server, budget={unit: budget}, concurrency=2)
        assert stopped.code == 3
        assert f"error: budget.{unit} is spent: " in stopped.said
        assert "raise it and the same command goes on from here" in stopped.said
        most = max(spent_on([call]) for call in server.sent)
        assert budget <= before + spent_on(server.sent) < budget + 2 * most
        kept, asked = shard.kept(), len(server.asked)
        assert asked - len(kept) <= 1
        still = shard.run(server, budget={unit: budget})
        assert (still.code, len(server.asked)) == (3, asked)
        raised = shard.run(server, budget={unit: 1000 * budget})
        assert raised.code == 0, raised.said
        assert not kept & {call.content for call in server.asked[asked:]}
        whole, asked = shard.out.read_bytes(), len(server.asked)
        shard.out.unlink()
        assert shard.run(server, budget={unit: 1}).code == 0, "what is in the journal costs nothing"
        assert (shard.out.read_bytes(), len(server.asked)) == (whole, asked)


def test_a_command_s_budget_counts_its_earlier_runs(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    with FaultServer(signed=True) as server:
        arguments = ["--model", "openrouter:vendor/m", "--cases", shard.folder / "cases.jsonl", "--out", "run.jsonl"]
        arguments += ["--max-turns", 2, "--model-args", json.dumps({"base_url": server.url}), "--concurrency", 1]
        few, more = [*arguments, "--budget-tokens", 3000], [*arguments, "--budget-tokens", 6000]
        assert triagesim(tmp_path, *few).end().code == 3
        first = tokens(server.sent)
        assert 3000 <= first < 6000
        assert triagesim(tmp_path, *more).end().code == 3
        both = tokens(server.sent)
        assert 6000 <= both < 6000 + max(tokens([call]) for call in server.sent)
        assert triagesim(tmp_path, *arguments).end().code == 0
        assert set(server.counts.values()) == {1}
    assert len((tmp_path / "run.jsonl").read_text("utf-8").splitlines()) == 3


def answer(key: str, prompt: int, usd: float) -> str:
    usage = Usage(prompt, 1, 0, 0, usd)
    return dumps({"key": key, "name": "n", "text": "t", "finish": "stop", "usage": usage, "model": "m"}) + "\n"


def test_what_was_spent_is_read_once_whole_lines_alone_and_as_often_as_it_was_paid(tmp_path: Path) -> None:
    mine, other = tmp_path / "a" / "07" / "me-1.jsonl", tmp_path / "b" / "63" / "you-1.jsonl"
    for path in (mine, other):
        path.parent.mkdir(parents=True)
    mine.write_text(answer("mine", 1000, 9), "utf-8")
    other.write_text(answer("k", 10, 0.5) + answer("k", 20, 0.25) + '{"call":"c","failed":"server"}\n' + "[]\n{\n")
    spent = Spent(tmp_path, without="me")
    assert spent.so_far() == (0.75, 32)
    with other.open("a", encoding="utf-8") as file:
        file.write(answer("l", 30, 1.0)[:-9])
        file.flush()
        assert spent.so_far() == (0.75, 32)
        file.write(answer("l", 30, 1.0)[-9:])
    # What was read is not read again: its bytes may be anything by now.
    with other.open("r+b") as file:
        file.write(b"?" * 40)
    assert spent.so_far() == (1.75, 63)
    (tmp_path / "b" / "00").mkdir()
    (tmp_path / "b" / "00" / "they-1.jsonl").write_text(answer("m", 1, 0.25), "utf-8")
    assert spent.so_far() == (2.0, 65)
    other.unlink()
    assert spent.so_far() == (2.0, 65)
    assert Spent(tmp_path).so_far() == (9.25, 1003)


# Time.


def test_a_driver_whose_time_is_over_ends_with_75_and_the_next_asks_what_is_missing(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    with FaultServer("hang@6", signed=True) as server:
        over = shard.run(server, concurrency=1, time_limit=1)
        assert over.code == 75
        assert 1 <= over.seconds < 12
        assert "the time limit is over; every answer so far is kept, the same command goes on from here" in over.said
        kept, asked = shard.kept(), len(server.asked)
        in_flight = asked - len(kept)
        assert asked <= 6
        assert in_flight in (0, 1)
        assert shard.mark is None
        assert not shard.out.exists()
        server.faults = []
        assert shard.run(server, time_limit=600).code == 0
        assert not kept & {call.content for call in server.asked[asked:]}
        assert len(server.asked) == len(server.counts) + in_flight


def test_a_command_stops_in_time_and_goes_on(tmp_path: Path) -> None:
    shard = Shard(tmp_path, cases=2)
    with FaultServer("hang@4", signed=True) as server:
        command = ["--model", "openrouter:vendor/m", "--cases", shard.folder / "cases.jsonl", "--out", "run.jsonl"]
        command += ["--max-turns", 2, "--model-args", json.dumps({"base_url": server.url}), "--concurrency", 1]
        past = triagesim(tmp_path, *command, "--stop-at", "2024-02-29T12:00").end()
        assert (past.code, server.asked) == (75, [])
        soon = datetime.now() + timedelta(seconds=3)
        near = triagesim(tmp_path, *command, "--stop-at", soon.isoformat(timespec="milliseconds")).end()
        assert near.code == 75, near.said
        assert datetime.now() >= soon
        asked = len(server.asked)
        assert asked <= 4
        server.faults = [Fault("hang", frozenset({asked + 4}))]
        both = triagesim(tmp_path, *command, "--time-limit", "0:02", "--stop-at", "2999-01-01").end()
        assert both.code == 75, both.said
        assert len(server.asked) <= asked + 4
        server.faults = []
        assert triagesim(tmp_path, *command, "--time-limit", "1:00:00").end().code == 0
        assert len(server.asked) <= len(server.counts) + 2
    assert "the time limit is over" in near.said


# Failed episodes.


@pytest.mark.parametrize(("fault", "reason"), [("spoken", "Invalid JSON"), ("server_error", "500 Internal error")])
def test_more_failed_episodes_than_allowed_are_listed_and_a_rerun_asks_only_them(
    fault: str, reason: str, tmp_path: Path
) -> None:
    shard = Shard(tmp_path, cases=4, complaint="Zebra bite", simulation={"max_error_rate": 0.2})
    with FaultServer(Fault(fault, marker="Zebra"), signed=True) as server:
        failed = shard.run(server, "-c", QUICK)
        assert failed.code == 1
        assert "1 of 4 episodes failed, more than max_error_rate=0.2" in failed.said
        assert re.search(rf"^  played-0-0: .*{reason}", failed.said, re.MULTILINE), failed.said
        assert not any(f"  played-{n}-0: " in failed.said for n in (1, 2, 3))
        assert not shard.out.exists()
        assert "  1 " in triagesim(tmp_path, "status", tmp_path / "journal").end().said.splitlines()[1]
        kept, asked, server.faults = shard.kept(), len(server.asked), []
        assert shard.run(server).code == 0
        again = [call.content for call in server.asked[asked:]]
        assert again
        assert len(again) == len(set(again))
        assert not kept & set(again)
    episodes = [json.loads(line) for line in shard.out.read_text("utf-8").splitlines()]
    assert [episode["status"] for episode in episodes] == ["ok"] * 4
    # Where only the server failed, its answers before that stay good; bad answers are asked for anew, all of them.
    assert (episodes[0]["usage"]["nurse"]["calls"] + episodes[0]["usage"]["patient"]["calls"] > len(again)) is (
        fault == "server_error"
    )


def test_failed_episodes_within_the_rate_are_in_the_shard_with_their_reason(tmp_path: Path) -> None:
    shard = Shard(tmp_path, cases=4, complaint="Zebra bite", simulation={"max_error_rate": 0.25})
    with FaultServer(Fault("server_error", marker="Zebra"), signed=True) as server:
        done = shard.run(server, "-c", QUICK)
        assert done.code == 0, done.said
    first, *others = [json.loads(line) for line in shard.out.read_text("utf-8").splitlines()]
    assert (first["episode_id"], first["status"], first["end_reason"]) == ("played-0-0", "error", "error")
    assert "500 Internal error" in first["error"]
    assert first["trace"], "what was said before is kept"
    assert [episode["status"] for episode in others] == ["ok"] * 3
    assert "1 failed" in done.said


def test_a_rate_that_is_just_met_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Sour(Puppet):
        def answer(self, request: Request) -> str:
            return "{}" if int(request.name.episode.split("-")[0]) < 29 else super().answer(request)

    seat = Seat(as_backend(Sour()))
    setup = Setup(
        {"nurse": seat, "patient": seat}, Pool(personas("nurse"), "nurse"), Pool(personas("patient"), "patient")
    )
    jobs = [(a_case(str(number)), 0) for number in range(100)]
    for rate in (0.28, 0.29):
        plan = Plan(jobs, setup, tmp_path / f"{rate}.jsonl", tmp_path / "journal", "rate", max_error_rate=rate)
        with pytest.raises(TooManyErrors, match="29 of 100") if rate == 0.28 else nullcontext():
            write_shards([plan])
        assert plan.out.exists() is (rate == 0.29)


def test_a_command_that_is_stopped_still_lists_what_failed_and_a_later_run_asks_it_anew(tmp_path: Path) -> None:
    shard, errors = Shard(tmp_path, complaint="Zebra bite"), tmp_path / "run.errors.jsonl"
    failing = Fault("spoken", marker="Zebra")
    with FaultServer(failing, signed=True) as server:
        command = ["-c", QUICK, ROOT / "workflow" / "triagesim" / "cli.py"]
        command += ["--model", "openrouter:vendor/m", "--cases", shard.folder / "cases.jsonl", "--out", "run.jsonl"]
        command += ["--max-turns", 2, "--model-args", json.dumps({"base_url": server.url}), "--concurrency", 1]

        def listed() -> list[str]:
            return [json.loads(line)["episode_id"] for line in errors.read_text("utf-8").splitlines()]

        server.faults = [failing, Fault("no_credit", frozenset({12}))]
        assert Driver(command, tmp_path, {}).end().code == 3
        assert listed() == ["played-0-0"]
        server.faults = [Fault("no_credit")]
        assert Driver(command, tmp_path, {}).end().code == 3
        assert listed() == ["played-0-0"], "it wasn't asked anew yet"
        server.faults = [failing]
        assert Driver(command, tmp_path, {}).end().code == 0
        assert listed() == ["played-0-0"]
        server.faults = []
        assert Driver(command, tmp_path, {}).end().code == 0
    assert not errors.exists()
    assert len((tmp_path / "run.jsonl").read_text("utf-8").splitlines()) == 3


# Failed tries.


FAILURES = {
    "rate_limit": Fault("rate_limit", frozenset({2})),
    "server": Fault("server_error", frozenset({5})),
    "connection": Fault("reset", frozenset({8})),
    "empty": Fault("empty", frozenset({11})),
    "invalid": Fault("spoken", frozenset({14})),
    "truncated": Fault("all_reasoning", frozenset({17})),
    "timeout": Fault("hang", frozenset({20})),
}


def test_each_failed_try_is_counted_once_by_its_kind_and_a_replay_counts_none(tmp_path: Path) -> None:
    shard = Shard(tmp_path, cases=8)
    once = dict.fromkeys(FAILURES, 1)
    shown = {kind.replace("_", " "): 1 for kind in once}
    with FaultServer(*FAILURES.values(), signed=True, retry_after=0.4) as server:
        done = shard.run(server, "-c", QUICK, model={"timeout": 2.5}, concurrency=1)
        assert done.code == 0, done.said
        asked = len(server.asked)
        assert asked == len(server.counts) + len(FAILURES) - 2, "an answer of no use is asked for in other words"
        usage = shard.usage
        assert usage["failed_tries"] == once
        assert done.counts() == shown
        status = triagesim(tmp_path, "status", tmp_path / "journal").end().said
        assert status.splitlines()[1].split()[5] == str(len(once))
        assert f"failed tries: {', '.join(f'1 × {kind}' for kind in sorted(shown))}" in status
        by_number = {call.number: call for call in server.asked}
        # A second try comes at once, but not before the time that the server named.
        assert by_number[3].content == by_number[2].content
        assert 0.4 <= by_number[3].time - by_number[2].time < 2
        assert by_number[6].time - by_number[5].time < 0.4
        # A cut answer is asked for with twice the tokens, an invalid one with its text and what is wrong with it.
        first, second = by_number[17].body, by_number[18].body
        assert (first["max_tokens"], second["max_tokens"]) == (900, 1800)
        assert second["messages"] == first["messages"]
        first, second = by_number[14].body, by_number[15].body
        assert second["messages"][: len(first["messages"])] == first["messages"]
        assert [message["role"] for message in second["messages"][-2:]] == ["assistant", "user"]
        assert "That answer can't be used: " in second["messages"][-1]["content"]
        shard.out.unlink()
        replayed = shard.run(server)
        assert (replayed.code, len(server.asked)) == (0, asked)
        assert replayed.counts() == {}
    assert shard.usage == usage


def test_a_server_that_names_no_tokens_is_asked_for_a_longer_answer_too() -> None:
    with FaultServer("all_reasoning@1") as server:
        backend = OpenAICompatible("m", base_url=server.url)
        [episode] = simulate(
            [a_case(provenance="synthetic")],
            nurse_llm=backend,
            patient_llm=backend,
            nurse_personas=personas("nurse"),
            patient_personas=personas("patient"),
            max_turns=1,
        )
        limits = [call.body["max_tokens"] for call in server.asked]
    assert episode["status"] == "ok"
    assert limits[1] > limits[0]


def test_an_endpoint_that_answers_nobody_stops_the_run_and_leaves_the_mark(tmp_path: Path) -> None:
    shard = Shard(tmp_path, cases=8)
    with FaultServer("server_error", signed=True) as server:
        dead = shard.run(server, "-c", QUICK, concurrency=2)
        assert dead.code == 3
        # Four calls failed for good, six tries each; the fifth ends the run, whatever the other one is at.
        assert 5 * 6 <= len(server.asked) <= 6 * 6
        assert "openrouter:vendor/m answered none of the last 5 calls" in dead.said
        assert "500 Internal error" in dead.said
        assert shard.mark is not None
        assert "answered none of the last 5 calls" in shard.mark
        server.faults, asked = [], len(server.asked)
        assert shard.run(server).code == 0
        assert set(Counter(call.content for call in server.asked[asked:]).values()) == {1}
    assert shard.mark is None


# What it took.


@pytest.mark.parametrize("speculation", ["off", "reading"])
def test_the_usage_is_what_the_server_counted(speculation: str, tmp_path: Path) -> None:
    shard = Shard(tmp_path, cases=4, judge=True)
    with FaultServer("spoken@9", signed=True) as server:
        assert shard.run(server, speculation=speculation).code == 0
        usage = shard.usage
        paid = [call for call in server.sent if call.content in shard.kept() or call.fault]
        # A reading that was discarded is no more than paid for: its answer may have come a moment too late.
        assert len(paid) == len(server.sent) or speculation == "reading"
        assert usage["calls"] == sum(usage["by_purpose"].values()) == len(paid)
        assert usage["prompt"] == sum(call.usage["prompt_tokens"] for call in paid if call.usage)
        assert usage["completion"] == sum(call.usage["completion_tokens"] for call in paid if call.usage)
        assert usage["cached"] == sum(
            call.usage["prompt_tokens_details"]["cached_tokens"] for call in paid if call.usage
        )
        assert usage["cost"] == pytest.approx(cost(paid))
        row = triagesim(tmp_path, "status", tmp_path / "journal").end().said.splitlines()[1].split()
        ended = Counter(json.loads(line)["status"] for line in shard.out.read_text("utf-8").splitlines())
        assert row[:5] == ["played", str(ended["ok"]), str(ended["skipped"]), "0", str(len(paid))]
        assert row[6:] == [f"{tokens(paid):,}", f"{cost(paid):.2f}"]


@pytest.mark.parametrize("speculation", ["off", "reading", "full"])
def test_discarded_answers_count_and_calls_that_failed_for_good_do_not(
    speculation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triagesim.calls.PAUSE", 0)
    llm = Moody()
    episodes = [json.loads(text) for text in play_judged(llm, tmp_path, speculation)]
    account = Account.of(read_records(tmp_path))
    answers = sum(llm.asked_for.values())
    assert account.calls == sum(account.purposes.values()) == answers
    assert account.usage == Usage(9 * answers, 4 * answers, 0, 0, 0.25 * answers)
    assert account.failures["server"] == len(llm.requests) - answers - llm.cancelled
    assert Spent(tmp_path).so_far() == (account.usage.cost, account.usage.prompt + account.usage.completion)
    used = sum(role["calls"] for episode in episodes for role in episode["usage"].values())
    assert used <= answers
    assert (used < answers) is (speculation == "full")
