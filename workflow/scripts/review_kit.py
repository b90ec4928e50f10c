"""Draws dialogues for review and writes the form, the table and the key (rule review_kit)."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command
from triagesim.review.kit import write_kit


def main() -> None:
    """Parse the arguments and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("episodes", type=Path, nargs="+", help=".jsonl files of episodes")
    parser.add_argument("--out-dir", type=Path, required=True)
    parser.add_argument("--sample", type=int, default=50, help="dialogues (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="of these shown twice (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    items = write_kit(args.episodes, args.out_dir, sample=args.sample, repeats=args.repeats, seed=args.seed)
    twice = sum(item.repeat_of is not None for item in items)
    print(
        f"{args.out_dir / 'form.html'}: {len(items) - twice} dialogues, {twice} of them twice; keep key.csv to yourself"
    )


if __name__ == "__main__":
    command(main)
