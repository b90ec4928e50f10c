"""The peer's driver, with an engine in another process: each round goes out on stdout and comes back on stdin."""

from __future__ import annotations

import json
import sys
from typing import Any

from places import Places, episode_ids
from playing import play


class OnEngine:
    """Sends a round as one line and waits for its answers.

    Args:
        episodes: ids of all that will be asked for.
    """

    model = "engine"
    batched = True

    def __init__(self, episodes: list[str]) -> None:
        self._places = Places(episodes)

    def complete(self, requests: list[Any]) -> list[str]:
        """The answers, in order."""
        asked = []
        for request in requests:
            speaker = "patient" if request.output_type.__name__ == "PatientLineEdit" else "nurse"
            asked.append([self._places.find(request), speaker, request.messages])
        print(json.dumps(asked), flush=True)
        answers: list[str] = json.loads(sys.stdin.readline())
        return answers


def main() -> None:
    """Simulate; the last line says how the episodes ended."""
    job = json.loads(sys.stdin.readline())
    statuses = [episode["status"] for episode in play(job, OnEngine(episode_ids(job)))]
    print(json.dumps({"statuses": statuses}), flush=True)


if __name__ == "__main__":
    main()
