"""One measurement of the peer's driver against a server; as ../over_http.py, in its own interpreter."""

from __future__ import annotations

import json
import sys
import time

from playing import play
from triagesim import OpenRouter


def main() -> None:
    """Simulate and report."""
    job = json.load(sys.stdin)
    backend = OpenRouter("bench", api_key="none", base_url=job["url"], max_workers=job["workers"])
    started = time.perf_counter()
    episodes = list(play(job, backend))
    wall = time.perf_counter() - started
    statuses = [episode["status"] for episode in episodes]
    print(json.dumps({"wall": wall, "calls": backend.usage["calls"], "statuses": statuses}))


if __name__ == "__main__":
    main()
