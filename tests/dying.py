"""A process that dies at one moment of its work with files, played in this process: from then on nothing reaches them.

A moment is whatever changes a file below a folder: a file made or opened for writing, a write to it (of which a part
may still come through), a flush to the disk, a rename, a link, a removal, a new folder, a mode.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


class Death(BaseException):
    """Stands for the death of the process; no handler catches it."""


class Disk:
    """Counts the moments of the work below `root`, and lets the process die at the one with number `last`.

    Args:
        last: from 1; 0 lets it live.

    Attributes:
        moments: so many were there.
    """

    def __init__(self, root: Path, last: int = 0) -> None:
        self.moments = 0
        self._root = f"{root}{os.sep}"
        self._last = last
        self._one = threading.Lock()
        self._open: set[int] = set()

    def moment(self) -> bool:
        """Come to the next moment; whether the process dies at it. None comes after that."""
        with self._one:
            if self._last and self.moments >= self._last:
                raise Death
            self.moments += 1
            return self.moments == self._last

    def act(self, action: Callable[[], Any]) -> Any:
        """Something that happens whole or not at all."""
        if self.moment():
            raise Death
        return action()

    def write(self, write: Callable[[Any], int], data: Any) -> int:
        """A write; every other time a part of it comes through."""
        if self.moment():
            if self._last % 2:
                write(bytes(data)[: len(data) // 2])
            raise Death
        return write(data)

    def holds(self, path: Any) -> bool:
        """Whether it is a path below the folder."""
        return not isinstance(path, int) and str(path).startswith(self._root)

    @contextlib.contextmanager
    def watched(self) -> Iterator[Disk]:
        """Everything in this process that works with files goes through here; its files are closed at the end."""
        with pytest.MonkeyPatch.context() as patch:
            # The journal's flushes now and then would make the count depend on time.
            patch.setattr("triagesim.journal.SYNC_EVERY", 1e6)
            for name in ("rename", "replace", "link", "unlink", "remove", "mkdir", "rmdir", "chmod", "truncate"):
                patch.setattr(os, name, self._changing(getattr(os, name)))
            patch.setattr(os, "open", self._opening(os.open))
            patch.setattr(os, "close", self._closing(os.close))
            patch.setattr(os, "write", self._writing(os.write))
            patch.setattr(os, "fsync", self._flushing(os.fsync))
            for module in (io, builtins):
                patch.setattr(module, "open", self._file(io.open))
            yield self
        for descriptor in self._open:
            os.close(descriptor)

    def _changing(self, real: Any) -> Any:
        def change(path: Any, *arguments: Any, **options: Any) -> Any:
            ours = self.holds(path) or options.get("dir_fd") in self._open
            return self.act(lambda: real(path, *arguments, **options)) if ours else real(path, *arguments, **options)

        return change

    def _opening(self, real: Any) -> Any:
        def opened(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            if not (self.holds(path) or options.get("dir_fd") in self._open):
                return int(real(path, flags, *arguments, **options))
            go = lambda: int(real(path, flags, *arguments, **options))  # noqa: E731
            descriptor: int = self.act(go) if flags & os.O_CREAT else go()
            self._open.add(descriptor)
            return descriptor

        return opened

    def _closing(self, real: Any) -> Any:
        def close(descriptor: int) -> None:
            self._open.discard(descriptor)
            real(descriptor)

        return close

    def _writing(self, real: Any) -> Any:
        def write(descriptor: int, data: bytes) -> int:
            if descriptor not in self._open:
                return int(real(descriptor, data))
            return self.write(lambda part: int(real(descriptor, part)), data)

        return write

    def _flushing(self, real: Any) -> Any:
        return lambda descriptor: self.act(lambda: real(descriptor))

    def _file(self, real: Any) -> Any:
        disk = self

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                return disk.write(super().write, data)

        def opened(file: Any, mode: str = "r", buffering: int = -1, *arguments: Any, **options: Any) -> Any:
            if not (set(mode) & set("wxa+") and self.holds(file)):
                return real(file, mode, buffering, *arguments, **options)
            raw = self.act(lambda: Raw(file, mode.replace("b", "").replace("t", "")))
            buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, *arguments, **options)

        return opened


def dies(root: Path, work: Callable[[], object], last: int) -> None:
    """Do the work below `root` up to a moment."""
    with Disk(root, last).watched(), pytest.raises(Death):
        work()
