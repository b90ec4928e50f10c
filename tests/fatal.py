"""Runs a script of the workflow with an agenda backend that counts its calls and kills the process at one of them.

    python fatal.py COUNTS CALL before|after SCRIPT ARGUMENTS…

COUNTS gets one line a call, appended before it is answered; at call number CALL the process dies by SIGKILL, before the
answer or after it was given to the engine (0: never).
"""

from __future__ import annotations

import os
import runpy
import signal
import sys

from triagesim.backends.agenda import Agenda
from triagesim.requests import Completion, Request

counts, fatal_call, moment, script = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
answer = Agenda.complete
calls = 0


async def counted(self: Agenda, request: Request) -> Completion:
    """Count the call, and die at the fatal one."""
    global calls
    calls += 1
    if calls == fatal_call and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    with open(counts, "a", encoding="utf-8") as file:
        file.write(f"{request.name}\n")
    completion = await answer(self, request)
    if calls == fatal_call:
        os.kill(os.getpid(), signal.SIGKILL)
    return completion


Agenda.complete = counted  # type: ignore[method-assign]
sys.argv = sys.argv[4:]
runpy.run_path(script, run_name="__main__")
