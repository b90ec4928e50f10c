"""What earlier stages stored, read with care: what every stage relies on is there, or the file and line are told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from triagesim.cases import Scale, Vital, explain
from triagesim.errors import InputError
from triagesim.jsonl import read_json, read_lines

T = TypeVar("T", bound=BaseModel)
Turn = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Mapping = dict[str, Any] | None


_Texts = list[str] | None


class _Script(TypedDict, total=False):
    cognitive_state: str | None
    intoxication: str | None
    story: str | None
    onset: str | None
    duration: str | None
    location: str | None
    quality: str | None
    severity: str | None
    associated_symptoms: _Texts
    pertinent_negatives: _Texts
    medical_history: _Texts
    medications: _Texts
    allergies: _Texts
    social_history: str | None


class _Case(TypedDict):
    case_id: _Text | int
    chief_complaint: NotRequired[str | None]
    vitals: NotRequired[dict[str, float | None] | None]
    dbp: NotRequired[float | None]
    prior_ed_visits: NotRequired[float | None]
    subject_id: NotRequired[str | float | None]
    acuity: NotRequired[float | None]
    acuity_scale: NotRequired[str | None]
    pain: NotRequired[float | str | None]
    provenance: NotRequired[str | None]
    diagnoses: NotRequired[_Texts]
    medications: NotRequired[_Texts]
    expert_red_flags: NotRequired[_Texts]
    script: NotRequired[_Script | None]
    gender: NotRequired[str | None]
    age: NotRequired[float | None]
    arrival_transport: NotRequired[str | None]


class _Check(TypedDict, total=False):
    passed: bool | None
    rejected: list[dict[str, Any]] | None


class _Information(TypedDict, total=False):
    disclosed: str | None
    conveyed: str | None
    understood: str | None
    recorded: dict[str, str] | None


class _Line(TypedDict):
    turn: Turn
    actor: Literal["nurse", "patient", "system"]
    utterance: NotRequired[str]
    event: NotRequired[str]
    name: NotRequired[Vital | None]
    infers: NotRequired[Vital | None]
    measurable: NotRequired[bool | None]
    in_transcript: NotRequired[bool | None]
    action: NotRequired[str | None]
    t: NotRequired[float]
    value: NotRequired[float | None]
    triage: NotRequired[int | None]
    information: NotRequired[_Information | None]
    verification: NotRequired[_Check | None]


class _Step(TypedDict):
    turn: Turn
    action: NotRequired[str | None]
    vital: NotRequired[Vital | None]
    understood: NotRequired[str | None]
    feedback: NotRequired[str | None]
    triage: NotRequired[int | None]
    utterance: NotRequired[str | None]
    explanation: NotRequired[str | None]
    confidence: NotRequired[str | None]
    red_flags: NotRequired[list[str] | None]


class _Spoken(TypedDict):
    speaker: Literal["nurse", "patient"]
    text: str


class _Usage(TypedDict):
    calls: int
    prompt: int
    completion: int
    reasoning: int
    cached: int
    cost: float


class _Episode(TypedDict):
    """What is read of an episode: all of ours, and of the published simulator's what it has."""

    episode_id: _Text
    status: Literal["ok", "skipped", "error"]
    case: _Case
    pairing: NotRequired[str | None]
    error: NotRequired[str | None]
    skip_reason: NotRequired[str | None]
    algorithm: NotRequired[Scale | None]
    models: NotRequired[dict[str, str] | None]
    labels: NotRequired[dict[str, str] | None]
    features: NotRequired[_Mapping]
    nurse_persona: NotRequired[dict[str, str | None] | None]
    patient_persona: NotRequired[dict[str, str | None] | None]
    patient_script: NotRequired[_Script | None]
    in_situ: NotRequired[_Mapping]
    appearance: NotRequired[_Mapping]
    end_reason: NotRequired[str | None]
    final_triage: NotRequired[int | None]
    num_turns: NotRequired[Turn | None]
    transcript: NotRequired[list[_Spoken] | None]
    history: NotRequired[list[_Line] | None]
    trace: NotRequired[list[_Step] | None]
    red_flags: NotRequired[list[str] | None]
    record: NotRequired[dict[str, str | dict[str, float | None] | None] | None]
    usage: NotRequired[dict[str, _Usage] | None]
    spec: NotRequired[str | None]


