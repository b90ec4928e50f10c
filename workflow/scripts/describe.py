"""Describes the language of a run: fidelity, effects of traits, leaks (rule describe)."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.config import Score
from triagesim.console import command


def main() -> None:
    """Parse the arguments and describe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("language", type=Path, nargs="+", help="results/language/<pairing>/<shard>.csv")
    parser.add_argument("--leaks", type=Path, nargs="+", required=True, help="results/leaks/<pairing>/<shard>.csv")
    parser.add_argument("--duplicates", type=Path, required=True, help="results/metrics/duplicates.csv")
    parser.add_argument(
        "--scores",
        type=Path,
        nargs="+",
        default=[],
        help="results/scores/<pairing>/<shard>.csv; needed to draw patients",
    )
    said = "config section `score` as JSON; default: its defaults"
    parser.add_argument("--score", type=Score.model_validate_json, default=Score(), help=said)
    parser.add_argument("--out-dir", type=Path, required=True)
    args = parser.parse_args()
    from triagesim.describing import describe

    describe(args.language, args.leaks, args.duplicates, args.scores, args.score, args.out_dir)


if __name__ == "__main__":
    command(main)
