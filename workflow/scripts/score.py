"""Scores the episodes of one file, a row each (rule score)."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command
from triagesim.score_rows import write_scores


def main() -> None:
    """Parse the arguments and score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("episodes", type=Path, help="a .jsonl of episodes")
    parser.add_argument("--out", type=Path, required=True, help="a .csv")
    args = parser.parse_args()
    write_scores(args.episodes, args.out)


if __name__ == "__main__":
    command(main)
