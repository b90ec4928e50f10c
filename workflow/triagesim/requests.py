"""What the engine asks a backend and what it gets back: one protocol for every backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

Role = Literal["nurse", "patient", "judge", "script"]
ROLES: tuple[Role, ...] = ("nurse", "patient", "judge", "script")


class Answer(BaseModel):
    """A typed answer of a model: every field required, no other key allowed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def grammar(cls) -> dict[str, Any]:
        """The JSON Schema that a constrained decoder should follow: as the model's own, or stricter."""
        return cls.model_json_schema()


class CallName(NamedTuple):
    """What a call is for. The name and the run's seed give the call's own seed, and nothing else does.

    `epoch` counts how often the episode was given up, so that a new try asks anew.
    """

    episode: str
    purpose: str
    turn: int
    step: int = 0
    draft: int = 0
    retry: int = 0
    epoch: int = 0

    def __str__(self) -> str:
        episode, purpose, turn, step, draft, retry, epoch = self
        return f"{episode}/{purpose}/t{turn}.s{step}.d{draft}.r{retry}.e{epoch}"


class Request(NamedTuple):
    """One question to a model.

    Attributes:
        messages: chat messages ({role, content}); empty for a backend that reads the view.
        view: the state as far as the role may know it (`triagesim.views`).
        sampling: temperature, max_tokens, top_p …, over the model's own defaults.
        seed: 0 … 2**31 - 1.
    """

    name: CallName
    role: Role
    messages: list[dict[str, str]]
    output_type: type[Answer]
    sampling: Mapping[str, Any]
    seed: int
    view: BaseModel | None = None


class Usage(NamedTuple):
    """Tokens and money of one or more answers; `cost` in US dollars, as the provider reports it."""

    prompt: int = 0
    completion: int = 0
    reasoning: int = 0
    cached: int = 0
    cost: float = 0.0

    def plus(self, other: Usage) -> Usage:
        """The sum of both, field by field."""
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.reasoning + other.reasoning,
            self.cached + other.cached,
            self.cost + other.cost,
        )


class Completion(NamedTuple):
    """A model's answer as it came: the text is not yet validated."""

    text: str
    finish_reason: str = "stop"
    usage: Usage = Usage()
    model: str = ""


class Backend(Protocol):
    """A source of answers.

    Attributes:
        model: as it is written into artifacts, `<backend>:<model id>`.
        identity: every option that can change an answer; part of the journal key.
        local: False for an endpoint that isn't declared local: patient data isn't sent there. None: not declared.
        reads: `messages`, or `view` when the backend needs no prompt.
        label: what a reader must know wherever a figure of this backend stands, or None.
        spare: whether one more request would be answered at once, beside those in flight.

    `complete` raises `AnswerError`, `BackendError` (may pass) or `StopRun` (won't).
    """

    @property
    def model(self) -> str: ...
    @property
    def identity(self) -> dict[str, Any]: ...
    @property
    def local(self) -> bool | None: ...
    @property
    def reads(self) -> Literal["messages", "view"]: ...
    @property
    def label(self) -> str | None: ...
    @property
    def spare(self) -> bool: ...

    async def start(self) -> None:
        """Load what is needed; called once, before the first `complete`."""

    async def complete(self, request: Request) -> Completion:
        """Answer one request; many run at once."""
        ...

    async def close(self) -> None:
        """Free what `start` took; called once, also when `start` wasn't."""
