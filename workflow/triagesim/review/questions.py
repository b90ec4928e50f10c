"""What a rater is asked, from `resources/review.yaml`, and the columns of the files that go out and come back."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from triagesim.cases import Scale
from triagesim.resources import load_yaml

Answer = Literal[1, 2, 3, 4, 5]
#: The level that the rater would give; its scale is the dialogue's own.
LEVEL = "level"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Question(_Part):
    """A question about a whole dialogue.

    Attributes:
        scale: what each answer stands for.
        check: the dialogue master's judgement that asks the same of every line.
        acceptable: the lowest answer that counts as passed beside it.
    """

    title: str
    question: str
    scale: dict[Answer, str]
    check: str | None = None
    acceptable: Answer = 3


class Levels(_Part):
    """A scale of triage, as the form explains it."""

    title: str
    scale: dict[Answer, str]


class Questions(_Part):
    """All that is asked; `rewritten`: the share of a line that a rewrite changes at least."""

    questions: dict[str, Question]
    levels: dict[Scale, Levels]
    rewritten: Annotated[float, Field(ge=0, le=1)]


@cache
def asked() -> Questions:
    """The questions of `resources/review.yaml`."""
    return Questions.model_validate(load_yaml("review.yaml"))


def columns() -> list[str]:
    """The columns of a review file: a row without `line` holds an item's answers, one with it a line and its edit."""
    return ["rater", "item", "line", "speaker", "text", "edit", *asked().questions, LEVEL, "comment"]
