"""Makes the report of a run: one page, and a folder with the data of its figures (rule report)."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command
from triagesim.report import Sources, write_report


def main() -> None:
    """Parse the arguments and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tables", type=Path, nargs="+", required=True, help="of results/metrics: .csv and .json files"
    )
    parser.add_argument("--flow", type=Path, required=True, help="results/cases/flow.json")
    parser.add_argument("--selected", type=Path, required=True, help="results/cases/cases.csv")
    parser.add_argument("--pairings", type=Path, nargs="+", required=True, help="results/pairings/*.json")
    parser.add_argument("--episodes", type=Path, nargs="+", required=True, help="results/episodes/*/*.jsonl")
    parser.add_argument("--pool", type=Path, required=True, help="results/pool.jsonl")
    parser.add_argument("--audio", type=Path, nargs="*", default=[], help="results/audio/manifest-*.jsonl")
    parser.add_argument("--weights", type=Path, nargs="*", default=[], help="results/personas/*.weights.csv")
    parser.add_argument("--out", type=Path, required=True, help="the page; links go from it to results/")
    parser.add_argument("--data", type=Path, required=True, help="a folder beside it for figures, data and dialogues")
    args = parser.parse_args()
    run = (args.tables, args.flow, args.selected, args.pairings, args.episodes)
    sources = Sources(*run, args.pool, args.audio, args.weights)
    write_report(sources, args.out, args.data)


if __name__ == "__main__":
    command(main)
