"""Runs a Python command as `python` does, and notes what it took: seconds, those on a core, peak memory of its tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]

#: Names the file that a line is added to for each command.
NOTES = "MEASURED_JOBS"
#: Seconds between two looks at a process's memory.
_LOOKS = 0.25


class Cost(NamedTuple):
    """Of one command with all that it starts: seconds, of these on a core, and megabytes at its peak."""

    wall: float
    processor: float
    peak: float


def main() -> None:
    """Run the command in `argv`, add a line to the file that `NOTES` names, and end as the command did."""
    code, cost = measured([sys.executable, *sys.argv[1:]])
    line = json.dumps({"script": Path(sys.argv[1]).stem, **cost._asdict()}) + "\n"
    with Path(os.environ[NOTES]).open("a", encoding="utf-8") as file:
        file.write(line)
    sys.exit(code)


def measured(command: list[str], **options: object) -> tuple[int, Cost]:
    """Run a command: its exit code, and what it took."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, **options)  # type: ignore[call-overload]
    most = [0]
    looking = threading.Thread(target=_look, args=(process.pid, most), daemon=True)
    looking.start()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    own = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return process.returncode, Cost(wall, used.ru_utime + used.ru_stime, max(own, most[0]) / 1e6)


def _look(pid: int, most: list[int]) -> None:
    """Note the most memory that a process and its descendants held together, as long as it lives."""
    try:
        process = psutil.Process(pid)
        while True:
            held = 0
            for one in (process, *process.children(recursive=True)):
                try:
                    held += one.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            most[0] = max(most[0], held)
            time.sleep(_LOOKS)
    except psutil.NoSuchProcess:
        return


if __name__ == "__main__":
    main()
