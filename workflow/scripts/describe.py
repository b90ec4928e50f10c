"""Describes the language of a run: fidelity, effects of traits, leaks (rule describe)."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.config import Score
from triagesim.console import command
from triagesim.describing import describe


def main() -> None:
    """Parse the arguments and describe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("language", type=Path, nargs="+", help="the .csv files of rule language")
    parser.add_argument("--leaks", type=Path, nargs="+", required=True, help="their lists of leaks")
    parser.add_argument("--duplicates", type=Path, required=True, help="the .csv of rule duplicates")
    parser.add_argument("--scores", type=Path, nargs="+", default=[], help="the .csv files of rule score")
    parser.add_argument("--score", default="{}", help="config section `score` as JSON; default: %(default)s")
    parser.add_argument("--out-dir", type=Path, required=True)
    args = parser.parse_args()
    options = Score.model_validate_json(args.score)
    describe(args.language, args.leaks, args.duplicates, args.scores, options, args.out_dir)


if __name__ == "__main__":
    command(main)
