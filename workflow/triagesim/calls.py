"""Asks a backend through the journal: each answer is kept, then checked, and asked for again if it can't be used."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from triagesim.cases import Case, explain
from triagesim.config import HostedAttestation
from triagesim.engine import ready
from triagesim.errors import AnswerError, BackendError, InputError
from triagesim.governance import check_endpoint, redact
from triagesim.journal import Journal
from triagesim.jsonl import digest, dumps
from triagesim.limits import Limits
from triagesim.prompts import PromptSet, render
from triagesim.requests import Answer, Backend, CallName, Completion, Request, Role, Usage
from triagesim.views import View

#: Tries of a call that failed for a reason that may pass; the first pause between two and the longest, in seconds.
TRIES = 6
PAUSE = 0.5
LONGEST_PAUSE = 600.0
#: Characters of an answer of no use that are shown to the model again.
LONGEST_QUOTE = 4000
#: How much longer the second answer may be after one that was cut.
LONGER = 2
#: What an answer may take where neither the sampling nor the backend's identity says it.
DEFAULT_MAX_TOKENS = 400
#: Roles whose failed calls are kept as answers: their failure doesn't end an episode, so a replay has to fail alike.
_MASTER: frozenset[Role] = frozenset({"judge", "script"})

A = TypeVar("A", bound=Answer)


class GivenUp(Exception):
    """A call keeps failing or being answered badly. The text is the reason.

    Attributes:
        bad_answers: whether stored answers are to blame, so that the next run has to ask the episode anew. Where only
            the backend failed, what it answered before stays good.
    """

    def __init__(self, message: str, *, bad_answers: bool) -> None:
        super().__init__(redact(message))
        self.bad_answers = bad_answers


@dataclass(frozen=True)
class Seat:
    """A backend in a role: the model, its prompts and its sampling.

    Attributes:
        attestations: of hosted models, this one's or others'.
    """

    backend: Backend
    prompts: PromptSet = "full"
    sampling: dict[str, Any] = field(default_factory=dict)
    attestations: tuple[HostedAttestation, ...] = ()

    def __post_init__(self) -> None:
        for name, value in self.sampling.items():
            whole = name != "max_tokens" or (isinstance(value, int) and value > 0)
            if isinstance(value, bool) or not isinstance(value, int | float | list | tuple) or not whole:
                raise InputError(
                    f"sampling: {name} is {value!r:.80}; expected a number (or a list of texts to stop at)"
                )

    @property
    def identity(self) -> dict[str, Any]:
        """All of it that can change an answer."""
        return {**self.backend.identity, "sampling": self.sampling}

    @cached_property
    def digest(self) -> str:
        """A hash of it."""
        return digest(self.identity)


class Question(NamedTuple, Generic[A]):
    """What an episode asks at one place: who is asked, by which view, in which form, and for what."""

    role: Role
    view: View
    form: type[A]
    purpose: str
    turn: int = 0
    step: int = 0
    draft: int = 0


class Answered(NamedTuple, Generic[A]):
    """A valid answer, and the calls that it took."""

    value: A
    calls: int
    usage: Usage


class _Call(NamedTuple):
    """A request that is ready to go, with its journal key."""

    seat: Seat
    request: Request
    key: str


class Caller:
    """Asks for one episode."""

    def __init__(
        self, case: Case, episode: str, seats: dict[Role, Seat], journal: Journal, seed: int, limits: Limits
    ) -> None:
        self._case = case
        self._episode = episode
        self._seats = seats
        self._journal = journal
        self._seed = seed
        self._limits = limits
        self._epoch = journal.epoch(episode)
        self._foreseen: dict[str, tuple[asyncio.Task[Answered[Any]], bool]] = {}
        self._dropped: dict[str, tuple[asyncio.Task[Answered[Any]], bool]] = {}

    async def ask(self, question: Question[A]) -> Answered[A]:
        """Ask until the answer is valid: once more with the error fed back, once more with a larger budget.

        Raises:
            GivenUp: it stays invalid, or the backend keeps failing.
            StopRun: asking on is pointless or not allowed.
        """
        call = self._call(question)
        begun = self._foreseen.pop(call.key, None) or self._dropped.pop(call.key, None)
        return await (begun[0] if begun and not begun[0].cancelled() else self._answer(call))

    def foresee(self, question: Question[A]) -> asyncio.Task[Answered[A]]:
        """Begin a call that `ask` will probably want; its answer counts only if `ask` does."""
        call = self._call(question)
        if call.key in self._dropped:
            self._foreseen[call.key] = self._dropped.pop(call.key)
        if call.key not in self._foreseen:
            task = asyncio.ensure_future(self._answer(call))
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody may ever ask
            self._foreseen[call.key] = (task, bool(call.seat.backend.local))
        return self._foreseen[call.key][0]

    def spare(self, role: Role) -> bool:
        """Whether the role's engine would begin one more call at once."""
        return self._seats[role].backend.spare

    def drop(self) -> None:
        """Discard what was foreseen and not asked for; if the same call is wanted after all, its answer is still there.

        Calls in flight are cancelled where that saves the work. A provider is paid for the rest of a cancelled answer
        too, so that one is waited for (`Limits.leftovers`) and kept.
        """
        for key, (task, local) in self._foreseen.items():
            self.leave(task, local=local)
            if not (local and not task.done()):
                self._dropped[key] = (task, local)
        self._foreseen.clear()

    def leave(self, task: asyncio.Task[Any], *, local: bool) -> None:
        """Wait for a task no more: cancel it, or let its paid call be answered."""
        if local:
            task.cancel()
        elif not task.done():
            self._limits.leftovers.add(task)
            task.add_done_callback(self._limits.leftovers.discard)

    def is_local(self, role: Role) -> bool:
        """Whether the role's model runs on the user's own machines."""
        return self._seats[role].backend.local is True

    def _call(self, question: Question[Any]) -> _Call:
        role, view, output_type, purpose, turn, step, draft = question
        seat = self._seats[role]
        messages = render(view, seat.prompts) if seat.backend.reads == "messages" else []
        name = CallName(self._episode, purpose, turn, step, draft, 0, self._epoch)
        request = Request(name, role, messages, output_type, seat.sampling, call_seed(self._seed, name), view)
        return _Call(seat, request, call_key(seat, request))

    async def _answer(self, call: _Call) -> Answered[Any]:
        seat, request, key = call
        usage: Usage | None = None
        problems: list[str] = []
        while True:
            completion, fresh = await self._complete(seat, request, key)
            usage = completion.usage if usage is None else usage.plus(completion.usage)
            try:
                value = request.output_type.model_validate_json(completion.text)
                return Answered(value, len(problems) + 1, usage)
            except ValidationError as error:
                cut = completion.finish_reason == "length"
                problem = "cut at the token limit" if cut else explain(error, "the answer")
            if fresh:
                self._journal.note_failure(self._case.case_id, request.name, "truncated" if cut else "invalid")
            if problem in problems or len(problems) == 2:
                raise GivenUp(f"{request.name}: {problem}", bad_answers=True)
            problems.append(problem)
            request = self._anew(seat, request, completion, problem)
            key = call_key(seat, request)

    def _anew(self, seat: Seat, request: Request, completion: Completion, problem: str) -> Request:
        """The request after an answer that can't be used: with a larger budget, or with the error fed back."""
        sampling, messages = request.sampling, request.messages
        if completion.finish_reason == "length":
            own = seat.backend.identity.get("max_tokens", DEFAULT_MAX_TOKENS)
            had = max(int(sampling.get("max_tokens", own)), completion.usage.completion)
            sampling = {**sampling, "max_tokens": LONGER * had}
        else:
            correction = f"That answer can't be used: {problem}. Answer again, with one JSON object as described."
            messages = [*messages, {"role": "assistant", "content": completion.text[:LONGEST_QUOTE]}]
            messages.append({"role": "user", "content": correction})
        name = request.name._replace(retry=request.name.retry + 1)
        return request._replace(name=name, messages=messages, sampling=sampling, seed=call_seed(self._seed, name))

    async def _complete(self, seat: Seat, request: Request, key: str) -> tuple[Completion, bool]:
        """The stored answer, or a new one, which is stored before anybody sees it; and whether it is new."""
        found = self._journal.find(key)
        if found is not None:
            if found.finish_reason == "error":
                raise GivenUp(found.text, bad_answers=True)
            return found, False
        check_endpoint(self._case, seat.backend, seat.attestations)
        try:
            completion = await self._ask_backend(seat.backend, request)
        except GivenUp as failure:
            if request.role in _MASTER:
                self._journal.keep(self._case.case_id, key, request.name, Completion(str(failure), "error"))
            raise
        try:
            completion.text.encode()
        except UnicodeEncodeError:  # half a surrogate pair, which is no text that a file could hold
            completion = completion._replace(text=completion.text.encode(errors="replace").decode())
        self._journal.keep(self._case.case_id, key, request.name, completion)
        return completion, True

    async def _ask_backend(self, backend: Backend, request: Request) -> Completion:
        """Try until it answers, alone, at once and then after growing pauses."""
        for attempt in range(1, TRIES + 1):
            self._limits.check()
            try:
                await ready(backend)
                completion = await backend.complete(request)
                self._limits.answered(backend.model)
                return completion
            except AnswerError as error:
                self._journal.note_failure(self._case.case_id, request.name, "refused")
                raise GivenUp(f"{request.name}: {error}", bad_answers=True) from error
            except BackendError as error:
                self._journal.note_failure(self._case.case_id, request.name, error.kind)
                if attempt == TRIES:
                    self._limits.unanswered(backend.model, error)
                    raise GivenUp(f"{request.name}: {error}", bad_answers=False) from error
                pause = max(PAUSE * 2**attempt * random.uniform(0.5, 1), error.retry_after or 0)
                await asyncio.sleep(min(pause, LONGEST_PAUSE))
        raise AssertionError("unreachable")


