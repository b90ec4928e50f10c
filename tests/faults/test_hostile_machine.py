"""A machine that gets in the way: folders that can't be written to, two of everything at once, a clock that jumps."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fault_server import FaultServer
from test_completion import episodes, judge
from test_hosted import outcome
from test_limits import QUICK, SCRIPT, Driver, Ended, Shard
from test_workflow import ENVIRONMENT, answers, clone, contents, edit, jobs, snakemake
from triagesim.jsonl import write_jsonl
from triagesim.limits import stop_mark

#: Linux's numbers, of prctl and of the capability to pass over the modes of files, which root has.
_DROP, _OVERRIDE = 24, 1
#: Runs a script under a clock that is right, a day ahead and a day behind in turn.
JUMPING = (
    "import itertools, time; real = time.time; days = itertools.cycle((0, 86400, -86400)); "
    "time.time = lambda: real() + next(days); " + QUICK
)


def obey_modes() -> None:
    """For a child process: modes of files count, also where the tests run as root."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_DROP, _OVERRIDE, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")


def modes(folder: Path, mode: int) -> None:
    """Give a folder and those in it a mode."""
    for path in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        path.chmod(mode)


# Two at once.


def in_halves(shard: Shard) -> list[list[Any]]:
    """The arguments of two jobs of the shard's pairing, with half of its cases each."""
    lines = (shard.folder / "cases.jsonl").read_text("utf-8").splitlines(keepends=True)
    found = []
    for half in (1, 2):
        cases = shard.folder / f"{half}-of-2.jsonl"
        cases.write_text("".join(lines[half - 1 :: 2]), encoding="utf-8")
        arguments: list[Any] = [SCRIPT, "--pairing", shard.folder / "pairing.json", "--cases", cases]
        for role in ("nurse", "patient"):
            arguments += [f"--{role}-personas", shard.folder / f"{role}.jsonl"]
        out = shard.out.with_name(f"{half}-of-2.jsonl")
        found.append([*arguments, "--journal", shard.journal, "--out", out])
    return found


def together(shard: Shard, server: FaultServer, begin: Callable[[list[Any], dict[str, str]], Driver]) -> list[Ended]:
    told = {"concurrency": 4, "speculation": "off", "models": {"m": {"base_url": server.url, "max_workers": 4}}}
    environment = {"TRIAGESIM_RUNTIME": json.dumps(told)}
    return [driver.end() for driver in [begin(arguments, environment) for arguments in in_halves(shard)]]


def test_two_jobs_of_one_pairing_at_once_ask_each_call_once_and_give_the_bytes_of_one_after_the_other(
    tmp_path: Path,
) -> None:
    one, other = Shard(tmp_path / "one", cases=6, judge=True), Shard(tmp_path / "other", cases=6, judge=True)
    with FaultServer(signed=True) as server:
        ended = together(one, server, lambda arguments, environment: Driver(arguments, tmp_path, environment))
        assert [end.code for end in ended] == [0, 0], ended
        needed = set(server.counts)
        assert set(server.counts.values()) == {1}
    with FaultServer(signed=True) as server:
        told = json.dumps({"models": {"m": {"base_url": server.url}}, "speculation": "off"})
        for arguments in in_halves(other):
            assert Driver(arguments, tmp_path, {"TRIAGESIM_RUNTIME": told}).end().code == 0
        assert server.counts == Counter(needed)
    assert contents(one.out.parent) == contents(other.out.parent)
    assert len(contents(one.out.parent)) == 2


def test_two_drivers_of_one_shard_at_once_ask_each_call_once_and_both_end_well(tmp_path: Path) -> None:
    shard = Shard(tmp_path, cases=3)
    with FaultServer(signed=True) as server:
        both = [shard.start(server) for _ in range(2)]
        ended = [driver.end() for driver in both]
        assert [end.code for end in ended] == [0, 0], ended
        assert set(server.counts.values()) == {1}
    assert [path.name for path in shard.out.parent.iterdir()] == ["1-of-1.jsonl"]


# A clock that jumps.


def test_a_clock_that_jumps_by_days_changes_no_byte(tmp_path: Path) -> None:
    right, jumping = Shard(tmp_path / "right", cases=3), Shard(tmp_path / "jumping", cases=3)
    with FaultServer(signed=True) as server:
        assert right.run(server).code == 0
        needed = set(server.counts)
    with FaultServer("rate_limit@3", "server_error@7", signed=True, retry_after=0.2) as server:
        done = jumping.run(server, "-c", JUMPING, time_limit=600)
        assert done.code == 0, done.said
        assert set(server.counts) == needed
        asked = len(server.asked)
        assert asked == len(needed) + 2
        jumping.out.unlink()
        assert jumping.run(server, "-c", JUMPING).code == 0
        assert len(server.asked) == asked
    assert jumping.out.read_bytes() == right.out.read_bytes()


def test_a_wait_until_a_date_is_counted_by_the_server_s_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    behind = SimpleNamespace(time=lambda: time.time() - 86400, monotonic=time.monotonic)
    monkeypatch.setattr("triagesim.backends.hosted.time", behind)
    with FaultServer("rate_limit_date") as server:
        assert 60 <= outcome(server).retry_after <= 91


