"""What the commands of the rules find in their environment, and what puts it there."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

#: Names the process that a driver must not outlive: the Snakemake that started it. A command started by hand has none.
PARENT = "TRIAGESIM_PARENT"
#: The options that change no result, as JSON. They are no parameter of a rule, so that a change of them reruns nothing.
RUNTIME = "TRIAGESIM_RUNTIME"
#: When the batch system ends this job, in Unix seconds.
JOB_END = "TRIAGESIM_JOB_END"
#: A file that is there once this job has a new answer or spoken line, but after an error: a further job would get on.
GAINED = "TRIAGESIM_GAINED"
#: A file of keys (NAME=value), instead of `.env` in the working folder.
KEY_FILE = "TRIAGESIM_KEY_FILE"
#: Of the time that a job has, this share is left for its end, within these seconds: engines need up to 8 to stop.
MARGIN, LEAST_MARGIN, MOST_MARGIN = 0.05, 20, 300


def as_seen(path: Path) -> Path:
    """A path as whoever gave the command can open it: whole under `--directory`, where they stand elsewhere."""
    return path.absolute() if os.environ.get("PWD") != str(Path.cwd()) else path


def prepare(package_folder: Path, runtime: dict[str, Any]) -> None:
    """Set what the rules' commands inherit; every Snakemake process does it when it reads the workflow.

    The package is importable whatever the working folder, and this interpreter is the first `python`; an environment
    that Snakemake activates for a rule comes before it.
    """
    _put_first("PYTHONPATH", str(package_folder))
    _put_first("PATH", str(Path(sys.executable).parent))
    os.environ[PARENT] = str(os.getpid())
    os.environ[RUNTIME] = json.dumps(runtime)
    if runtime.get("key_file"):
        os.environ[KEY_FILE] = runtime["key_file"]


def note_gain() -> None:
    """Note that this job got on, so that a batch system's next one has something to go on from."""
    if GAINED in os.environ:
        Path(os.environ[GAINED]).touch()


def time_limit(configured: float | None) -> float | None:
    """Seconds that the work may take: what is configured, or what the batch job's walltime leaves if that is less."""
    if JOB_END not in os.environ:
        return configured
    left = float(os.environ[JOB_END]) - time.time()
    left -= min(max(MARGIN * left, LEAST_MARGIN), MOST_MARGIN)
    return max(left if configured is None else min(left, configured), 0)


def _put_first(name: str, folder: str) -> None:
    known = os.environ.get(name, "").split(os.pathsep)
    os.environ[name] = os.pathsep.join([folder, *(path for path in known if path and path != folder)])
