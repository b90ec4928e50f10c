"""The peer's summary of stored episodes: as ../summing.py, in its own interpreter."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from triagesim import summarize


def main() -> None:
    """Read and summarise."""
    folder = Path(json.load(sys.stdin)["folder"])
    wall, processor = time.perf_counter(), time.process_time()

    def episodes():
        for path in sorted((folder / "episodes").rglob("*.jsonl")):
            with path.open(encoding="utf-8") as file:
                yield from map(json.loads, file)

    shared = summarize(episodes())
    times = time.perf_counter() - wall, time.process_time() - processor
    print(json.dumps({"summary": times, "shared": shared}))


if __name__ == "__main__":
    main()