def test_a_job_whose_clock_jumps_still_stops_in_time(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    with FaultServer("hang@6", signed=True) as server:
        assert shard.run(server, "-c", JUMPING, concurrency=1, time_limit=1).code == 75


# Folders that can't be written to.


def test_a_driver_whose_output_can_not_be_written_says_so_and_the_next_asks_nothing(tmp_path: Path) -> None:
    shard = Shard(tmp_path / "run", cases=2)
    shard.out.parent.mkdir(parents=True)
    modes(shard.out.parent, 0o555)
    with FaultServer(signed=True) as server:
        told = json.dumps({"models": {"m": {"base_url": server.url}}, "speculation": "off"})
        arguments = [SCRIPT, "--pairing", shard.folder / "pairing.json", "--cases", shard.folder / "cases.jsonl"]
        for role in ("nurse", "patient"):
            arguments += [f"--{role}-personas", shard.folder / f"{role}.jsonl"]
        arguments += ["--journal", shard.journal, "--out", shard.out]
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            env=ENVIRONMENT | {"TRIAGESIM_RUNTIME": told, "OPENROUTER_API_KEY": "none"},
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=obey_modes,
            timeout=120,
        )
        assert done.returncode == 2, done.stderr
        assert f"error: {shard.out}: Permission denied" in done.stderr
        assert "Traceback" not in done.stderr
        modes(shard.out.parent, 0o755)
        asked = len(server.asked)
        assert asked
        assert shard.run(server).code == 0
        assert len(server.asked) == asked


# The workflow.


def small(config: dict[str, Any], url: str) -> None:
    """Three cases, in two shards, with a model that is served."""
    config["data"]["source"] = "resources/cases/examples.jsonl"
    own = {"backend": "openai", "model": "m", "base_url": url, "local": True, "identity": "made by a test"}
    config["models"] = {"own": own}
    config["pairings"] = [{"name": "own", "nurse": "own", "patient": "own", "max_turns": 2}]
    config["audio"] = {"max_dialogues": 0}
    config["shards"] = 2


@pytest.mark.slow
def test_two_snakemakes_a_clock_that_went_back_and_results_that_can_not_be_written(tmp_path: Path) -> None:
    folder = clone(tmp_path / "triagesim")
    target = "snakemake results/pool.jsonl"
    with FaultServer(held=True) as server:
        edit(folder, lambda config: small(config, server.url))
        with subprocess.Popen(
            target.split(), cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as first:
            server.wait_for(lambda: len(server.asked) > 0, 120)
            refused = snakemake(folder, target, expect=1)
            server.release()
        assert first.returncode == 0
        assert set(server.counts.values()) == {1}
    assert "Directory cannot be locked" in refused
    assert jobs(snakemake(folder, f"{target} -n")) == {}
    whole, asked = contents(folder / "results"), answers(folder)

    # What was made while the clock was a day ahead is newer than what is made from it.
    for path in (folder / "results" / "cases").iterdir():
        os.utime(path, (time.time() + 86400,) * 2)
    for name in ("episodes/own/2-of-2.jsonl", "pool.jsonl"):
        (folder / "results" / name).unlink()
    snakemake(folder, target)
    assert contents(folder / "results") == whole
    assert answers(folder) == asked

    for name in ("episodes/own/1-of-2.jsonl", "pool.jsonl"):
        (folder / "results" / name).unlink()
    modes(folder / "results", 0o555)
    done = subprocess.run(
        target.split(), cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, preexec_fn=obey_modes, timeout=300
    )
    modes(folder / "results", 0o755)
    assert done.returncode == 1
    assert "Permission denied" in done.stderr + done.stdout
    assert "results" in done.stderr
    snakemake(folder, target)
    assert contents(folder / "results") == whole
    assert answers(folder) == asked


@pytest.mark.slow
def test_a_run_whose_every_episode_failed_within_the_rate_ends_with_a_report_that_says_so(tmp_path: Path) -> None:
    folder = clone(tmp_path / "triagesim")
    with FaultServer("spoken") as server:

        def sour(config: dict[str, Any]) -> None:
            small(config, server.url)
            config["pairings"] = [{"name": "sour", "nurse": "own", "patient": "own", "max_error_rate": 1}]
            config["audio"] = {"engine": "espeak"}

        edit(folder, sour)
        said = snakemake(folder, "snakemake")
    assert "note: sour: 3 of 3 episodes failed. They are counted apart, never as wrong." in said
    assert "3 of 3 episodes failed" in (folder / "results/report.html").read_text("utf-8")
    assert (folder / "results/pool.jsonl").read_bytes() == b""
    assert (folder / "results/audio/manifest-1-of-1.jsonl").read_bytes() == b""
    assert len((folder / "results/scores/sour/1-of-2.csv").read_text("utf-8").splitlines()) > 1
    assert jobs(snakemake(folder, "snakemake -n")) == {}


# A judge that can't go on.


def test_a_judge_without_a_right_key_leaves_the_mark_and_its_siblings_stop(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "episodes.jsonl", episodes(2))
    with FaultServer("bad_key@1") as server, pytest.MonkeyPatch.context() as patch:
        refused = judge(tmp_path, server.url)
        assert refused.returncode == 3
        mark = stop_mark(tmp_path / "journal")
        assert mark is not None
        assert mark.startswith("judge _completion-played out: ")
        asked = len(server.asked)
        patch.setenv("TRIAGESIM_PARENT", str(os.getpid()))
        sibling = judge(tmp_path, server.url)
        assert (sibling.returncode, len(server.asked)) == (3, asked)
        assert f"error: another job stopped the run: {mark}" in sibling.stderr
        patch.delenv("TRIAGESIM_PARENT")
        by_hand = judge(tmp_path, server.url)
        assert by_hand.returncode == 0, by_hand.stderr
    assert stop_mark(tmp_path / "journal") is None
