"""Cases: one emergency presentation each, the ground truth of an episode."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from triagesim.errors import InputError
from triagesim.governance import Provenance
from triagesim.jsonl import read_lines

Vital = Literal["temperature", "heartrate", "resprate", "o2sat", "sbp"]
VITALS: tuple[Vital, ...] = get_args(Vital)
Scale = Literal["esi", "ats"]

CASE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
#: Below this age a companion would have to speak for the patient.
YOUNGEST = 16

_ALIASES = {"stay_id": "case_id", "chiefcomplaint": "chief_complaint", "sex": "gender"}
_GENDERS = {"m": "male", "man": "male", "f": "female", "woman": "female"}


def _blank_to_none(value: Any) -> Any:
    """Blank text and NaN mean: not recorded."""
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
    return [item.strip() for item in items if item.strip()] if all(isinstance(i, str) for i in items) else items


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

    Attributes:
        vitals: temperature (°F, or °C below 50), heartrate (/min), resprate (/min), o2sat (%), sbp (mmHg);
            None where the source has no value.
        dbp: mmHg, kept but never asked for.
        acuity: ground truth on `acuity_scale`, 1 most urgent … 5 least; None when it isn't known.
        pain: 0 … 10, or the source's words ("unable").
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
    prior_ed_visits: Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(_whole)] = None
    expert_red_flags: Texts = Field(default_factory=list)
    script: PatientScript | None = None
    provenance: Annotated[Provenance | None, BeforeValidator(_blank_to_none)] = None

    @model_validator(mode="before")
    @classmethod
    def _flat_columns(cls, data: Any) -> Any:
        """Accept MIMIC's column names, and vital signs as columns of their own."""
        if not isinstance(data, dict):
            return data
        row = {_ALIASES.get(key, key) if _ALIASES.get(key) not in data else key: value for key, value in data.items()}
        nested = row.get("vitals") or {}
        if not isinstance(nested, dict):
            return row
        vitals = {**{name: row.pop(name) for name in VITALS if name in row}, **nested}
        if "dbp" in vitals:
            row["dbp"] = vitals.pop("dbp")
        row["vitals"] = {name: vitals.pop(name, None) for name in VITALS} | vitals
        return row

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
    def age_group(self) -> str | None:
        """`adult`, or `older` from 65 on; None when the age isn't known."""
        return None if self.age is None else ("older" if self.age >= 65 else "adult")

    def why_not(self) -> str | None:
        """Why this case can't be simulated, or None when it can."""
        if self.acuity is None:
            return "no ground-truth acuity"
        if self.chief_complaint is None:
            return "no chief complaint"
        if self.age is not None and self.age < YOUNGEST:
            return f"under {YOUNGEST}: a companion would have to speak for the patient"
        return None


def explain(error: ValidationError, whole: str = "row") -> str:
    """A pydantic error as `key: what was expected (found …)`, all of them in one line; `whole`: what has the keys."""
    parts = []
    for item in error.errors():
        key = ".".join(map(str, item["loc"])) or whole
        found = "" if item["type"] == "missing" else f" (found {item['input']!r:.60})"
        parts.append(f"{key}: {item['msg'].removeprefix('Value error, ')}{found}")
    return "; ".join(parts)


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line or item number, raw row) of a case file: `.jsonl`, `.json` (a list) or `.csv`.

    Raises:
        InputError: the file isn't there, isn't of these kinds, or can't be read as what it says it is.
    """
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name one file of cases (.jsonl, .json or .csv)")
    if not path.exists():
        raise InputError(f"{path}: no such file; data.source (or --cases) names a .jsonl, .json or .csv of cases")
    reader = {".jsonl": read_lines, ".json": _read_json, ".csv": _read_csv}.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: unknown kind of case file {path.suffix!r}; expected .jsonl, .json or .csv")
    return reader(path)


def load_cases(path: str | Path) -> list[Case]:
    """Load every case of a file, in its order.

    Raises:
        InputError: a row can't be a case, or two rows have the same id (without regard to upper and lower case).
    """
    cases: list[Case] = []
    lines: dict[str, int] = {}
    for number, row in read_rows(Path(path)):
        try:
            case = Case.model_validate(row)
        except ValidationError as error:
            raise InputError(f"{path}, line {number}: {explain(error)}") from None
        first = lines.setdefault(case.case_id.lower(), number)
        if first != number:
            raise InputError(
                f"{path}, line {number}: case_id {case.case_id!r} is already at line {first}; ids are unique"
            )
        cases.append(case)
    return cases


def _read_json(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON in UTF-8 ({error})") from None
    if not isinstance(rows, list):
        raise InputError(f"{path}: expected a list of cases, found {type(rows).__name__}")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise InputError(f"{path}, item {number}: expected an object in braces, found {type(row).__name__}")
        yield number, row


def _read_csv(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            names = [name.strip() for name in reader.fieldnames or []]
            if not {"case_id", "stay_id"} & set(names):
                hint = "; commas are read, not semicolons" if ";" in "".join(names) else ""
                found = ", ".join(names) or "nothing"
                raise InputError(f"{path}, line 1: no column case_id or stay_id among {found}{hint}")
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise InputError(f"{path}, line 1: the column {', '.join(twice)} is there more than once")
            reader.fieldnames = names
            for row in reader:
                if None in row or None in row.values():
                    raise InputError(f"{path}, line {reader.line_num}: expected {len(names)} cells, as in the header")
                yield reader.line_num, dict(row)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}); save the file as UTF-8") from None
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not CSV ({error})") from None
