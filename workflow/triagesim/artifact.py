"""The episode as it is stored: one JSON object a line, and the schema that it validates against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from triagesim.answers import Action, Confidence, Level
from triagesim.cases import Case, PatientScript, Scale, Vital

#: What an open field of the triage record holds.
UNKNOWN = "unknown"
#: Spoken words a minute, for `t`: a friendly interview (110–150), see `docs/artifact.md`.
SPEAKING_RATE = 150

RECORD_FIELDS = (
    "chief_complaint",
    "onset_and_course",
    "pain",
    "associated_symptoms",
    "relevant_history",
    "medications",
    "allergies",
)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Spoken(_Part):
    """One spoken line."""

    speaker: Literal["nurse", "patient"]
    text: str


class Information(_Part):
    """What passed with a reply, from each side; None where nobody read it."""

    disclosed: str
    understood: str | None = None
    conveyed: str | None = None
    recorded: dict[str, str] | None = None


class HistoryLine(_Part):
    """A line as it was said; which keys it has depends on who said it (`docs/artifact.md`)."""

    turn: int
    actor: Literal["nurse", "patient"]
    utterance: str
    t: float
    triage: Level | None = None
    action: Action | None = None
    infers: Vital | None = None
    in_transcript: bool | None = None
    information: Information | None = None
    verification: dict[str, Any] | None = None


def is_said(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of a history is a line that was heard: it has words, and wasn't kept out of the transcript."""
    text = entry.get("utterance")
    return isinstance(text, str) and text != "" and entry.get("in_transcript") is not False


class Event(_Part):
    """Something that happened between lines: a vital sign taken, or the end."""

    turn: int
    actor: Literal["system"]
    event: Literal["vital", "triage_end"]
    t: float
    name: Vital | None = None
    value: float | None = None
    measurable: bool | None = None
    triage: Level | None = None


class Step(_Part):
    """One nurse action as the nurse gave it."""

    turn: int
    understood: str | None
    action: Action
    vital: Vital | None
    utterance: str | None
    red_flags: list[str]
    explanation: str
    triage: Level
    confidence: Confidence
    feedback: str | None = None


class RoleUsage(_Part):
    """What one role's answers took; cost in US dollars as the provider reports it."""

    calls: int
    prompt: int
    completion: int
    reasoning: int
    cached: int
    cost: float


class Episode(BaseModel):
    """One episode.

    Attributes:
        models: model by role; `labels`: what a reader must know of a model wherever a figure of it stands.
        spec: hash of everything that produced the episode.
        record: the triage record: texts, and `vitals` by name.
    """

    model_config = ConfigDict(extra="forbid")

    episode_id: str
    pairing: str
    status: Literal["ok", "skipped", "error"]
    error: str | None = None
    skip_reason: str | None = None
    case: Case
    algorithm: Scale
    models: dict[str, str]
    labels: dict[str, str] = Field(default_factory=dict)
    features: dict[str, bool]
    nurse_persona: dict[str, Any]
    patient_persona: dict[str, Any]
    patient_script: PatientScript | None
    in_situ: dict[str, Any] | None = None
    in_situ_error: str | None = None
    script_error: str | None = None
    appearance: dict[str, Any] | None = None
    appearance_error: str | None = None
    end_reason: Literal["nurse_end", "max_turns", "error"] | None
    final_triage: Level | None
    num_turns: int
    transcript: list[Spoken]
    history: list[Annotated[HistoryLine | Event, Field(discriminator="actor")]]
    trace: list[Step]
    red_flags: list[str]
    record: dict[str, str | dict[Vital, float | None]]
    usage: dict[str, RoleUsage]
    spec: str
