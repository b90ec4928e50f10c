"""Speak pooled dialogues: a two-channel FLAC file each (nurse left, patient right), and a manifest of them."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command
from triagesim.speech.engine import choose_engine
from triagesim.speech.render import render_pool


def shard(text: str) -> tuple[int, int]:
    """`2-of-4` as (2, 4)."""
    match = re.fullmatch(r"([1-9]\d*)-of-([1-9]\d*)", text)
    if match is None or int(match[1]) > int(match[2]):
        raise argparse.ArgumentTypeError(f"expected i-of-n with i from 1 to n, such as 1-of-4, found {text!r}")
    return int(match[1]), int(match[2])


def main() -> None:
    """Parse the arguments and render; the progress is on stderr."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--pool", type=Path, required=True, help="pooled episodes (JSON Lines)")
    add("--out", type=Path, required=True, metavar="MANIFEST", help="the manifest; audio goes to dialogues/ beside it")
    add("--store", type=Path, required=True, metavar="DIR", help="spoken lines, kept so that none is rendered twice")
    add("--engine", default="espeak", help="speech engine (default: %(default)s)")
    add(
        "--fetched", nargs="*", type=Path, default=[], metavar="MARKER.json", help="what fetch.py wrote about its files"
    )
    add("--fallback", metavar="NAME", help="the engine that speaks if those say that the files can't be had")
    add("--pairings", nargs="+", metavar="NAME", help="only these pairings (default: all)")
    add("--max-dialogues", type=int, metavar="N", help="only the N shortest of the whole pool (default: all)")
    add("--shard", type=shard, default=(1, 1), metavar="I-of-N", help="one part of them (default: 1-of-1)")
    options = parser.parse_args()
    if options.max_dialogues is not None and options.max_dialogues < 0:
        parser.error("argument --max-dialogues: expected 0 or more")
    engine, why = choose_engine(options.engine, options.fetched, options.fallback)
    if why:
        print(f"warning: {engine.name} speaks: {why}", file=sys.stderr, flush=True)
    render_pool(
        options.pool,
        options.out,
        options.store,
        engine,
        pairings=options.pairings,
        max_dialogues=options.max_dialogues,
        shard=options.shard,
        fallback=why,
        log=lambda line: print(line, file=sys.stderr, flush=True),
    )


if __name__ == "__main__":
    command(main)
