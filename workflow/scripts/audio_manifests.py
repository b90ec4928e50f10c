"""Describes spoken dialogues in the forms that speech tools load: RTTM, TextGrid, Lhotse … (rule audio_manifests)."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command
from triagesim.speech.corpus import read_corpus
from triagesim.speech.manifests import write_manifests


def main() -> None:
    """Parse the arguments and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("manifests", nargs="+", type=Path, metavar="MANIFEST", help="what render_audio.py wrote, shard by shard")
    add("--pool", type=Path, required=True, help="the pooled episodes that were spoken (JSON Lines)")
    add("--out", type=Path, required=True, metavar="DIR", help="the folder of the manifests")
    add("--metadata", type=Path, required=True, metavar="FILE", help="metadata.jsonl in the folder of the audio")
    add("--splits", type=json.loads, required=True, metavar="JSON", help='as {"train": 0.8, "test": 0.2}')
    add("--seed", type=int, default=0, help="of the splits (default: %(default)s)")
    options = parser.parse_args()
    dialogues = read_corpus(options.pool, options.manifests)
    write_manifests(dialogues, options.out, options.metadata, options.splits, options.seed)
    print(f"{len(dialogues)} dialogues described in {options.out}", file=sys.stderr)


if __name__ == "__main__":
    command(main)
