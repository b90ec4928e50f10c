"""Finds dialogues that are nearly the same as another one of their pairing (rule duplicates)."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command
from triagesim.duplicates import write_duplicates


def main() -> None:
    """Parse the arguments and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help=".jsonl files of episodes")
    parser.add_argument("--out", type=Path, required=True, help="a .csv")
    args = parser.parse_args()
    write_duplicates(args.runs, args.out)


if __name__ == "__main__":
    command(main)
