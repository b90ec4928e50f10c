"""Our summary and tables of stored episodes: one measurement, a job on stdin, a result on stdout (JSON)."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))

from triagesim.agreement_tables import Graded, agreement
from triagesim.config import Score
from triagesim.score_rows import read_scored, read_scores, write_scores
from triagesim.scoring import summarize
from triagesim.summary import summarise


def main() -> None:
    """Summarise; then score and summarise as the rules do, and time one pairing's measures alone."""
    folder = Path(json.load(sys.stdin)["folder"])
    episodes = sorted((folder / "episodes").rglob("*.jsonl"))
    scores = [folder / "scores" / path.relative_to(folder / "episodes").with_suffix(".csv") for path in episodes]
    pairings = sorted((folder / "pairings").glob("*.json"))
    times: dict[str, tuple[float, float]] = {}

    with timed(times, "summary"):
        shared = summarize(episode for path in episodes for episode in read_scored(path))
    with timed(times, "rows"):
        for path, out in zip(episodes, scores, strict=True):
            write_scores(path, out)
    with timed(times, "tables"):
        summarise(scores, pairings, folder / "cases.csv", [], [], Score(), folder / "metrics")
    graded = Graded(read_scores(scores[:1]), Score())
    with timed(times, "measures"):
        list(takewhile(lambda row: row[1] == "all", agreement("first", graded)))
    print(json.dumps({**times, "shared": shared}))


@contextmanager
def timed(times: dict[str, tuple[float, float]], name: str) -> Iterator[None]:
    """Note the wall and the CPU seconds of what is done inside."""
    wall, processor = time.perf_counter(), time.process_time()
    yield
    times[name] = time.perf_counter() - wall, time.process_time() - processor


if __name__ == "__main__":
    main()
