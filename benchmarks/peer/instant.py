"""The peer's driver with a backend that answers at once: as ../instant.py, in its own interpreter."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import Counter
from typing import Any

from dialogue import Call, Pool
from places import Places, episode_ids
from playing import play


class Instant:
    """Answers every round from a pool.

    Args:
        episodes: ids of all that will be asked for.
        keep: how many requests to remember, at least.
    """

    model = "instant"
    batched = True

    def __init__(self, episodes: list[str], keep: int = 0) -> None:
        self._pool = Pool("peer")
        self._places = Places(episodes)
        self._keep = keep
        self.kept: list[tuple[Call, Any]] = []
        self.calls = 0

    def complete(self, requests: list[Any]) -> list[str]:
        """The pool's answers."""
        self.calls += len(requests)
        return [self._text(request) for request in requests]

    def _text(self, request: Any) -> str:
        call = self._places.find(request)
        if len(self.kept) < self._keep:
            self.kept.append((call, request))
        speaker = "patient" if request.output_type.__name__ == "PatientLineEdit" else "nurse"
        return self._pool.take(call, request.seed, speaker)


def main() -> None:
    """Warm up, simulate, report; or, if the job wants them, only say what the prompts were."""
    job = json.load(sys.stdin)
    first = {**job, "episodes_per_case": 1}
    sample = Instant(episode_ids(first), keep=10**6)
    _run(first, sample)
    if job.get("prompts"):
        print(json.dumps([[call, request.messages] for call, request in sample.kept]))
        return
    again = Instant(episode_ids(first))
    requests = [request for _, request in sample.kept]
    started = time.perf_counter()
    again.complete(requests)
    alone = (time.perf_counter() - started) / len(requests)
    characters = sum(len(message["content"]) for request in requests for message in request.messages)

    backend = Instant(episode_ids(job))
    wall, processor = time.perf_counter(), time.process_time()
    statuses = _run(job, backend)
    result = {
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - processor,
        "calls": backend.calls,
        "backend": alone,
        "prompt": characters / len(requests),
        "statuses": statuses,
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    print(json.dumps(result))


def _run(job: dict[str, Any], backend: Instant) -> Counter[str]:
    """Simulate, dropping each episode as it comes; count them by status."""
    return Counter(episode["status"] for episode in play(job, backend))


if __name__ == "__main__":
    main()
