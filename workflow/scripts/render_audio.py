"""Speaks pooled dialogues: a file each, nurse left and patient right, a mono mix, a manifest (rule render_audio)."""

from __future__ import annotations

import argparse
import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any, get_args

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command
from triagesim.jsonl import write_jsonl
from triagesim.speech.engine import choose_engine
from triagesim.speech.render import Style, render_pool
from triagesim.speech.sound import Channel, Format
from triagesim.speech.xtts import Device


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
    add("--out", type=Path, required=True, metavar="MANIFEST", help="the manifest; audio goes to folders beside it")
    add("--errors", type=Path, metavar="FILE", help="what failed, a line each (default: on stderr alone)")
    add("--store", type=Path, required=True, metavar="DIR", help="spoken lines, kept so that none is rendered twice")
    add("--engine", default="espeak", help="speech engine (default: %(default)s)")
    add("--xtts", type=json.loads, default={}, metavar="JSON", help="the keys of audio.xtts, for the engine xtts")
    add("--device", choices=get_args(Device), default="auto", help="where xtts runs (default: %(default)s)")
    add(
        "--fetched", nargs="*", type=Path, default=[], metavar="MARKER.json", help="what fetch.py wrote about its files"
    )
    add("--fallback", metavar="NAME", help="the engine that speaks if those say that the files can't be had")
    add("--channel", choices=get_args(Channel), default="clean", help="what voices pass through (default: %(default)s)")
    add("--format", choices=get_args(Format), default="flac", help="of the files (default: %(default)s)")
    add("--seed", type=int, default=0, help="of casting, gaps, rooms and engine (default: %(default)s)")
    add(
        "--splits",
        type=json.loads,
        metavar="JSON",
        help='shares of patients, as {"train": 0.8, "test": 0.2}: no voice is in two',
    )
    add("--split-seed", type=int, default=0, help="which patients are in which split (default: %(default)s)")
    add("--pairings", nargs="+", metavar="NAME", help="only these pairings (default: all)")
    add("--max-dialogues", type=int, metavar="N", help="only the N shortest of the whole pool (default: all)")
    add("--shard", type=shard, default=(1, 1), metavar="I-of-N", help="one part of them (default: 1-of-1)")
    add("--workers", type=int, default=1, metavar="N", help="processes that speak (default: %(default)s)")
    add("--max-error-rate", type=float, default=0, metavar="SHARE", help="of dialogues that may fail (default: 0)")
    options = parser.parse_args()
    if options.max_dialogues is not None and options.max_dialogues < 0:
        parser.error("argument --max-dialogues: expected 0 or more")
    if options.workers < 1:
        parser.error("argument --workers: expected 1 or more")
    failed = render_pool(
        options.pool,
        options.out,
        options.store,
        partial(choose_engine, options.engine, options.fetched, options.fallback, engine_options(options)),
        style=Style(
            channel=options.channel,
            format=options.format,
            seed=options.seed,
            splits=options.splits,
            split_seed=options.split_seed,
        ),
        pairings=options.pairings,
        max_dialogues=options.max_dialogues,
        shard=options.shard,
        workers=options.workers,
        max_error_rate=options.max_error_rate,
        log=lambda line: print(line, file=sys.stderr, flush=True),
    )
    if options.errors:
        write_jsonl(options.errors, failed)


def engine_options(options: argparse.Namespace) -> dict[str, Any]:
    """What the engine's `load` is given."""
    if options.engine != "xtts":
        return {}
    return {**options.xtts, "device": options.device, "latents": str(options.store / "latents")}


if __name__ == "__main__":
    command(main)
