"""Reads filled-in review files and computes answers, agreement and rewrites (rule review)."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command


def main() -> None:
    """Parse the arguments, compute, and print the agreement of the raters."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("returned", type=Path, nargs="*", help="filled-in files")
    parser.add_argument("--folder", type=Path, help="where they were looked for")
    parser.add_argument("--key", type=Path, required=True, help="the kit's key.csv")
    parser.add_argument("--episodes", type=Path, nargs="+", required=True, help=".jsonl files that hold its dialogues")
    parser.add_argument("--out-dir", type=Path, required=True)
    args = parser.parse_args()
    from triagesim.review.results import closing, write_results

    reviews = write_results(args.returned, args.key, args.episodes, args.out_dir, args.folder)
    raters = {rater for rater, _ in reviews.all}
    print(f"{len(raters)} rater(s), {len(reviews.first)} dialogues\n{closing(args.out_dir)}")


if __name__ == "__main__":
    command(main)
