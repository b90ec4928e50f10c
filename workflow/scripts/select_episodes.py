"""Pools the episodes whose nurse reached the ground-truth level and says what they cover (rule select_pool)."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.audit import write_audit
from triagesim.config import Pool
from triagesim.console import command
from triagesim.pool import select_pool, write_coverage


def at_least_one(text: str) -> int:
    """A whole number from 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, found {text}")
    return number


def main() -> None:
    """Parse the arguments, select, and print the coverage by acuity and by pairing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help=".jsonl files of episodes")
    parser.add_argument("--out", type=Path, required=True, help="the pool, a .jsonl")
    parser.add_argument("--coverage", type=Path, help="the printed counts as a .csv")
    parser.add_argument("--audit", type=Path, help="what the selection does to the mix of personas, a .csv")
    parser.add_argument("--no-flags", action="store_true", help="drop episodes with a flagged line")
    parser.add_argument("--nurse-ended", action="store_true", help="drop episodes that ran out of questions")
    parser.add_argument("--per-level", type=at_least_one, metavar="N", help="at most N episodes of each level")
    parser.add_argument("--per-case", type=at_least_one, metavar="N", help="at most N episodes of each case; 1: one")
    parser.add_argument(
        "--balanced",
        choices=("none", "quota", "weights"),
        default="none",
        help="quota: as many of each level; weights: a key that gives the pool the run's mix of personas",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the choice within a quota; default: %(default)s")
    args = parser.parse_args()
    options = Pool(
        no_flags=args.no_flags,
        nurse_ended=args.nurse_ended,
        per_level=args.per_level,
        per_case=args.per_case,
        balanced=args.balanced,
        seed=args.seed,
    )
    selection = select_pool(args.runs, args.out, options)
    if args.coverage:
        write_coverage(selection, args.coverage)
    if args.audit:
        kept = [why is None for why in selection.left_out]
        write_audit(selection.members, kept, selection.weights, args.audit)
    print(selection)


if __name__ == "__main__":
    command(main)
