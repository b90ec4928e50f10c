"""Task completion: judged by any evaluator that reads a transcript, or given by people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from triagesim.measures.verdicts import Part, Role, Verdict, values_of


class Turn(Part):
    """One turn of a conversation."""

    role: Role
    text: str


class Transcript(Part):
    """What a judge reads to decide whether a task was completed."""

    request: str = Field(description="What the person asked for")
    turns: list[Turn] = Field(description="The conversation, oldest first")
    result: str | None = Field(default=None, description="What was produced: the final artifact or report, as text")


class TaskCompletion(Part):
    """Whether a session achieved what the person asked for, and how well."""

    completed: bool = Field(description="The person's request was achieved")
    quality: Annotated[int, Field(ge=1, le=5, description="How well it was done, from 1 (poorly) to 5 (very well)")]
    reason: str | None = Field(default=None, description="Why, in a sentence")


def completion_rate(verdicts: Iterable[Verdict[TaskCompletion] | TaskCompletion]) -> float | None:
    """The share of sessions that were completed; None for none.

    Args:
        verdicts: one a session: an evaluator's verdict, or a plain value, such as a person's feedback.
    """
    values = values_of(verdicts)
    return sum(value.completed for value in values) / len(values) if values else None
