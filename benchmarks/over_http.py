"""One measurement of our driver against a server; a job on stdin, a result on stdout (JSON)."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time

from playing import play
from triagesim.backends.hosted import OpenRouter
from triagesim.engine import loop, ready


def main() -> None:
    """Simulate and report."""
    job = json.load(sys.stdin)
    backend = OpenRouter("bench", api_key="none", base_url=job["url"], max_workers=job["workers"])
    asyncio.run_coroutine_threadsafe(ready(backend), loop()).result()  # the peer's client is made before, too
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as journal:
        episodes = list(play(job, backend, journal))
    wall = time.perf_counter() - started
    calls = sum(role["calls"] for episode in episodes for role in episode["usage"].values())
    print(json.dumps({"wall": wall, "calls": calls, "statuses": [episode["status"] for episode in episodes]}))


if __name__ == "__main__":
    main()