class _Voice(TypedDict):
    id: _Text
    gender: str
    accent: str | None


class _Voices(TypedDict):
    nurse: _Voice
    patient: _Voice


class _Engine(TypedDict):
    name: _Text
    version: str
    licence: str | None


class _Channels(TypedDict):
    nurse: Literal[0, 1]
    patient: Literal[0, 1]


class _Heard(TypedDict):
    word: str
    start: _Seconds
    end: _Seconds


class _Utterance(TypedDict):
    speaker: Literal["nurse", "patient"]
    text: str
    spoken: str
    start: _Seconds
    end: _Seconds
    words: NotRequired[list[_Heard] | None]


class _Recording(TypedDict):
    """What is read of a row of an audio manifest."""

    pairing: _Text
    episode_id: _Text
    file: Annotated[str, msgspec.Meta(pattern=r"^[^/\x00]+(/[^/\x00]+)*$")]
    sha256: _Text
    duration_s: _Seconds
    rate: Annotated[int, msgspec.Meta(ge=1)]
    lufs: float | None
    engine: _Engine
    voices: _Voices
    channels: _Channels
    lines: list[_Utterance]


#: What an episode of ours, which has a `spec`, always has.
_OURS = frozenset({"pairing", "algorithm", "models", "nurse_persona", "patient_persona", "end_reason", "final_triage"})
_OURS |= {"num_turns", "transcript", "history", "trace", "red_flags", "record", "usage"}


def read_episodes(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, episode) of a file of episodes.

    Raises:
        InputError: as `read_lines` does, and where a line is no episode.
    """
    for number, row in read_lines(path):
        check_episode(path, number, row)
        yield number, row


def read_recordings(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, row) of an audio manifest.

    Raises:
        InputError: as `read_lines` does, and where a row is none of a manifest.
    """
    for number, row in read_lines(path):
        problem = _unfit(row, _Recording)
        if problem is None and ".." in Path(row["file"]).parts:
            problem = "file: leads out of the folder"
        if problem:
            raise InputError(f"{path}, line {number}: no whole row ({problem}); delete the file and run again")
        yield number, row


def read_model(path: Path, model: type[T]) -> T:
    """The model that a JSON file holds.

    Raises:
        InputError: as `read_json` does, and where the file isn't of this model.
    """
    try:
        return model.model_validate(read_json(path))
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error, 'file')}; delete it and run again") from None


def check_episode(path: Path, number: int, episode: Mapping[str, Any]) -> None:
    """Make sure that a line has what every stage relies on.

    Raises:
        InputError: with its key, what was expected, and what to do.
    """
    if problem := _unfit(episode, _Episode) or _missing(episode):
        raise InputError(
            f"{path}, line {number}: no whole episode ({problem}); delete the file and run again: all answers are in "
            "the journal"
        )


def _unfit(value: Any, kind: Any) -> str | None:
    """Where a value isn't of a type, and what was expected there."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        return f"{where.rstrip('`')}: {what}" if where else what
    return None


def _missing(episode: Mapping[str, Any]) -> str | None:
    """What an episode lacks, as far as its keys depend on each other."""
    if "spec" in episode and (lacks := sorted(_OURS - episode.keys())):
        return f"no {', '.join(lacks)}"
    for field, text in (episode.get("record") or {}).items():
        if isinstance(text, dict) != (field == "vitals"):
            return f"record.{field}: expected {'vital signs by name' if field == 'vitals' else 'a text'}"
    for place, line in enumerate(episode.get("history") or ()):
        wanted = ["event"] if line["actor"] == "system" else ["utterance"]
        wanted += ["name", "value"] if line.get("event") == "vital" else []
        if lacks := [key for key in wanted if key not in line]:
            return f"history[{place}]: no {', '.join(lacks)}"
    return None
