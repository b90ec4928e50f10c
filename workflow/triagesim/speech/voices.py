"""Voices: what an engine can sound like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from triagesim.cases import explain
from triagesim.errors import InputError
from triagesim.resources import load_yaml

Speaker = Literal["nurse", "patient"]


class Person(BaseModel):
    """What a listener hears of who speaks.

    Attributes:
        accent, ethnicity: as a reader would call them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(min_length=1)
    gender: Literal["female", "male"]
    age_group: Literal["adult", "older"]
    accent: str
    ethnicity: str | None = None


class Voice(Person):
    """One voice of an engine.

    Attributes:
        parameters: what the engine needs to speak so; part of a rendered line's key.
        tempo: how much faster than usual this dialogue wants it; part of the key too.
        licence: of the recordings that it was cloned from; None for a voice that comes with its engine.
    """

    parameters: dict[str, str | int | float]
    tempo: float = Field(1.0, ge=0.7, le=1.4)
    licence: str | None = None


_VOICES = TypeAdapter(list[Voice])


def load_voices(engine: str) -> list[Voice]:
    """The voices in `resources/voices/<engine>.yaml`.

    Raises:
        InputError: an entry isn't a voice, two have one id, or there are fewer than two.
    """
    where = f"resources/voices/{engine}.yaml"
    try:
        voices = _VOICES.validate_python(load_yaml(f"voices/{engine}.yaml"))
    except ValidationError as error:
        raise InputError(f"{where}: {explain(error)}") from None
    check_ids(voices, where)
    return voices


def check_ids(people: Sequence[Person], where: str) -> None:
    """Make sure that there is a voice for each of two speakers.

    Raises:
        InputError: two have one id, or there are fewer than two.
    """
    if len({one.id for one in people}) < max(2, len(people)):
        raise InputError(f"{where}: expected at least two voices, each with an id of its own")
