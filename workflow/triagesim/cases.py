"""Cases: one emergency presentation each, the ground truth of an episode."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from triagesim.errors import InputError
from triagesim.governance import OPEN, Provenance
from triagesim.mimic import open_source, provenance_of_row
from triagesim.quality import PainStatus, Reject, Unit, clean, complaints, pain_status, renamed
from triagesim.sources import BadRow

Vital = Literal["temperature", "heartrate", "resprate", "o2sat", "sbp"]
VITALS: tuple[Vital, ...] = get_args(Vital)
#: What a reader is told that they are.
VITAL_NAMES: dict[Vital, str] = {
    "temperature": "temperature",
    "heartrate": "heart rate",
    "resprate": "breathing rate",
    "o2sat": "oxygen saturation",
    "sbp": "systolic pressure",
}
Scale = Literal["esi", "ats"]

CASE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
#: A body's temperature is in °F from this number on, else in °C.
FAHRENHEIT_FROM = 50
#: Below this age a companion would have to speak for the patient.
YOUNGEST = 16
# What a field holds may be nested so deep; far deeper, nothing can write it back.
_DEEPEST = 50

_ALIASES = {"stay_id": "case_id", "chiefcomplaint": "chief_complaint", "sex": "gender"}
_GENDERS = {"m": "male", "man": "male", "f": "female", "woman": "female"}


def _blank_to_none(value: Any) -> Any:
    """Blank text and NaN mean: not recorded."""
    if isinstance(value, bool):
        raise ValueError("expected a number or a text")
    if isinstance(value, str):
        return value.strip() or None
    return None if isinstance(value, float) and math.isnan(value) else value


def _whole(value: Any) -> Any:
    """`2`, `2.0`, `"2"` and `"2.0"` are the same whole number."""
    value = _blank_to_none(value)
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _texts(value: Any) -> Any:
    """A list of texts; one text is split at semicolons, as a CSV cell holds it."""
    value = _blank_to_none(value)
    if value is None:
        return []
    items = value.split(";") if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        return items
    return [item.strip() for item in items if item.strip()]


Number = Annotated[Annotated[float, Field(allow_inf_nan=False)] | None, BeforeValidator(_blank_to_none)]
Text = Annotated[str | None, BeforeValidator(_blank_to_none)]
Texts = Annotated[list[str], BeforeValidator(_texts)]


class PatientScript(BaseModel):
    """What a standardised patient knows and can say, in the patient's own plain words.

    Symptoms and history are phrases that follow "I have"; negatives are phrases that follow "no".
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    cognitive_state: Literal["alert", "impaired", "delirious"]
    intoxication: Literal["none", "mild", "marked"]
    story: str
    onset: str
    duration: str
    location: str
    quality: str
    severity: str
    associated_symptoms: tuple[str, ...]
    pertinent_negatives: tuple[str, ...]
    medical_history: tuple[str, ...]
    medications: tuple[str, ...]
    allergies: tuple[str, ...]
    social_history: str


