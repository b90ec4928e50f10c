"""Measures the language of the episodes of one file, a row each, and lists what leaked (rule language)."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command
from triagesim.language import write_language


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("episodes", type=Path, help="a .jsonl of episodes")
    parser.add_argument("--out", type=Path, required=True, help="a .csv, a row an episode")
    parser.add_argument("--leaks", type=Path, required=True, help="a .csv, a row a leak")
    args = parser.parse_args()
    write_language(args.episodes, args.out, args.leaks)


if __name__ == "__main__":
    command(main)
