"""kill -9 at 30 random moments of whole runs: of Snakemake alone, of it with all its jobs, of a job, of a served model,
and of a fetch. The next run finishes with the bytes of an undisturbed one; nothing that was answered is asked again.
"""
# ruff: noqa: F811 (fixtures of another file)

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fault_server import Fault, FaultServer
from test_fetch import CONTENT, NAME, OTHER_PROCESS, build_wheel, cache, links, place, rows  # noqa: F401
from test_limits import Shard
from test_workflow import ENVIRONMENT, clone, contents, edit, snakemake
from triagesim.fetch import fetch
from triagesim.journal import read_records

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SITE = Path(__file__).parent / "fatal_site"
HOWS = ("snakemake", "group", "driver")
#: Kills of each kind of run; 30 in all.
KILLS = {"chain": 12, "master": 9, "engine": 3, "fetch": 6}
#: Seconds after which something hangs.
HUNG = 120


def test_there_are_thirty_kills() -> None:
    assert sum(KILLS.values()) == 30


class Run:
    """A run of the workflow in a folder, which a kill ends; nothing of it is left at the end.

    Args:
        at: the change to the files below results/ and journal/ that brings the kill, from 1; None: the caller kills.
    """

    def __init__(self, folder: Path, command: str, how: str, at: int | None) -> None:
        self._mark = f"KILLED_RUN={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        killing = {} if at is None else {"KILL_AT": str(at), "KILL_HOW": how, "KILL_COUNT": str(folder / "count")}
        for left in folder.glob("count*"):
            left.unlink()
        below = ":".join(f"{parent}{part}/" for part in ("results", "journal") for parent in ("", f"{folder}{os.sep}"))
        path = os.pathsep.join(filter(None, [str(SITE), ENVIRONMENT.get("PYTHONPATH")]))
        self._said = (folder / "said.txt").open("w", encoding="utf-8")
        self.process = subprocess.Popen(
            command.split(),
            cwd=folder,
            env=ENVIRONMENT | killing | {name: value, "KILL_BELOW": below, "PYTHONPATH": path},
            stdout=self._said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def end(self) -> int:
        """Wait until it and every process that it started are gone; its exit code."""
        code = self.process.wait(HUNG)
        while left := self.processes():
            wait_for_end(left)
        self._said.close()
        return code

    def processes(self) -> list[int]:
        """Those of it that run, whoever their parents are by now."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and self._mark.encode() in read(entry / "environ").split(b"\0"):
                found.append(int(entry.name))
        return found

    def drivers(self) -> list[int]:
        """Its processes that simulate."""
        words = {number: read(Path(f"/proc/{number}/cmdline")).split(b"\0") for number in self.processes()}
        return [number for number, said in words.items() if said[1:] and said[1].endswith(b"simulate.py")]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def wait_for_end(processes: list[int]) -> None:
    """Wait until the first of them is gone."""
    try:
        descriptor = os.pidfd_open(processes[0])
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    ended = poll.poll(1000 * HUNG)
    os.close(descriptor)
    assert ended, read(Path(f"/proc/{processes[0]}/cmdline"))


def after_a_kill(folder: Path, whole: dict[str, bytes], first: bool) -> None:
    """What must hold at once: nothing half under a final name. Then take Snakemake's lock away."""
    left = contents(folder / "results")
    # Snakemake's own: the shell writes them and Snakemake knows that they are unfinished.
    final = {name: data for name, data in left.items() if ".part" not in name and not name.startswith("pairings/")}
    assert {name for name, data in final.items() if whole.get(name) != data} == set()
    if first:
        snakemake(folder, "snakemake --unlock")
    shutil.rmtree(folder / ".snakemake/locks", ignore_errors=True)


def finished(folder: Path, whole: dict[str, bytes], command: str) -> None:
    """The next run ends well with the same bytes, and what kills left half is gone."""
    snakemake(folder, command)
    assert contents(folder / "results") == whole
    assert not [path for top in ("results", "journal") for path in (folder / top).rglob(".part*")]
    for pairing in (folder / "journal").iterdir():
        names = [record["name"] for record in read_records(pairing) if "name" in record]
        assert len(names) == len(set(names)), pairing


def chain(config: dict[str, Any]) -> None:
    """The baseline alone and with a dialogue master, three cases."""
    config["data"]["source"] = "resources/cases/examples.jsonl"
    plain = {"nurse": "agenda", "patient": "agenda", "max_turns": 3}
    config["pairings"] = [plain, {**plain, "name": "judged", "judge": "agenda"}]
    config["audio"] = {"max_dialogues": 0}
    config["shards"] = 2


def test_the_chain_of_the_baseline_survives_every_kill(tmp_path: Path) -> None:
    undisturbed, folder = clone(tmp_path / "whole"), clone(tmp_path / "killed")
    for one in (undisturbed, folder):
        edit(one, chain)
    snakemake(undisturbed, "snakemake")
    whole = contents(undisturbed / "results")
    chance = random.Random(10)
    ends = []
    for kill in range(KILLS["chain"]):
        how = HOWS[kill % 3]
        run = Run(folder, "snakemake", how, at=chance.randint(4, 40))
        ends.append((how, run.end()))
        after_a_kill(folder, whole, first=kill == 0)
    assert len([code for _, code in ends if code]) >= KILLS["chain"] - 2, ends
    finished(folder, whole, "snakemake")


def served(url: str) -> Any:
    def change(config: dict[str, Any]) -> None:
        chain(config)
        config["models"]["own"] = {
            "backend": "openai", "model": "m", "base_url": url, "local": True, "identity": "made by a test",
        }  # fmt: skip
        config["pairings"] = [{"name": "served", "nurse": "own", "patient": "own", "judge": "own", "max_turns": 2}]
        config["runtime"] = {"speculation": "off"}
        config["shards"] = 1

    return change


def test_a_run_with_a_master_survives_every_kill_and_asks_its_server_nothing_twice(tmp_path: Path) -> None:
    target = "snakemake results/pool.jsonl results/metrics/summary.csv"
    undisturbed, folder = clone(tmp_path / "whole"), clone(tmp_path / "killed")
    chance = random.Random(11)
    with FaultServer() as server:
        edit(undisturbed, served(server.url))
        snakemake(undisturbed, target)
        needed, whole = set(server.counts), contents(undisturbed / "results")
    in_flight = 0
    with FaultServer(port=server.port) as server:
        edit(folder, served(server.url))
        for kill in range(KILLS["master"]):
            how, asked = HOWS[kill % 3], len(server.asked)
            before = answers(folder)
            if kill >= 6:  # its calls are nearly all answered
                run = Run(folder, target, how, at=chance.randint(2, 14))
                run.end()
            else:
                wanted = asked + chance.randint(1, len(needed) // 8)
                # From then on nobody is answered, so the kill can't come too late.
                server.faults = [Fault("hang", frozenset(range(wanted, wanted + 1000)))]
                run = Run(folder, target, how, at=None)
                server.wait_for(lambda: len(server.asked) >= wanted, HUNG)  # noqa: B023
                if how == "group":
                    os.killpg(run.process.pid, signal.SIGKILL)
                else:
                    (victim,) = [run.process.pid] if how == "snakemake" else run.drivers()
                    os.kill(victim, signal.SIGKILL)
                assert run.end() == (1 if how == "driver" else -signal.SIGKILL)
                server.faults = []
            in_flight += len(server.asked) - asked - (answers(folder) - before)
            after_a_kill(folder, whole, first=kill == 0)
        finished(folder, whole, target)
        assert set(server.counts) == needed
        assert len(server.asked) == len(needed) + in_flight


def answers(folder: Path) -> int:
    """How many answers are kept."""
    return sum("key" in record for record in read_records(folder / "journal"))


class Engine:
    """A model server in a process of its own, which kills itself at a call; `url` stays the same."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/v1"
        self.record = folder / "record.jsonl"

    def start(self, *faults: str) -> subprocess.Popen[str]:
        command = [sys.executable, ROOT / "tests/fault_server.py", "--port", self._port, "--record", self.record]
        command += [word for fault in faults for word in ("--fault", fault)]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        assert process.stdout
        assert process.stdout.readline() == f"{self.url}\n"
        return process

    def asked(self) -> Counter[str]:
        return Counter(json.loads(line)["content"] for line in self.record.read_text("utf-8").splitlines())


def test_a_served_model_that_is_killed_and_comes_back_costs_the_calls_in_flight(tmp_path: Path) -> None:
    engine, calm = Engine(tmp_path), Shard(tmp_path / "calm", cases=4, judge=True)
    with FaultServer() as server:
        assert calm.run(server).code == 0
        needed = len(server.counts)
    shard = Shard(tmp_path / "killed", cases=4, judge=True)
    chance = random.Random(12)
    running = engine.start(f"die@{chance.randint(2, 6)}")
    driver = shard.start(engine)  # type: ignore[arg-type]
    for kill in range(KILLS["engine"]):
        assert running.wait(HUNG) == -signal.SIGKILL
        again = [f"die@{chance.randint(3, needed // 4)}"] if kill + 1 < KILLS["engine"] else []
        running = engine.start(*again)
    done = driver.end()
    running.kill()
    running.wait()
    assert done.code == 0, done.said
    assert shard.out.read_bytes() == calm.out.read_bytes()
    asked = engine.asked()
    assert len(asked) == needed
    # Four calls at most are on their way at a kill.
    assert sum(asked.values()) - needed <= 4 * KILLS["engine"]
    kept = Counter(record["key"] for record in read_records(shard.journal) if "key" in record)
    assert set(kept.values()) == {1}


def fetching(rows: dict[str, Any], cache: Path, count: Path, at: int) -> subprocess.Popen[bytes]:
    """Another process that fetches, and is killed with its client at a change to the files of the cache."""
    killing = {"KILL_AT": str(at), "KILL_HOW": "group", "KILL_COUNT": str(count), "KILL_BELOW": f"{cache}{os.sep}"}
    path = os.pathsep.join(map(str, [SITE, ROOT / "workflow"]))
    return subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, json.dumps(rows), NAME],
        env=os.environ | killing | {"PYTHONPATH": path, "TMPDIR": str(count.parent)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def test_a_fetch_that_is_killed_at_any_change_leaves_nothing_behind_the_next_one(
    cache: Path,
    links: Path,
    rows: dict[str, Any],
    tmp_path: Path,
) -> None:
    build_wheel(links)
    assert fetching(rows, cache, tmp_path / "whole", 10**6).wait(HUNG) == 0
    changes = len((tmp_path / "whole").read_bytes())
    assert changes >= KILLS["fetch"]
    clean = sorted(path.name for path in place(cache).parent.iterdir())
    chance = random.Random(13)
    for at in chance.sample(range(1, changes), KILLS["fetch"]):
        shutil.rmtree(cache)
        killed = fetching(rows, cache, tmp_path / f"count-{at}", at)
        assert killed.wait(HUNG) == -signal.SIGKILL
        found = place(cache)
        assert not found.exists() or found.read_bytes() == CONTENT
        assert fetch(NAME).read_bytes() == CONTENT
        assert sorted(path.name for path in found.parent.iterdir()) == clean
