"""Writes episodes as a dataset: three tables by split, with a card and a Croissant description (rule export)."""

import argparse
import json
import sys
from pathlib import Path
from typing import get_args

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.config import Dataset
from triagesim.console import command
from triagesim.dataset import export
from triagesim.governance import Provenance


def main() -> None:
    """Parse the arguments, write, and print the rows by split."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("episodes", type=Path, nargs="+", help=".jsonl files of episodes, such as the pool")
    parser.add_argument("--out-dir", type=Path, required=True)
    parser.add_argument("--salt", type=Path, required=True, help="the secret of the pseudonyms; made if it isn't there")
    parser.add_argument("--audio", type=Path, nargs="*", default=[], help="manifests of recordings")
    parser.add_argument("--splits", type=json.loads, default=Dataset().splits, help="share by name, as JSON")
    parser.add_argument("--seed", type=int, default=0, help="of the splits")
    parser.add_argument("--chosen", action="store_true", help="the episodes are a pool, chosen for their right level")
    parser.add_argument("--include-credentialed", action="store_true", help="also text that isn't open")
    parser.add_argument("--provenance", choices=get_args(Provenance), help="of cases that don't say it themselves")
    args = parser.parse_args()
    config = Dataset(splits=args.splits)
    contents = export(
        args.episodes,
        args.out_dir,
        splits=config.splits,
        seed=args.seed,
        salt=args.salt,
        audio=args.audio,
        include_credentialed=args.include_credentialed,
        provenance=args.provenance,
        pool=args.chosen,
    )
    for split, patients, cases, dialogues, lines, vitals in contents.by_split():
        print(f"{split}: {dialogues} dialogues of {patients} patients ({cases} cases), {lines} lines, {vitals} vitals")


if __name__ == "__main__":
    command(main)
