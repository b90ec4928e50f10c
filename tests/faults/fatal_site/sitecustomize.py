"""Every Python process with this folder on its path counts what is done to files, and one brings the kill.

Counted, over all these processes together: a file made or opened for writing, a rename, a removal, a new folder, below
the folders in KILL_BELOW (paths with `:` between them, as the processes name them). The one with number KILL_AT brings
a SIGKILL, once: to the `group`, to the `snakemake` above this process, or to this process itself if it is a script of
the workflow (`driver`; the first one that gets so far). KILL_COUNT is the file of the count.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

_CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_BELOW = tuple(os.environ.get("KILL_BELOW", "").split(":"))


def _number() -> int:
    descriptor = os.open(os.environ["KILL_COUNT"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, b".")
    size = os.fstat(descriptor).st_size
    os.close(descriptor)
    return size


def _kill() -> None:
    how = os.environ["KILL_HOW"]
    if how == "driver" and "scripts" not in sys.argv[0]:
        return
    try:
        os.close(os.open(f"{os.environ['KILL_COUNT']}.over", os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    if how == "group":
        os.killpg(0, signal.SIGKILL)
    os.kill(int(os.environ["TRIAGESIM_PARENT"]) if how == "snakemake" else os.getpid(), signal.SIGKILL)


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        counts = isinstance(arguments[2], int) and bool(arguments[2] & _CHANGING)
    else:
        counts = event in ("os.rename", "os.remove", "os.mkdir", "os.link")
    if counts and str(arguments[0]).startswith(_BELOW) and _number() >= int(os.environ["KILL_AT"]):
        _kill()


if "KILL_AT" in os.environ:
    sys.addaudithook(_watch)
