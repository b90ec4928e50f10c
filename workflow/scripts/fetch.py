"""Fetches a model file that isn't shipped into the cache, once, and writes down what it is (rule fetch)."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command
from triagesim.fetch import catalogue, fetch_marker, locate
from triagesim.jsonl import write_json


def print_catalogue() -> None:
    """Every entry with its licence, its size and where it is, or that it isn't there."""
    for name, entry in catalogue().items():
        print(f"{name}: {entry.title}")
        print(f"  label    {entry.label}")
        print(f"  licence  {entry.licence}")
        print(f"  size     {entry.size / 1e6:.0f} MB")
        print(f"  sha256   {entry.sha256}")
        print(f"  origin   {entry.origin}")
        for source in entry.sources:
            print(f"  source   {', '.join(source.commands)}")
        print(f"  cached   {locate(name) or f'no; its place is {entry.path}'}")


def main() -> None:
    """Parse the arguments and fetch."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", metavar="NAME", help="an entry of resources/models/catalogue.yaml")
    what.add_argument("--list", action="store_true", help="print the catalogue and end")
    parser.add_argument(
        "--out", type=Path, metavar="MARKER.json", help="where to write what was fetched; printed unless given"
    )
    parser.add_argument(
        "--optional",
        type=int,
        metavar="ATTEMPT",
        help="the run can do without: if the file can't be had, say so in the marker and end well; which try this is",
    )
    options = parser.parse_args()
    if options.list:
        print_catalogue()
        return
    marker = fetch_marker(options.model, options.optional)
    if options.out:
        write_json(options.out, marker)
    else:
        print(json.dumps(marker, indent=2))


if __name__ == "__main__":
    command(main)
