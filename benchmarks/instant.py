"""Our driver with a backend that answers at once: one measurement, a job on stdin, a result on stdout (JSON)."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from typing import Any, Literal

from dialogue import Call, Pool
from playing import play
from triagesim.requests import CallName, Completion, Request, Usage

#: Purposes of a line that the master writes itself, and whose line it is.
EDITS = {"nurse_edit": "nurse", "patient_edit": "patient"}


def as_call(name: CallName) -> Call:
    """A call of ours as the dialogues know it."""
    kind = "edit" if name.purpose in EDITS else name.purpose
    return Call(name.episode, kind, name.turn, name.step if kind == "nurse" else 0, name.draft)


class Instant:
    """Answers from a pool at the next turn of the loop, as no real backend answers sooner.

    Args:
        keep: how many requests to remember.
    """

    model = "instant"
    local = True
    reads: Literal["messages"] = "messages"
    label: str | None = None
    spare = True

    def __init__(self, keep: int = 0) -> None:
        self.identity: dict[str, Any] = {"model": self.model}
        self._pool = Pool("ours")
        self._keep = keep
        self.kept: list[Request] = []
        self.calls = 0

    async def start(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    async def complete(self, request: Request) -> Completion:
        """The pool's answer."""
        await asyncio.sleep(0)
        self.calls += 1
        if len(self.kept) < self._keep:
            self.kept.append(request)
        return self.answer(request)

    def answer(self, request: Request) -> Completion:
        """What it answers; the same for the same request."""
        text = self._pool.take(as_call(request.name), request.seed, EDITS.get(request.name.purpose, "nurse"))
        return Completion(text, usage=Usage(1000, 100), model="instant")


def main() -> None:
    """Warm up, simulate, report."""
    job = json.load(sys.stdin)
    sample = Instant(keep=10**6)
    _run({**job, "episodes_per_case": 1}, sample)
    started = time.perf_counter()
    for request in sample.kept:
        sample.answer(request)
    alone = (time.perf_counter() - started) / len(sample.kept)
    characters = sum(len(message["content"]) for request in sample.kept for message in request.messages)

    backend = Instant()
    wall, processor = time.perf_counter(), time.process_time()
    statuses = _run(job, backend)
    result = {
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - processor,
        "calls": backend.calls,
        "backend": alone,
        "prompt": characters / len(sample.kept),
        "statuses": statuses,
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    print(json.dumps(result))


def _run(job: dict[str, Any], backend: Instant) -> Counter[str]:
    """Simulate, dropping each episode as it comes; count them by status."""
    with tempfile.TemporaryDirectory() if job["journal"] else nullcontext() as journal:
        return Counter(episode["status"] for episode in play(job, backend, journal))


if __name__ == "__main__":
    main()
