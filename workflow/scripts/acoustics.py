"""Measures spoken dialogues (rate, pauses and pitch by trait, speakers apart) and checks each file (rule acoustics)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command
from triagesim.jsonl import write_table


def main() -> None:
    """Parse the arguments and measure; the files with problems are named on stderr."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("manifests", nargs="+", type=Path, metavar="MANIFEST", help="what render_audio.py wrote, shard by shard")
    add("--pool", type=Path, required=True, help="the pooled episodes that were spoken (JSON Lines)")
    add("--out", type=Path, required=True, metavar="CSV", help="what was measured")
    add("--checks", type=Path, required=True, metavar="CSV", help="a row a file")
    add("--seed", type=int, default=0, help="of the intervals (default: %(default)s)")
    options = parser.parse_args()
    from triagesim.speech.acoustics import CHECKS, HEADER, check, measure, rows
    from triagesim.speech.corpus import read_corpus
    from triagesim.speech.sound import read_audio

    measured, checked = [], []
    for dialogue in read_corpus(options.pool, options.manifests):
        audio, rate = read_audio(dialogue.file)
        checked.append(check(dialogue, audio, rate))
        if audio.shape[1] == len(dialogue.audio["channels"]):
            measured.append((dialogue.audio["pairing"], measure(dialogue, audio, rate)))
    write_table(options.out, HEADER, rows(measured, options.seed))
    write_table(options.checks, CHECKS, checked)
    wrong = [row for row in checked if row[-1]]
    print(f"{len(checked)} files checked, {len(wrong)} with problems", file=sys.stderr)
    for row in wrong[:20]:
        print(f"  {row[2]}: {row[-1]}", file=sys.stderr)


if __name__ == "__main__":
    command(main)
