"""Temporary names beside what is written: whole or not at all, and what a killed process left goes with the next write.

A writer holds a lock on its temporary file (`.part0.NAME` for `NAME`), which the system frees with the process. So the
next writer of `NAME` tells what a kill left from what a sibling is writing at this moment.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

#: The system's numbers of errors of a disk on which nothing more can be written.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Of a full disk the system doesn't say which file it had no room for: `path`."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in FULL:
            error.filename = str(path)
        raise


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path`, with its ending: the file that is written there takes its place, or goes if that fails.

    Raises:
        OSError: names `path`, where the system names no file (a full disk) or the temporary one.
    """
    with beside(path) as temporary:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """An empty folder beside `path`, which goes at the end with all that is still in it; errors as in `replacing`."""
    with beside(path) as mine:
        folder = mine.with_name(f"{mine.name}.d")
        # Who had the name before me was killed.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A new empty file beside `path`, its owner's alone, which goes at the end unless it was moved away."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary, descriptor = _claim(path)
        try:
            yield temporary
        finally:
            _remove(temporary, descriptor)
            os.close(descriptor)
    except OSError as error:
        if error.filename is None or str(error.filename).startswith(str(path.with_name(_PREFIX))):
            error.filename, error.filename2 = str(path), None
        raise


_PREFIX = ".part"


def _claim(path: Path) -> tuple[Path, int]:
    """Make a temporary file that no living process uses, and lock it; what dead ones left is removed on the way."""
    for number in count():
        temporary = path.with_name(f"{_PREFIX}{number}.{path.name}")
        _remove_stale(temporary)
        with suppress(FileExistsError):
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            if _lock(descriptor) is not False and os.fstat(descriptor).st_nlink:
                _remove_stale(path.with_name(f"{_PREFIX}{number + 1}.{path.name}"))
                return temporary, descriptor
            os.close(descriptor)  # somebody took it for stale before it was locked
    raise AssertionError("unreachable")


def _remove_stale(temporary: Path) -> None:
    """Remove a temporary file that nobody holds; where the file system knows no locks, none."""
    try:
        descriptor = os.open(temporary, os.O_RDWR)
    except OSError:
        return
    if _lock(descriptor):
        _remove(temporary, descriptor)
    os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Whether the file is locked by us now; None where there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _remove(temporary: Path, descriptor: int) -> None:
    """Remove the file if its name is still its own: once it was moved away, the next writer may have taken the name."""
    with suppress(OSError):
        if os.path.samestat(os.fstat(descriptor), temporary.stat()):
            temporary.unlink()


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
