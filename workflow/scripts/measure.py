"""Task completion, drop-off and rewrites of a shard's episodes (rule measure)."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command
from triagesim.measured import write_measures


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("episodes", type=Path, help="a shard of episodes")
    parser.add_argument("--verdicts", type=Path, help="the shard's verdicts, from rule judge_completion")
    parser.add_argument("--reviews", type=Path, help="a review file: lines as clinicians would have them")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    write_measures(args.episodes, args.verdicts, args.reviews, args.out)


if __name__ == "__main__":
    command(main)
