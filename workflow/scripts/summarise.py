"""Summarises scores by pairing, with the tables of agreement; every case must be accounted for (rule summarise)."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.config import Score
from triagesim.console import command
from triagesim.summary import summarise


def main() -> None:
    """Parse the arguments and summarise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scores", type=Path, nargs="+", help="results/scores/<pairing>/<shard>.csv")
    parser.add_argument("--pairings", type=Path, nargs="+", required=True, help="results/pairings/*.json")
    parser.add_argument("--selected", type=Path, required=True, help="results/cases/cases.csv")
    parser.add_argument("--usage", type=Path, nargs="+", default=[], help="results/usage/<pairing>/<shard>.json")
    parser.add_argument("--measures", type=Path, nargs="+", default=[], help="results/measures/<pairing>/<shard>.csv")
    parser.add_argument("--judge", type=Path, help="results/completion/judge.json, where completion was judged")
    said = "config section `score` as JSON; default: its defaults"
    parser.add_argument("--score", type=Score.model_validate_json, default=Score(), help=said)
    parser.add_argument("--out-dir", type=Path, required=True)
    args = parser.parse_args()
    run = (args.scores, args.pairings, args.selected, args.usage, args.measures)
    summarise(*run, args.score, args.out_dir, args.judge)


if __name__ == "__main__":
    command(main)
