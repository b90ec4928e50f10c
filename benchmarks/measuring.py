"""What the benchmarks share: a measurement in a process of its own, medians with their spread, tables, the machine."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "workflow"))

from dialogue import cases
from triagesim.errors import InputError
from triagesim.personas import generate

PEER = "0.2.0.post1"
MAKE_PEER = f"python3 -m venv PEER && PEER/bin/pip install triagesim=={PEER}"


def arguments(description: str | None, *, peer: bool = True) -> argparse.ArgumentParser:
    """The parser with what every benchmark takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="one small run: shows that it works, measures nothing")
    if peer:
        said = f"python of an environment that holds the peer alone ({MAKE_PEER}); without it the peer is left out"
        parser.add_argument("--peer", type=Path, metavar="PYTHON", help=said)
    return parser


def make_job(rows: int, per_case: int, concurrency: int, speculation: str = "off", **more: Any) -> dict[str, Any]:
    """What either driver plays: so many vignettes, each so often, with personas drawn from 500 a role."""
    return {
        "cases": cases(rows),
        "nurses": list(generate("nurse", "uniform", 500, 0)),
        "patients": list(generate("patient", "uniform", 500, 0)),
        "episodes_per_case": per_case,
        "concurrency": concurrency,
        "speculation": speculation,
        **more,
    }


def measure(script: str, job: dict[str, Any], python: Path | None = None, core: int | None = None) -> Any:
    """Run a script of this folder with a job as JSON on stdin; it prints its result as one line of JSON.

    Args:
        python: the interpreter, this one unless given.
        core: the one core that it may use.

    Raises:
        InputError: it fails; with its own words.
    """
    command = [str(python or sys.executable), str(HERE / script)]

    def pin() -> None:
        if core is not None:
            os.sched_setaffinity(0, {core})

    done = subprocess.run(
        command, input=json.dumps(job), env=environment(), preexec_fn=pin, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise InputError(f"{' '.join(command)} failed:\n{done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def environment() -> dict[str, str]:
    """Of a process that may be the peer's: it finds the dialogues and nothing else of ours."""
    return {**os.environ, "PYTHONPATH": str(HERE)}


def check_peer(python: Path) -> None:
    """Make sure of the peer's version.

    Raises:
        InputError: it isn't the one that is compared with.
    """
    said = "from importlib.metadata import version; print(version('triagesim'))"
    try:
        found = subprocess.run([python, "-c", said], capture_output=True, text=True, check=False).stdout.strip()
    except OSError as error:
        raise InputError(f"--peer {python}: {error.strerror}; make it with {MAKE_PEER}") from None
    if found != PEER:
        raise InputError(f"--peer {python}: triagesim {found or 'is not there'}, expected {PEER}; {MAKE_PEER}")


def spread(values: Sequence[float], form: str = ",.0f") -> str:
    """Median, and lowest to highest where they differ."""
    middle, low, high = (f"{value:{form}}" for value in (statistics.median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a Markdown table."""
    print(f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", sep="\n")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def conditions(*packages: str, peer: bool = True) -> str:
    """The machine and the versions, for the line below a table."""
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{os.cpu_count()} shared {platform.machine()} cores, load average {load} at the end; "
        f"Python {platform.python_version()}{versions and f', {versions}'}{f'; peer triagesim {PEER}' if peer else ''}."
    )
