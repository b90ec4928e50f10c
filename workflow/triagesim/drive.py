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
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from triagesim.cases import Case
from triagesim.engine import close_backends
from triagesim.environment import GAINED, PARENT
from triagesim.episode import Setup
from triagesim.errors import InputError, TriageSimError
from triagesim.governance import notice, private_files
from triagesim.journal import Tally, shard_lock
from triagesim.jsonl import dumps, read_lines, write_json, write_jsonl, write_text
from triagesim.limits import Limits
from triagesim.simulation import run
from triagesim.temporaries import naming
from triagesim.usage import counted, spent_on

_BEGINNING = b'{"episode_id":'
#: Who started this process; read at once, before it can be gone.
_SHELL = os.getppid()
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
#: Seconds that the engines have to end after a signal; the process is gone in under 10.
CLOSE_WITHIN = 8.0
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
        usage: where to write what the journal's answers took.
    """

    jobs: list[tuple[Case, int]]
    setup: Setup
    out: Path
    journal: Path
    title: str
    concurrency: int = 64
    max_error_rate: float = 0.0
    limits: Limits = field(default_factory=Limits)
    usage: Path | None = None

    @property
    def names(self) -> list[str]:
        """The episodes' ids."""
        return [f"{case.case_id}-{number}" for case, number in self.jobs]

    @property
    def provenances(self) -> set[str]:
        """Where the cases come from, as far as it is known."""
        return {case.provenance for case, _ in self.jobs if case.provenance is not None}


def write_shards(plans: list[Plan]) -> None:
    """Simulate the jobs of one shard or several and write each shard in order, whole or not at all.

    Several share engines and `concurrency`: no engine waits for the last episode of a shard. A shard is written as soon
    as its last episode is done, whatever becomes of the others.

    Args:
        plans: of one pairing, alike but for `jobs`, `out`, `title` and `usage`.

    Raises:
        TooManyErrors: in a shard, more than `max_error_rate` of them failed; that one isn't written.
        StopRun: from a call, or another driver holds one of the shards.
    """
    with contextlib.ExitStack() as held:
        for plan in plans:
            held.enter_context(_alone(plan))
        one, jobs = plans[0], [job for plan in plans for job in plan.jobs]
        title = one.title if len(plans) == 1 else f"{one.title} and {len(plans) - 1} more"
        shard_of = {name: number for number, plan in enumerate(plans) for name in plan.names}
        done: list[dict[str, dict[str, Any]]] = [{} for _ in plans]
        problems = [problem for plan in plans if not plan.jobs and (problem := _write(plan, {}))]
        progress = Progress(title, len(jobs), one.limits.tally)
        with one.limits.marking(one.title), contextlib.closing(_episodes(one, jobs)) as episodes:
            for episode in progress.watch(episodes):
                number = shard_of[episode["episode_id"]]
                done[number][episode["episode_id"]] = episode
                if len(done[number]) == len(plans[number].jobs):
                    problems.append(_write(plans[number], done[number]))
                    done[number] = {}
        if any(problems):
            raise TooManyErrors("\n".join(filter(None, problems)))


def _write(plan: Plan, done: dict[str, dict[str, Any]]) -> str:
    """Write a shard whose episodes are all done; what is wrong if it isn't written, else nothing."""
    if plan.usage is not None:
        write_json(plan.usage, spent_on(plan.journal, [case.case_id for case, _ in plan.jobs], plan.names))
    failed = [episode for episode in done.values() if episode["status"] == "error"]
    problem = too_many(failed, len(plan.jobs), plan.max_error_rate, plan.title, "failed")
    if not problem:
        write_jsonl(plan.out, [done[name] for name in plan.names])
    return problem


def too_many(failed: list[dict[str, Any]], count: int, most: float, title: str, what: str) -> str:
    """The list of the episodes that failed, if they are more than a share `most` of all; else nothing."""
    if not failed or len(failed) / count <= most:
        return ""
    listed = "\n".join(f"  {episode['episode_id']}: {episode['error']}" for episode in failed)
    return (
        f"{title}: {len(failed)} of {count} episodes {what}, more than max_error_rate={most:g}. All other answers are "
        f"kept; the same command asks these anew.\n{listed}"
    )


def append_episodes(plan: Plan) -> list[dict[str, Any]]:
    """Simulate what `plan.out` doesn't hold yet, and append each episode as it finishes; return the failed ones.

    Failed episodes go to `<out>.errors.jsonl`, and the next run asks them anew.

    Raises:
        InputError: the file was made by another specification; the text says what differs.
    """
    with _alone(plan):
        present = _present(plan)
        jobs = [(case, number) for case, number in plan.jobs if f"{case.case_id}-{number}" not in present]
        if present:
            print(f"{plan.title}: {len(present)} episodes are there already, {len(jobs)} to go", file=sys.stderr)
        write_json(plan.journal / "specification.json", plan.setup.specification)
        plan.out.parent.mkdir(parents=True, exist_ok=True)
        if plan.provenances - {"synthetic"}:
            write_text(notice_path(plan.out), notice(plan.provenances))
        failed: dict[str, dict[str, Any]] = {}
        progress = Progress(plan.title, len(jobs), plan.limits.tally)
        episodes = _episodes(plan, jobs)
        with (
            _keeping_failed(plan, present, failed),
            plan.limits.marking(plan.title),
            naming(plan.out),
            plan.out.open("a", encoding="utf-8", newline="") as file,
            contextlib.closing(episodes),
        ):
            for episode in progress.watch(episodes):
                if episode["status"] == "error":
                    failed[episode["episode_id"]] = episode
                else:
                    file.write(dumps(episode) + "\n")
                    file.flush()
                    present.add(episode["episode_id"])
        return list(failed.values())


