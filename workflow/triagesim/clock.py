"""What a clock that was ahead leaves behind once it is right again: files from the future."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

#: Seconds that a file server's clock may be ahead without anything being wrong.
_TOLERATED = 60


def settle_times(folder: Path) -> int:
    """Give what is newer than now the time of now, as if it had just been made; return how many files there were.

    What is made from such a file would be older than it, and Snakemake ends a job for that.
    """
    now, found = time.time(), 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # another user's file can't be touched
            if path.lstat().st_mtime > now + _TOLERATED:
                os.utime(path, (now, now), follow_symlinks=False)
                found += 1
    return found
