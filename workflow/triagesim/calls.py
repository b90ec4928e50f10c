"""Asks a backend through the journal: each answer is kept, then checked, and asked for again if it can't be used."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from triagesim.cases import Case, explain
from triagesim.engine import ready
from triagesim.errors import AnswerError, BackendError
from triagesim.governance import check_endpoint, redact
from triagesim.journal import Journal
from triagesim.jsonl import digest
from triagesim.prompts import PromptSet, render
from triagesim.requests import Answer, Backend, CallName, Completion, Request, Role, Usage
from triagesim.views import NurseView, PatientView

#: Tries of a call that failed for a reason that may pass, and the first pause between two, in seconds.
TRIES = 4
PAUSE = 0.5
#: How much longer the second answer may be after one that was cut.
LONGER = 2
DEFAULT_MAX_TOKENS = 400

A = TypeVar("A", bound=Answer)


class GivenUp(Exception):
    """An episode can't go on: a call keeps failing or being answered badly. The text is the reason.

    Attributes:
        bad_answers: whether stored answers are to blame, so that the next run has to ask the episode anew. Where only
            the backend failed, what it answered before stays good.
    """

    def __init__(self, message: str, *, bad_answers: bool) -> None:
        super().__init__(redact(message))
        self.bad_answers = bad_answers


@dataclass(frozen=True)
class Seat:
    """A backend in a role: the model, its prompts and its sampling."""

    backend: Backend
    prompts: PromptSet = "full"
    sampling: dict[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, Any]:
        """All of it that can change an answer."""
        return {**self.backend.identity, "sampling": self.sampling}


class Caller:
    """Asks for one episode.

    Attributes:
        usage: calls and tokens by role, over the answers that the episode used.
    """

    def __init__(self, case: Case, episode: str, seats: dict[Role, Seat], journal: Journal, seed: int) -> None:
        self.usage: dict[str, tuple[int, Usage]] = {}
        self._case = case
        self._episode = episode
        self._seats = seats
        self._journal = journal
        self._seed = seed
        self._epoch = journal.epoch(episode)

    async def ask(
        self,
        role: Role,
        view: NurseView | PatientView,
        output_type: type[A],
        *,
        turn: int,
        step: int = 0,
        draft: int = 0,
    ) -> A:
        """Ask until the answer is valid: once more with the error fed back, once more with a larger budget.

        Raises:
            GivenUp: it stays invalid, or the backend keeps failing.
            StopRun: asking on is pointless or not allowed.
        """
        seat = self._seats[role]
        messages = render(view, seat.prompts) if seat.backend.reads == "messages" else []
        sampling = dict(seat.sampling)
        problems: list[str] = []
        while True:
            name = CallName(self._episode, role, turn, step, draft, len(problems), self._epoch)
            request = Request(name, role, messages, output_type, sampling, call_seed(self._seed, name), view)
            completion = await self._complete(seat, request)
            calls, usage = self.usage.get(role, (0, Usage()))
            self.usage[role] = (calls + 1, usage.plus(completion.usage))
            try:
                return output_type.model_validate_json(completion.text)
            except ValidationError as error:
                problem = "cut at the token limit" if completion.finish_reason == "length" else explain(error)
            if problem in problems or len(problems) == 2:
                raise GivenUp(f"{name}: {problem}", bad_answers=True)
            problems.append(problem)
            if completion.finish_reason == "length":
                sampling["max_tokens"] = LONGER * int(sampling.get("max_tokens", DEFAULT_MAX_TOKENS))
            else:
                correction = f"That answer can't be used: {problem}. Answer again, with one JSON object as described."
                messages = [*messages, {"role": "assistant", "content": completion.text}]
                messages.append({"role": "user", "content": correction})

    async def _complete(self, seat: Seat, request: Request) -> Completion:
        key = call_key(seat, request)
        found = self._journal.find(key)
        if found is not None:
            return found
        check_endpoint(self._case, seat.backend.model, seat.backend.local)
        for attempt in range(1, TRIES + 1):
            try:
                await ready(seat.backend)
                completion = await seat.backend.complete(request)
                break
            except AnswerError as error:
                raise GivenUp(f"{request.name}: {error}", bad_answers=True) from error
            except BackendError as error:
                if attempt == TRIES:
                    raise GivenUp(f"{request.name}: {error}", bad_answers=False) from error
                await asyncio.sleep(PAUSE * 2**attempt * random.uniform(0.5, 1))
        # A model can answer with half a surrogate pair, which is no text that a file could hold.
        completion = replace(completion, text=completion.text.encode(errors="replace").decode())
        self._journal.keep(self._case.case_id, key, request.name, completion)
        return completion


def call_seed(run_seed: int, name: CallName) -> int:
    """The seed of a call, 0 … 2**31 - 1, from the run's seed and the call's name alone."""
    return int.from_bytes(sha256(f"{run_seed}|{name}".encode()).digest()[:4]) & 0x7FFFFFFF


def call_key(seat: Seat, request: Request) -> str:
    """The journal key: model, what it is asked, in which form, with which sampling and seed."""
    asked: Any = request.messages
    if seat.backend.reads == "view" and isinstance(request.view, BaseModel):
        asked = request.view.model_dump_json()
    form = _form_of(request.output_type)
    return digest([seat.backend.identity, asked, form, dict(request.sampling), request.seed])


@lru_cache(maxsize=1024)
def _form_of(output_type: type[Answer]) -> str:
    return digest(output_type.model_json_schema())