@contextlib.contextmanager
def _alone(plan: Plan) -> Iterator[None]:
    """Be the one driver of this output, and keep its files from others where its cases aren't open data."""
    with (
        private_files(plan.provenances),
        shard_lock(plan.journal / "locks" / f"{plan.out.stem}.lock"),
    ):
        yield


def _episodes(plan: Plan, jobs: list[tuple[Case, int]]) -> Generator[dict[str, Any]]:
    return run(jobs, plan.setup, plan.journal, plan.concurrency, plan.limits)


def errors_path(out: Path) -> Path:
    """`run.errors.jsonl` for `run.jsonl`."""
    return out.with_name(f"{out.name.removesuffix('.jsonl')}.errors.jsonl")


def notice_path(out: Path) -> Path:
    """`run.NOTICE.txt` for `run.jsonl`: the terms of the data, where there are any."""
    return out.with_name(f"{out.name.removesuffix('.jsonl')}.NOTICE.txt")


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
    return f" ({'; '.join(_differences(old, json.loads(dumps(plan.setup.specification))))})"


def _differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """What differs between two specifications, key by key."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _differences(old.get(key), new.get(key), f"{where}.{key}" if where else key)
    elif old != new:
        yield f"{where}: {dumps(old)}, now {dumps(new)}"


@contextlib.contextmanager
def _keeping_failed(plan: Plan, done: set[str], failed: dict[str, dict[str, Any]]) -> Iterator[None]:
    """Write the failed episodes down, however the run ends; those of an earlier run that weren't asked anew stay."""
    path = errors_path(plan.out)
    before = [episode for _, episode in read_lines(path)] if path.exists() else []
    try:
        yield
    finally:
        left = [episode for episode in before if episode.get("spec") == plan.setup.spec]
        kept = {episode["episode_id"]: episode for episode in left if episode["episode_id"] not in done} | failed
        if kept:
            write_jsonl(path, kept.values())
        else:
            path.unlink(missing_ok=True)


class Progress:
    """A line now and then: episodes done, rate, answers, tokens, money, failed tries, time left."""

    def __init__(self, title: str, total: int, tally: Tally) -> None:
        self._tally = tally
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
        tally, rate = self._tally, self._done / max(time.monotonic() - self._began, 1e-9)
        parts = [f"{self._title}: {self._done}/{self._total} episodes"]
        if self._total == 0:
            parts = [f"{self._title}: nothing to do here"]
        if self._done:
            parts.append(f"{60 * rate:.1f}/min")
        if tally.asked or tally.replayed:
            parts.append(f"{tally.asked + tally.replayed:,} answers ({tally.replayed:,} from the journal)")
        if tally.tokens:
            parts.append(f"{tally.tokens:,} tokens")
        if tally.cost:
            parts.append(f"{tally.cost:.2f} US dollars")
        parts += counted(tally.failures)
        if self._failed:
            parts.append(f"{self._failed} failed")
        if 0 < self._done < self._total:
            parts.append(f"about {(self._total - self._done) / rate:.0f} s left")
        with contextlib.suppress(OSError, ValueError):
            print(", ".join(parts), file=sys.stderr, flush=True)


class Stopped(BaseException):
    """A signal asked this process to end, or its time is over."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"stopped with exit code {exit_code}")
        self.exit_code = exit_code


#: What a process ends with whose time limit is over: try again later (EX_TEMPFAIL in sysexits.h).
OUT_OF_TIME = 75


@contextlib.contextmanager
def stoppable(time_limit: float | None = None) -> Iterator[None]:
    """End on SIGINT and SIGTERM, when Snakemake dies and when the time is over: stop asking, flush, free the engines.

    The exit code is 128 + the signal's number, or `OUT_OF_TIME`.

    Args:
        time_limit: seconds from now.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(OUT_OF_TIME if number == signal.SIGALRM else 128 + number)

    try:
        for number in _SIGNALS:
            signal.signal(number, stop)
        if time_limit is not None:
            signal.setitimer(signal.ITIMER_REAL, max(time_limit, 1e-3))
        if snakemake := os.environ.get(PARENT):
            threading.Thread(target=_end_with, args=(int(snakemake),), daemon=True).start()
        try:
            yield
        except Stopped:
            raise
        except BaseException:
            if GAINED in os.environ:  # a further job would meet the same error
                Path(os.environ[GAINED]).unlink(missing_ok=True)
            _finish()
            raise
        _finish()
    except Stopped as stopped:
        why = "the time limit is over" if stopped.exit_code == OUT_OF_TIME else "stopped"
        with contextlib.suppress(OSError):
            print(
                f"{why}; every answer so far is kept, the same command goes on from here", file=sys.stderr, flush=True
            )
        with contextlib.suppress(Exception):
            close_backends(CLOSE_WITHIN)
        os._exit(stopped.exit_code)


def _finish() -> None:
    """End the engines while signals are still heard; the time limit no longer counts."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    close_backends()


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
