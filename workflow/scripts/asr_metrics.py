"""Compares what was heard with what was said: word errors, clinical details, the level given (rule asr_metrics)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command


def main() -> None:
    """Parse the arguments and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("heard", nargs="+", type=Path, help="what transcribe.py wrote, shard by shard")
    add("--pool", type=Path, required=True, help="the pooled episodes that were spoken (JSON Lines)")
    add("--out", type=Path, required=True, metavar="CSV", help="the table")
    add("--seed", type=int, default=0, help="of the intervals (default: %(default)s)")
    options = parser.parse_args()
    from triagesim.speech.heard import write_metrics

    write_metrics(options.pool, options.heard, options.out, options.seed)


if __name__ == "__main__":
    command(main)
