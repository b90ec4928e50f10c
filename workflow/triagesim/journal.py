"""Every model answer of a pairing, kept as it came: append-only, safe to kill, the one thing that costs money.

`<folder>/<bucket>/<process>.jsonl`: the bucket is one of 64 by the hash of the case id; every process writes new files
of its own and never reopens one, so a torn last line harms nothing and two jobs on a network file system don't meet.
A line is one of

- an answer: `key` (the hash of the call), `name`, `text`, `finish`, `usage`, `model`; one that ends with `error` is a
  call of the dialogue master that failed for good, which counts only if its episode ended with it;
- a failed try: `call` (its name), `failed` (`triagesim.errors.Kind`, or invalid, truncated: an answer of no use);
- a give-up: `episode`, `gave_up` (its epoch, which the next run doesn't use again; null where no answer was to blame)
  and `why`;
- an end: `episode`, `done` (its status), `spec`, `usage`: what `triagesim status` counts.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import math
import os
import re
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from triagesim.environment import note_gain
from triagesim.errors import StopRun
from triagesim.requests import CallName, Completion, Usage
from triagesim.shards import bucket

_as_json = msgspec.json.Encoder().encode
_TOKEN = secrets.token_hex(4)
_numbers = itertools.count(1)
#: Seconds between two flushes to the disk itself: a power cut can lose that much, a killed process nothing.
SYNC_EVERY = 1.0


def process_name() -> str:
    """What is in the names of this process's files and of no other's."""
    return f"{socket.gethostname()[:32]}-{os.getpid()}-{_TOKEN}"


def _name_in(folder: Path) -> str:
    """The name of a new file, which is behind all names that are there, also where the clock went back meanwhile."""
    there = [int(found[0]) for path in folder.glob("*.jsonl") if (found := _STAMP.match(path.name))]
    stamp = max([int(time.time()), *(1 + one for one in there)])
    return f"{stamp:010d}-{process_name()}-{next(_numbers)}.jsonl"


@dataclass
class Tally:
    """What passed through a journal since its process began.

    Attributes:
        asked, replayed: answers asked for, and answers found in it.
        tokens, cost: of the answers asked for; US dollars.
        failures: failed tries by kind.
    """

    asked: int = 0
    replayed: int = 0
    tokens: int = 0
    cost: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)


class Journal:
    """The answers of one pairing.

    Args:
        folder: where they are kept; None keeps nothing.
        case_ids: whose answers to load.
        tally: counts what passes.
        spec: of the episodes that are played; another specification's ends don't count.
    """

    def __init__(
        self, folder: Path | None, case_ids: Iterable[str] = (), tally: Tally | None = None, spec: str = ""
    ) -> None:
        self._tally = tally or Tally()
        self._folder = folder
        self._spec = spec
        self._files: dict[str, _File] = {}
        self._answers: dict[str, Completion] = {}
        self._failures: dict[str, tuple[str, Completion]] = {}
        self._epochs: dict[str, int] = {}
        self._done: dict[str, set[str]] = {}
        self._gained = False
        self._closing = threading.Event()
        self._syncing: threading.Thread | None = None
        if folder is not None:
            for name in sorted({bucket(case_id) for case_id in case_ids}):
                for record in read_records(folder / name):
                    self._remember(record)

    def find(self, key: str) -> Completion | None:
        """The stored answer of a call, if it was ever answered.

        A failure (finish reason `error`) of an episode that never ended is none: the call is asked again.
        """
        found = self._answers.get(key)
        if found is None and key in self._failures:
            episode, failure = self._failures[key]
            ended = any(end.endswith(f" {self._spec}") for end in self._done.get(episode, ()))
            found = failure if ended else None
        self._tally.replayed += found is not None
        return found

    def keep(self, case_id: str, key: str, name: CallName, completion: Completion) -> None:
        """Store an answer, or a failure that stands for one; it is with the operating system before this returns."""
        self._tally.asked += completion.finish_reason != "error"
        self._tally.tokens += completion.usage.prompt + completion.usage.completion
        self._tally.cost += completion.usage.cost
        self._append(
            case_id,
            {
                "key": key,
                "name": str(name),
                "text": completion.text,
                "finish": completion.finish_reason,
                "usage": completion.usage,
                "model": completion.model,
            },
        )
        if completion.finish_reason != "error" and not self._gained and self._folder is not None:
            self._gained = True
            note_gain()

    def note_failure(self, case_id: str, name: CallName, kind: str) -> None:
        """Note a try that gave no answer, or an answer of no use."""
        self._tally.failures[kind] += 1
        self._append(case_id, {"call": str(name), "failed": kind})

    def epoch(self, episode: str) -> int:
        """How often the episode was given up."""
        return self._epochs.get(episode, 0)

    def give_up(self, case_id: str, episode: str, why: str, *, anew: bool) -> None:
        """Note that the episode ended in an error; `anew`: the next run doesn't use its answers so far."""
        self._append(case_id, {"episode": episode, "gave_up": self.epoch(episode) if anew else None, "why": why})

    def finish(self, case_id: str, episode: str, status: str, spec: str, usage: dict[str, Any]) -> None:
        """Note that the episode ended; once is enough."""
        if f"{status} {spec}" not in self._done.get(episode, ()):
            self._append(case_id, {"episode": episode, "done": status, "spec": spec, "usage": usage})

    def close(self) -> None:
        """Flush to the disk and close."""
        self._closing.set()
        if self._syncing is not None:
            self._syncing.join()
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _sync(self) -> None:
        """Flush to the disk now and then, in a thread: the disk may be slow, and no call waits for it."""
        while not self._closing.wait(SYNC_EVERY):
            for file in list(self._files.values()):
                file.sync()

    def _remember(self, record: dict[str, Any]) -> None:
        if "key" in record:
            usage = Usage(*record["usage"])
            answer = Completion(record["text"], record["finish"], usage, record["model"])
            if record["finish"] == "error":
                self._failures[record["key"]] = (record["name"].split("/")[0], answer)
            else:
                self._answers.setdefault(record["key"], answer)
        elif record.get("gave_up") is not None:
            self._epochs[record["episode"]] = max(self.epoch(record["episode"]), record["gave_up"] + 1)
        elif "done" in record:
            self._done.setdefault(record["episode"], set()).add(f"{record['done']} {record['spec']}")

    def _append(self, case_id: str, record: dict[str, Any]) -> None:
        if self._folder is None:
            return
        name = bucket(case_id)
        try:
            if self._syncing is None:
                self._syncing = threading.Thread(target=self._sync, name="journal", daemon=True)
                self._syncing.start()
            if name not in self._files:
                self._files[name] = _File(self._folder / name)
            self._files[name].append(_as_json(record) + b"\n")
        except OSError as error:
            if name in self._files:  # what follows a torn line in a file would be lost with it
                self._files.pop(name).close()
            raise StopRun(
                f"{self._folder}: an answer can't be kept ({error.strerror}); free some space there"
            ) from None


