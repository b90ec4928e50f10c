"""Pools the episodes whose nurse reached the ground-truth level and says what they cover (rule select_pool)."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command
from triagesim.pool import select_pool, write_coverage


def main() -> None:
    """Parse the arguments, select, and print the coverage by acuity and by pairing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help=".jsonl files of episodes")
    parser.add_argument("--out", type=Path, required=True, help="the pool, a .jsonl")
    parser.add_argument("--coverage", type=Path, help="the printed counts as a .csv")
    parser.add_argument("--no-flags", action="store_true", help="drop episodes with a flagged line")
    parser.add_argument("--nurse-ended", action="store_true", help="drop episodes that ran out of questions")
    args = parser.parse_args()
    coverage = select_pool(args.runs, args.out, no_flags=args.no_flags, nurse_ended=args.nurse_ended)
    if args.coverage:
        write_coverage(coverage, args.coverage)
    print(coverage)


if __name__ == "__main__":
    command(main)
