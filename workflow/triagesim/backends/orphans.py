"""Ends the processes of an engine: those that outlive its close, and all of them once their owner is dead.

    python -I -S orphans.py OWNER MARK FOLDER

waits beside the process OWNER and, when that is gone by whatever way, kills the processes that carry MARK and removes
FOLDER. It needs the standard library and Linux's /proc alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

#: The environment variable that marks an engine's processes.
VARIABLE = "TRIAGESIM_ENGINE"
#: Seconds between two looks: at whether the owner still lives, and at which processes its engine has.
EVERY = 0.25
#: Seconds that killed processes get to end. One that waits for a device's driver can take a while.
PATIENCE = 10.0


class Family:
    """The processes of one engine: the owner's children that carry its mark, and whatever those started.

    A process that renamed itself may have lost its mark, and one whose parent died has lost its family, so they are
    remembered from an earlier look. None is taken for another: a number is only good with its time of start.
    """

    def __init__(self, owner: int, mark: str) -> None:
        self._owner = owner
        self._mark = f"{VARIABLE}={mark}".encode()
        self._known: dict[int, str] = {}

    def look(self) -> None:
        """Remember who belongs to it now."""
        waiting = [child for child in children(self._owner) if child in self._known or self._carries(child)]
        waiting += self._known
        seen = set()
        while waiting:
            process = waiting.pop()
            began = start_of(process)
            if process in seen or began is None or self._known.setdefault(process, began) != began:
                continue
            seen.add(process)
            waiting += children(process)

    def alive(self) -> list[int]:
        """Those that still run."""
        return [process for process, began in self._known.items() if start_of(process) == began]

    def kill(self, patience: float = PATIENCE) -> None:
        """Kill all of them, also those that no look has found yet, and wait until they are gone."""
        deadline = time.monotonic() + patience
        while True:
            self._known |= {process: began for process in _processes() if (began := self._marked(process))}
            self.look()
            alive = self.alive()
            for process in alive:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            if not alive or time.monotonic() > deadline:
                return
            time.sleep(0.02)

    def _marked(self, process: int) -> str | None:
        return start_of(process) if process != os.getpid() and self._carries(process) else None

    def _carries(self, process: int) -> bool:
        return self._mark in read(process, "environ").split(b"\0")


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def read(process: int, what: str) -> bytes:
    """A file of /proc about a process; nothing when it is gone or somebody else's."""
    try:
        return Path(f"/proc/{process}/{what}").read_bytes()
    except OSError:
        return b""


def start_of(process: int) -> str | None:
    """When a process started, in ticks since boot; None when it is gone or only waits to be collected."""
    fields = read(process, "stat").rpartition(b") ")[2].split()
    return fields[19].decode() if len(fields) > 19 and fields[0] not in (b"Z", b"X") else None


def children(process: int) -> list[int]:
    """What a process started and has not collected yet."""
    tasks = Path(f"/proc/{process}/task")
    try:
        lists = [read(process, f"task/{task.name}/children") for task in tasks.iterdir()]
    except OSError:
        return []
    return [int(child) for each in lists for child in each.split()]


def main(owner: int, mark: str, folder: str) -> None:
    """Wait until the owner is gone, then clear away what it left."""
    # Whoever stops a whole job by these means the owner, which ends its engine in order.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    family = Family(owner, mark)
    while os.getppid() == owner:
        family.look()
        time.sleep(EVERY)
    family.kill()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