def call_seed(run_seed: int, name: CallName) -> int:
    """The seed of a call, 0 … 2**31 - 1, from the run's seed and the call's name alone."""
    return int.from_bytes(sha256(f"{run_seed}|{name}".encode()).digest()[:4]) & 0x7FFFFFFF


def call_key(seat: Seat, request: Request) -> str:
    """The journal key: model, form, sampling and seed of a call, and what is asked, hashed one after the other."""
    form = _form_of(request.output_type)
    more = "" if request.sampling is seat.sampling else dumps(request.sampling)
    first, *others = request.messages or [{}]
    key = _begun(seat.digest, first.get("role"), first.get("content")).copy()
    key.update(f"{form} {request.seed} {more}\0".encode())
    if seat.backend.reads == "view" and isinstance(request.view, BaseModel):
        key.update(request.view.model_dump_json().encode())
    for message in others:
        key.update(_hashed(message["role"], message["content"]))
    return str(key.hexdigest())


@lru_cache(maxsize=4096)
def _begun(seat: str, role: str | None, content: str | None) -> Any:
    """The hash over a seat and a first message, if any, which most calls of an episode's role have in common."""
    begun = sha256(f"{seat}\0".encode())
    if role is not None and content is not None:
        begun.update(_hashed(role, content))
    return begun


def _hashed(role: str, content: str) -> bytes:
    return f"{role}\0{content}\0".encode(errors="surrogatepass")


@lru_cache(maxsize=1024)
def _form_of(output_type: type[Answer]) -> str:
    return digest(output_type.model_json_schema())
