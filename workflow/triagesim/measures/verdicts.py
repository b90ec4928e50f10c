"""What an evaluator says, and an evaluator that is a plain function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from time import perf_counter
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

#: Who acted: a person, an agent, or the system itself.
Role = Literal["person", "agent", "system"]

S = TypeVar("S")
V = TypeVar("V")


class Part(BaseModel):
    """A part of what is measured, or a measure: it has no other fields than its own."""

    model_config = ConfigDict(extra="forbid")


class Verdict(Part, Generic[V]):
    """What an evaluator says of one subject.

    Attributes:
        value: the measure.
        evaluator, version: what said it; equal versions of an evaluator say the same of the same subject.
        confidence: 0 … 1; None where nothing was judged.
        latency: seconds that it took.
        cost: US dollars that it took.
    """

    value: V
    evaluator: str
    version: str
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    latency: Annotated[float, Field(ge=0)] | None = None
    cost: Annotated[float, Field(ge=0)] | None = None


class FunctionEvaluator(Generic[S, V]):
    """An evaluator that computes its verdict: no model, no judgement, no cost.

    Args:
        function: computes the measure of a subject.
        name, version: of the evaluator, as its verdicts carry them.
    """

    def __init__(self, function: Callable[[S], V], *, name: str, version: str) -> None:
        self._function = function
        self.name = name
        self.version = version

    async def evaluate(self, subject: S) -> Verdict[V]:
        """The verdict on one subject."""
        begun = perf_counter()
        value = self._function(subject)
        taken = perf_counter() - begun
        return Verdict[V](value=value, evaluator=self.name, version=self.version, latency=taken, cost=0.0)


def values_of(verdicts: Iterable[Verdict[V] | V]) -> list[V]:
    """The values of verdicts, and plain values as they are."""
    return [item.value if isinstance(item, Verdict) else item for item in verdicts]


def check_window(window: timedelta) -> timedelta:
    """The window, which is no negative one.

    Raises:
        ValueError: it is.
    """
    if window < timedelta(0):
        raise ValueError(f"window {window}: is negative; give how long a person has, such as timedelta(hours=24)")
    return window


def check_clock(times: Iterable[datetime]) -> None:
    """Times that are compared all name their zone, or none does.

    Raises:
        ValueError: some do and some don't.
    """
    if len({time.utcoffset() is None for time in times}) > 1:
        raise ValueError("times with and without a time zone are mixed; give all of them one (datetime.UTC)")


def in_seconds(window: timedelta) -> str:
    """A duration in seconds, exactly: `3600s`, `0.5s`."""
    whole = window.days * 86400 + window.seconds
    return f"{whole}{f'.{window.microseconds:06d}'.rstrip('0').rstrip('.')}s"