#: The keys that a record of each kind has at least, and what they hold.
_KINDS: tuple[dict[str, Any], ...] = (
    {"key": str, "name": str, "text": str, "finish": str, "usage": list, "model": str},
    {"call": str, "failed": str},
    {"episode": str, "gave_up": int | None},
    {"episode": str, "done": str, "spec": str},
)
#: Seconds since 1970 when a file was begun.
_STAMP = re.compile(r"\d{1,10}(?=-)")


class _File:
    """One file of one process: each line is one `write`, so a kill can only tear the last one."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._descriptor = os.open(folder / _name_in(folder), flags, 0o644)
        self._dirty = False

    def append(self, data: bytes) -> None:
        written = os.write(self._descriptor, data)
        while written < len(data):
            written += os.write(self._descriptor, data[written:])
        self._dirty = True

    def sync(self) -> None:
        if self._dirty:
            self._dirty = False
            with contextlib.suppress(OSError):
                os.fsync(self._descriptor)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.fsync(self._descriptor)
        os.close(self._descriptor)


def read_records(folder: Path) -> Iterator[dict[str, Any]]:
    """Every whole record below a folder, oldest file first; what a kill tore off is passed over."""
    for path in sorted(folder.glob("**/*.jsonl")):
        with path.open("rb") as file:
            yield from records_in(line for line in file if line.endswith(b"\n"))


def records_in(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The records among lines; a line that is none is passed over."""
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            if isinstance(record, dict) and _is_sound(record):
                yield record


def _is_sound(record: dict[str, Any]) -> bool:
    """Whether it is a record of a kind: a journal may hold lines of somebody else."""
    kinds = [kind for kind in _KINDS if record.keys() >= kind.keys()]
    if not kinds or not all(isinstance(record[key], form) for key, form in kinds[0].items()):
        return False
    usage = record["usage"] if "key" in kinds[0] else [0] * 5
    return len(usage) == 5 and all(isinstance(number, int | float) and 0 <= number < math.inf for number in usage)


@contextlib.contextmanager
def shard_lock(path: Path, patience: float = 30.0) -> Iterator[None]:
    """Hold a shard: two live drivers never ask for the same one.

    Args:
        patience: seconds to wait for another driver that is just ending.

    Raises:
        StopRun: another driver holds it; the text names it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + patience
    try:
        while True:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
                    raise StopRun(
                        f"{path}: another driver works on this shard ({holder or 'unknown'}); wait for it or stop it",
                        mark=False,
                    ) from None
                time.sleep(0.1)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