class Case(BaseModel):
    """One presentation. Fields that aren't named here are kept and passed through to the artifact.

    Among these are `flags` and `source_values`, where reading it changed or doubted something (docs/cases.md).

    Attributes:
        vitals: temperature (°F, or °C below 50), heartrate (/min), resprate (/min), o2sat (%), sbp (mmHg);
            None where the source has no value.
        dbp: mmHg, kept but never asked for.
        acuity: ground truth on `acuity_scale`, 1 most urgent … 5 least; None when it isn't known.
        pain: 0 … 10, or the source's words ("unable"); `pain_status` says which.
        expert_red_flags: scored, never shown to a model.
        script: what the patient can tell, when the case's author wrote it.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    case_id: str
    chief_complaint: Text = None
    vitals: dict[Vital, Number] = Field(default_factory=dict)
    dbp: Number = None
    acuity: Annotated[Annotated[int, Field(ge=1, le=5)] | None, BeforeValidator(_whole)] = None
    acuity_scale: Annotated[Scale | None, BeforeValidator(_blank_to_none)] = None
    pain: Annotated[int | float | str | None, BeforeValidator(_whole)] = None
    gender: Text = None
    age: Annotated[Annotated[int, Field(ge=0, le=120)] | None, BeforeValidator(_whole)] = None
    arrival_transport: Text = None
    diagnoses: Texts = Field(default_factory=list)
    medications: Texts = Field(default_factory=list)
    prior_ed_visits: Annotated[Annotated[int, Field(ge=0, le=100_000)] | None, BeforeValidator(_whole)] = None
    expert_red_flags: Texts = Field(default_factory=list)
    script: Annotated[PatientScript | None, BeforeValidator(_blank_to_none)] = None
    provenance: Annotated[Provenance | None, BeforeValidator(_blank_to_none)] = None

    @model_validator(mode="before")
    @classmethod
    def _flat_columns(cls, data: Any) -> Any:
        """Accept MIMIC's column names, and vital signs as columns of their own."""
        if not isinstance(data, dict):
            return data
        for name, value in data.items():
            _check_depth(name, value)
        return canonical(data)

    @field_validator("case_id", mode="before")
    @classmethod
    def _plain_id(cls, value: Any) -> Any:
        value = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else value
        if isinstance(value, str) and not CASE_ID.fullmatch(value):
            raise ValueError("expected 1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or a digit")
        return value

    @field_validator("gender")
    @classmethod
    def _plain_gender(cls, value: str | None) -> str | None:
        return value and _GENDERS.get(value.lower(), value.lower())

    @field_validator("acuity_scale", mode="before")
    @classmethod
    def _lower_scale(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @property
    def pain_status(self) -> PainStatus:
        """`score`, or why there is none."""
        return pain_status(self.pain)

    @property
    def pain_score(self) -> float | None:
        """0 … 10; None where the pain couldn't be assessed or wasn't recorded."""
        return self.pain if isinstance(self.pain, int | float) and self.pain_status == "score" else None

    @property
    def complaints(self) -> list[str]:
        """The items of the complaint."""
        return complaints(self.chief_complaint)

    @property
    def age_group(self) -> str | None:
        """`adult`, or `older` from 65 on; None when the age isn't known."""
        return age_group_of(self.age)

    def why_not(self) -> str | None:
        """Why this case can't be simulated, or None when it can."""
        if self.acuity is None:
            return "no ground-truth acuity"
        if self.chief_complaint is None:
            return "no chief complaint"
        if self.age is not None and self.age < YOUNGEST:
            return f"under {YOUNGEST}: a companion would have to speak for the patient"
        return None


def with_unit(name: str, value: float) -> str:
    """A vital sign of `Case.vitals` as the nurse reads it off; a temperature in the unit that it is in."""
    units = {"heartrate": "/min", "resprate": "/min", "o2sat": "%", "sbp": "mmHg"}
    return f"{value:g} {units.get(name) or ('°F' if value >= FAHRENHEIT_FROM else '°C')}"


def celsius(temperature: float) -> float:
    """A temperature of `Case.vitals` in °C."""
    return (temperature - 32) / 1.8 if temperature >= FAHRENHEIT_FROM else temperature


def _check_depth(name: str, value: Any) -> None:
    """Refuse a field of lists in lists (or objects) without end."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise ValueError(f"{name}: nested more than {_DEEPEST} deep")


def age_group_of(age: int | None) -> str | None:
    """The age group of an age in years, as the personas have it."""
    return None if age is None else ("older" if age >= 65 else "adult")


#: So many of an input's errors are named; a model can make thousands.
_MOST_ERRORS = 5


def explain(error: ValidationError, whole: str = "row") -> str:
    """A pydantic error as `key: what was expected (found …)`, all of them in one line; `whole`: what has the keys."""
    parts = []
    errors = error.errors()
    for item in errors[:_MOST_ERRORS]:
        key = ".".join(map(str, item["loc"])) or whole
        found = "" if item["type"] == "missing" else f" (found {item['input']!r:.60})"
        parts.append(f"{key}: {item['msg'].removeprefix('Value error, ')}{found}")
    if len(errors) > _MOST_ERRORS:
        parts.append(f"and {len(errors) - _MOST_ERRORS} more")
    return "; ".join(parts)


def canonical(data: Mapping[str, Any]) -> dict[str, Any]:
    """A raw row in the names of `Case`, with its vital signs under `vitals`."""
    row = {_ALIASES.get(key, key) if _ALIASES.get(key) not in data else key: value for key, value in data.items()}
    nested = row.get("vitals") or {}
    if not isinstance(nested, dict):
        return row
    vitals = {**{name: row.pop(name) for name in VITALS if name in row}, **nested}
    if "dbp" in vitals:
        row["dbp"] = vitals.pop("dbp")
    row["vitals"] = {name: vitals.pop(name, None) for name in VITALS} | vitals
    return row


def make_case(row: Mapping[str, Any], unit: Unit, provenance: Provenance | None = None) -> Case:
    """The case that a raw row holds: cleaned, flagged, and with where it comes from.

    Args:
        unit: of the source's temperatures.
        provenance: of the source, as far as it is known; a stricter one of the row's own counts.

    Raises:
        Reject: the row can't be a case.
    """
    names = {_ALIASES.get(name, name): None for name in row}
    nested = row.get("vitals")
    if wrong := renamed([*names, *(nested if isinstance(nested, dict) else ())]):
        raise Reject("renamed_field", "; ".join(f"{name}: is called {right} here" for name, right in wrong.items()))
    for name in (*VITALS, "dbp"):
        if isinstance(nested, dict) and name in row and name in nested and row[name] != nested[name]:
            raise Reject("invalid_value", f"{name}: stands twice, in `vitals` with another value than beside it")
    try:
        case = Case.model_validate(clean(canonical(row), unit))
    except ValidationError as error:
        code = "invalid_id" if all(item["loc"] == ("case_id",) for item in error.errors()) else "invalid_value"
        raise Reject(code, explain(error)) from None
    keeps = case.provenance is not None and case.provenance not in OPEN
    origin = provenance_of_row(row, case.provenance if keeps else provenance or case.provenance)
    return case if origin == case.provenance else case.model_copy(update={"provenance": origin})


def load_cases(path: str | Path) -> list[Case]:
    """Load every case of a file or a MIMIC-IV-ED folder, in its order, with its values cleaned (`triagesim.quality`).

    Raises:
        InputError: a row can't be a case, or two rows have the same id (without regard to upper and lower case).
    """
    source = open_source(Path(path))
    cases: list[Case] = []
    lines: dict[str, int] = {}
    for file, number, row in source.rows():
        try:
            if isinstance(row, BadRow):
                raise Reject(row.code, row.text)
            case = make_case(row, source.unit)
        except Reject as reject:
            raise InputError(f"{file}, line {number}: {reject.text}") from None
        first = lines.setdefault(case.case_id.lower(), number)
        if first != number:
            raise InputError(
                f"{file}, line {number}: case_id {case.case_id!r} is already at line {first}; ids are unique"
            )
        cases.append(case)
    details = source.details({case.case_id for case in cases})
    return [case.model_copy(update=details[case.case_id]) if case.case_id in details else case for case in cases]
