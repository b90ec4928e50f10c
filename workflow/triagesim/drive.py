"""Drives a simulation from start to file: resumes, reports progress, stops cleanly, never loses an answer.

The command `triagesim` streams to a file that grows; the rule `simulate` writes a shard whole, sorted, at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from triagesim.cases import Case
from triagesim.engine import close_backends
from triagesim.environment import PARENT
from triagesim.episode import Setup
from triagesim.errors import InputError, TriageSimError
from triagesim.journal import Tally, shard_lock
from triagesim.jsonl import dumps, write_json, write_jsonl
from triagesim.simulation import run

_BEGINNING = b'{"episode_id":'
#: Who started this process; read at once, before it can be gone.
_SHELL = os.getppid()
#: Seconds between two looks at whether the process that started this one still lives.
WATCH_EVERY = 0.5
#: Seconds from one progress line to the next; they grow to the last.
PROGRESS_EVERY = (5, 10, 30)


class TooManyErrors(TriageSimError):
    """More episodes failed than the configuration allows; their answers are in the journal and a new run asks anew."""

    exit_code = 1


@dataclass
class Plan:
    """What to simulate and where to keep it.

    Attributes:
        jobs: (case, episode number), in the order of the output.
        out: the file of episodes.
        journal: the folder of answers.
        title: names this run in progress lines.
    """

    jobs: list[tuple[Case, int]]
    setup: Setup
    out: Path
    journal: Path
    title: str
    concurrency: int = 64
    max_error_rate: float = 0.0


def write_shard(plan: Plan) -> None:
    """Simulate all jobs and write them in order, whole or not at all.

    Raises:
        TooManyErrors: more than `max_error_rate` of them failed; nothing is written.
        StopRun: from a call, or another driver holds this shard.
    """
    with shard_lock(plan.journal / "locks" / f"{plan.out.stem}.lock"):
        progress = Progress(plan.title, len(plan.jobs))
        with contextlib.closing(run(plan.jobs, plan.setup, plan.journal, plan.concurrency, progress.tally)) as episodes:
            done = {episode["episode_id"]: episode for episode in progress.watch(episodes)}
        failed = [episode for episode in done.values() if episode["status"] == "error"]
        if len(failed) > plan.max_error_rate * len(plan.jobs):
            listed = "\n".join(f"  {episode['episode_id']}: {episode['error']}" for episode in failed)
            raise TooManyErrors(
                f"{plan.title}: {len(failed)} of {len(plan.jobs)} episodes failed, more than max_error_rate="
                f"{plan.max_error_rate:g}. All other answers are kept; the same command asks these anew.\n{listed}"
            )
        write_jsonl(plan.out, [done[f"{case.case_id}-{number}"] for case, number in plan.jobs])


def append_episodes(plan: Plan) -> list[dict[str, Any]]:
    """Simulate what `plan.out` doesn't hold yet, and append each episode as it finishes; return the failed ones.

    Failed episodes go to `<out>.errors.jsonl`, and the next run asks them anew.

    Raises:
        InputError: the file was made by another specification; the text says what differs.
    """
    with shard_lock(plan.journal / "locks" / f"{plan.out.stem}.lock"):
        present = _present(plan)
        jobs = [(case, number) for case, number in plan.jobs if f"{case.case_id}-{number}" not in present]
        if present:
            print(f"{plan.title}: {len(present)} episodes are there already, {len(jobs)} to go", file=sys.stderr)
        write_json(plan.journal / "specification.json", plan.setup.specification)
        plan.out.parent.mkdir(parents=True, exist_ok=True)
        failed = []
        progress = Progress(plan.title, len(jobs))
        episodes = run(jobs, plan.setup, plan.journal, plan.concurrency, progress.tally)
        with plan.out.open("a", encoding="utf-8", newline="") as file, contextlib.closing(episodes):
            for episode in progress.watch(episodes):
                if episode["status"] == "error":
                    failed.append(episode)
                else:
                    file.write(dumps(episode) + "\n")
                    file.flush()
        _keep_failed(errors_path(plan.out), failed)
        return failed


def errors_path(out: Path) -> Path:
    """`run.errors.jsonl` for `run.jsonl`."""
    return out.with_name(f"{out.name.removesuffix('.jsonl')}.errors.jsonl")


def _present(plan: Plan) -> set[str]:
    """The ids in `plan.out`; a last line that a kill tore off is cut away (its answers are in the journal)."""
    if not plan.out.exists():
        return set()
    data = plan.out.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data) and not data[len(whole) :].startswith(_BEGINNING[: len(data) - len(whole)]):
        raise InputError(f"{plan.out}: its last line is no episode of this program; name another --out")
    present = set()
    cases = {case.case_id: case for case, _ in plan.jobs}
    for number, line in enumerate(whole.split(b"\n")[:-1], 1):
        try:
            episode = json.loads(line)
            name, spec, case = episode["episode_id"], episode["spec"], episode["case"]
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{plan.out}, line {number}: no episode of this program; name another --out") from None
        if spec != plan.setup.spec:
            raise InputError(f"{plan.out}: was made by another specification{_difference(plan)}; name another --out")
        known = cases.get(case["case_id"])
        if known is not None and known.model_dump(mode="json") != case:
            raise InputError(
                f"{plan.out}: case {known.case_id} was another one when {name} was made; name another --out"
            )
        present.add(name)
    if len(whole) < len(data):
        os.truncate(plan.out, len(whole))
    return present


def _difference(plan: Plan) -> str:
    """What differs from the specification that the journal remembers."""
    path = plan.journal / "specification.json"
    old: dict[str, Any] = {}
    if not path.exists():
        return ""
    with contextlib.suppress(ValueError):
        old = json.loads(path.read_text(encoding="utf-8"))
    new = plan.setup.specification
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return " (" + "; ".join(f"{key}: {dumps(old.get(key))}, now {dumps(new.get(key))}" for key in keys) + ")"


def _keep_failed(path: Path, failed: list[dict[str, Any]]) -> None:
    if failed:
        write_jsonl(path, failed)
    else:
        path.unlink(missing_ok=True)


class Progress:
    """A line now and then: episodes done, rate, answers, tokens, time left."""

    def __init__(self, title: str, total: int) -> None:
        self.tally = Tally()
        self._title = title
        self._total = total
        self._done = self._failed = 0
        self._began = time.monotonic()

    def watch(self, episodes: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Pass the episodes through and print while they come."""
        over = threading.Event()
        threading.Thread(target=self._tick, args=(over,), daemon=True).start()
        try:
            for episode in episodes:
                self._done += 1
                self._failed += episode["status"] == "error"
                yield episode
        finally:
            over.set()
            self._print()

    def _tick(self, over: threading.Event) -> None:
        waits = iter(PROGRESS_EVERY)
        wait: float = next(waits)
        while not over.wait(wait):
            self._print()
            wait = next(waits, wait)

    def _print(self) -> None:
        tally, rate = self.tally, self._done / max(time.monotonic() - self._began, 1e-9)
        parts = [f"{self._title}: {self._done}/{self._total} episodes"]
        if self._total == 0:
            parts = [f"{self._title}: nothing to do here"]
        if self._done:
            parts.append(f"{60 * rate:.1f}/min")
        if tally.asked or tally.replayed:
            parts.append(f"{tally.asked + tally.replayed:,} answers ({tally.replayed:,} from the journal)")
        if tally.tokens:
            parts.append(f"{tally.tokens:,} tokens")
        if self._failed:
            parts.append(f"{self._failed} failed")
        if 0 < self._done < self._total:
            parts.append(f"about {(self._total - self._done) / rate:.0f} s left")
        with contextlib.suppress(OSError, ValueError):
            print(", ".join(parts), file=sys.stderr, flush=True)


class Stopped(BaseException):
    """A signal asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}")
        self.number = number


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """End on SIGINT and SIGTERM, and when Snakemake dies: stop asking, flush, free the engines, exit 128 + signal."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        if snakemake := os.environ.get(PARENT):
            threading.Thread(target=_end_with, args=(int(snakemake),), daemon=True).start()
        yield
    except Stopped as stopped:
        with contextlib.suppress(OSError):
            print(
                "stopped; every answer so far is kept, the same command goes on from here", file=sys.stderr, flush=True
            )
        with contextlib.suppress(Exception):
            close_backends()
        os._exit(128 + stopped.number)


def _end_with(snakemake: int) -> None:
    """Send this process SIGTERM once Snakemake, or the shell between it and us, is gone."""
    while os.getppid() == _SHELL and _alive(snakemake):
        time.sleep(WATCH_EVERY)
    os.kill(os.getpid(), signal.SIGTERM)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
