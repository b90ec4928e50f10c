"""Hears spoken dialogues, line by line, into a file that every measure is computed from (rule transcribe)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command
from triagesim.speech.recognise import Recogniser, transcribe


def main() -> None:
    """Parse the arguments and listen; the progress is on stderr."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("manifest", type=Path, help="what render_audio.py wrote (JSON Lines), with the audio beside it")
    add("--out", type=Path, required=True, help="what was heard (JSON Lines)")
    add("--model", default="whisper-tiny", help="recogniser (default: %(default)s)")
    add("--threads", type=int, default=1, metavar="N", help="of the CPU (default: %(default)s)")
    options = parser.parse_args()
    recogniser = Recogniser(options.model, options.threads)
    transcribe(options.manifest, options.out, recogniser, lambda line: print(line, file=sys.stderr, flush=True))


if __name__ == "__main__":
    command(main)
