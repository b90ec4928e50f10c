"""Writes where a run's results come from into them, as an RO-Crate (rule manifest)."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command
from triagesim.provenance import write_crate


def main() -> None:
    """Parse the arguments and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="the results of a finished run")
    parser.add_argument("--snakemake", type=Path, default=Path(".snakemake"), help="Snakemake's folder, for the times")
    args = parser.parse_args()
    write_crate(args.results, args.snakemake, Path(__file__).resolve().parents[2])


if __name__ == "__main__":
    command(main)
