"""What it takes to write every persona there is, beside the peer, which only counts through them."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from measuring import HERE, arguments, check_peer, conditions, environment, spread, table
from triagesim.console import command
from triagesim.errors import InputError

#: All patients and all nurses.
PERSONAS = 104_976 + 3_888
#: What the command that writes them may take.
SECONDS, MEGABYTES = 3.0, 300
SCRIPT = HERE.parent / "workflow" / "scripts" / "generate_personas.py"


class Run(NamedTuple):
    """One process: seconds from start to end, those on a core, and the most memory that it held in MB."""

    wall: float
    processor: float
    peak: float


def main() -> None:
    """Parse the arguments, run both in turn and print."""
    parser = arguments(__doc__)
    options = parser.parse_args()
    if options.peer:
        check_peer(options.peer)
    runs = list(_runs(options))
    names = dict.fromkeys(name for name, _ in runs)
    rows = []
    for name in names:
        found = [run for one, run in runs if one == name]
        cells = [spread([getattr(run, field) for run in found], form) for field, form in _FORMS.items()]
        rows.append([name, f"{PERSONAS:,}", *cells])
    table(["what", "personas", "seconds", "of these on a core", "peak MB"], rows)
    print(
        f"\n{len(runs) // len(names)} runs of each, interleaved, each a process of its own: median (lowest to "
        f"highest). At most {SECONDS:g} s on a core and {MEGABYTES} MB are allowed. {conditions()}"
    )
    ours = [run for name, run in runs if name == OURS]
    if min(run.processor for run in ours) > SECONDS or max(run.peak for run in ours) > MEGABYTES:
        raise InputError("the command takes more than it may")


OURS, PEER = "ours: the command, both pools written", "peer: enumerated, nothing written"
_FORMS = {"wall": ".2f", "processor": ".2f", "peak": ".0f"}


def _runs(options: argparse.Namespace) -> Iterator[tuple[str, Run]]:
    for _ in range(1 if options.quick else 5):
        with tempfile.TemporaryDirectory() as name:
            yield OURS, measured([sys.executable, SCRIPT, "--out-dir", name])
            written = sum(path.read_bytes().count(b"\n") for path in Path(name).glob("*.jsonl"))
        if written != PERSONAS:
            raise InputError(f"the command wrote {written:,} personas and not {PERSONAS:,}")
        if options.peer:
            yield PEER, measured([options.peer, HERE / "peer" / "personas.py", str(PERSONAS)])


def measured(command: list[Any]) -> Run:
    """Run a command.

    Raises:
        InputError: it fails.
    """
    begin = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), env=environment(), stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    if status:
        raise InputError(f"{' '.join(map(str, command))} failed")
    return Run(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e6 / 1024))


if __name__ == "__main__":
    command(main)
