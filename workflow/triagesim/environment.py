"""What the commands of the rules find in their environment."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

#: Names the process that a driver must not outlive: the Snakemake that started it. A command started by hand has none.
PARENT = "TRIAGESIM_PARENT"
#: The options that change no result, as JSON. They are no parameter of a rule, so that a change of them reruns nothing.
RUNTIME = "TRIAGESIM_RUNTIME"


def prepare(package_folder: Path, runtime: dict[str, Any]) -> None:
    """Set what the rules' commands inherit; every Snakemake process does it when it reads the workflow.

    The package is importable whatever the working folder, and this interpreter is the first `python`; an environment
    that Snakemake activates for a rule comes before it.
    """
    _put_first("PYTHONPATH", str(package_folder))
    _put_first("PATH", str(Path(sys.executable).parent))
    os.environ[PARENT] = str(os.getpid())
    os.environ[RUNTIME] = json.dumps(runtime)


def _put_first(name: str, folder: str) -> None:
    known = os.environ.get(name, "").split(os.pathsep)
    os.environ[name] = os.pathsep.join([folder, *(path for path in known if path and path != folder)])
