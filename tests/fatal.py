"""Runs a script of the workflow with a backend that counts its calls, and a signal that comes at one of them.

    python fatal.py BACKEND COUNTS CALL MOMENT SIGNAL SCRIPT ARGUMENTS…

BACKEND is agenda or openrouter. COUNTS gets one line a call, appended before it is answered. Call number CALL (0:
none), or the first after it that comes so far, brings the signal: `before` it is made, `after` it was answered and
before anybody knows, or once its answer is `kept` in the journal and before the episode sees it.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from typing import Any

from triagesim.backends.agenda import Agenda
from triagesim.backends.hosted import OpenRouter
from triagesim.journal import Journal
from triagesim.requests import Completion, Request

backend: Any = {"agenda": Agenda, "openrouter": OpenRouter}[sys.argv[1]]
counts, fatal_call, moment, number = sys.argv[2], int(sys.argv[3]), sys.argv[4], signal.Signals[sys.argv[5]]
answer, keep = backend.complete, Journal.keep
calls = answers = 0
sent = fatal_call == 0


def now(count: int, when: str) -> None:
    """The signal, if its moment is here."""
    global sent
    if not sent and count >= fatal_call and when == moment:
        sent = True
        os.kill(os.getpid(), number)


async def counted(self: Any, request: Request) -> Completion:
    """Answer as the backend does."""
    global calls
    calls += 1
    own = calls
    now(own, "before")
    with open(counts, "a", encoding="utf-8") as file:
        file.write(f"{request.name}\n")
    completion: Completion = await answer(self, request)
    now(own, "after")
    return completion


def kept(self: Journal, *answered: Any) -> None:
    """Keep an answer as the journal does."""
    global answers
    answers += 1
    keep(self, *answered)
    now(answers, "kept")


backend.complete = counted
Journal.keep = kept  # type: ignore[method-assign]
sys.argv = sys.argv[6:]
runpy.run_path(sys.argv[0], run_name="__main__")
