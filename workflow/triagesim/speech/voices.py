"""Voices: what an engine can sound like, and who of a dialogue gets which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from triagesim.cases import explain
from triagesim.errors import InputError
from triagesim.jsonl import digest
from triagesim.resources import load_yaml

Speaker = Literal["nurse", "patient"]

_GENDERS = {"f": "female", "w": "female", "m": "male"}


class Voice(BaseModel):
    """One voice of an engine.

    Attributes:
        accent: as a reader would call it.
        parameters: what the engine needs to speak so; part of a rendered line's key.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    gender: Literal["female", "male"]
    age_group: Literal["adult", "older"]
    accent: str
    parameters: dict[str, str | int | float]


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
    if len({voice.id for voice in voices}) < max(2, len(voices)):
        raise InputError(f"{where}: expected at least two voices, each with an id of its own")
    return voices


def cast(episode: Mapping[str, Any], voices: Sequence[Voice]) -> dict[Speaker, Voice]:
    """Choose the voices of an episode by gender and age group, never one for both.

    A patient keeps its voice through all episodes of its case, and a nurse persona has its own unless the patient
    has it. A gender or an age group that isn't known, or that no voice has, doesn't restrict the choice.
    """
    nurse, patient = episode.get("nurse_persona") or {}, episode.get("patient_persona") or {}
    case_id = episode["episode_id"].rpartition("-")[0]
    gender = patient.get("gender") or (episode.get("case") or {}).get("gender")
    patients = _draw(voices, gender, patient.get("age_group"), ["patient", case_id])
    others = [voice for voice in voices if voice.id != patients.id]
    return {"nurse": _draw(others, nurse.get("gender"), "adult", ["nurse", nurse]), "patient": patients}


def _draw(voices: Sequence[Voice], gender: str | None, age_group: str | None, seed: list[Any]) -> Voice:
    """The best voice by a hash of seed and voice id, so that a further voice changes few choices."""
    wanted = _GENDERS.get((gender or "").strip().lower()[:1])
    fitting = [voice for voice in voices if voice.gender == wanted] or voices
    fitting = [voice for voice in fitting if voice.age_group == age_group] or fitting
    return max(fitting, key=lambda voice: digest([seed, voice.id]))
