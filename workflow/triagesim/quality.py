"""Quality of a case: which values can be true, by `resources/quality.yaml`; what is changed is flagged and kept raw.

Everything here takes a row in the names of `triagesim.cases.Case` (vital signs under `vitals`). Cleaning a clean row
changes nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal

from triagesim.resources import load_yaml

Unit = Literal["F", "C"]
PainStatus = Literal["score", "unable_to_assess", "critical", "intubated", "asleep", "described", "not_recorded"]

#: What the source had, by field, where `clean` changed it.
SOURCE_VALUES = "source_values"

_DECIMAL_COMMA = re.compile(r"[-+]?\d{1,3},\d{1,2}")
_MEASURED = re.compile(r"([-+]?[\d.,]++)\s*(\S.*)")
_SCORE = r"(\d+(?:\.\d+)?)"
_NUMBER = re.compile(_SCORE)
_OUT_OF_TEN = re.compile(rf"{_SCORE} ?(?:/|out of) ?10")
_RANGE = re.compile(rf"{_SCORE} ?(?:-|–|to) ?{_SCORE}(?: ?/ ?10)?")
_TOP = 10


class Reject(Exception):
    """A row can't be a case.

    Attributes:
        code: a key of `rejects` in `resources/quality.yaml`.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Notes:
    """A row while it is cleaned: its flags, each a key of `flags`, and the source's own values of what was changed."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.row = dict(row)
        self._flags = dict.fromkeys(_names(row.get("flags")))
        own = row.get(SOURCE_VALUES)
        self._values: dict[str, Any] = dict(own) if isinstance(own, dict) else {}

    def flag(self, name: str) -> None:
        """Add a flag; one that the data doesn't explain is an error of the code."""
        assert name in rules()["flags"], name
        self._flags[name] = None

    def change(self, field: str, old: Any, flag: str) -> None:
        """Flag a changed field and keep what the source had there."""
        self.flag(flag)
        self._values.setdefault(field, old)

    def result(self) -> dict[str, Any]:
        """The row with `flags` and `source_values`, where there are any."""
        found = {"flags": list(self._flags), SOURCE_VALUES: self._values}
        return self.row | {key: value for key, value in found.items() if value}


def rules() -> dict[str, Any]:
    """The content of `resources/quality.yaml`."""
    content: dict[str, Any] = load_yaml("quality.yaml")
    return content


def clean(row: Mapping[str, Any], unit: Unit) -> dict[str, Any]:
    """A row with its values repaired or taken out where they can't be true.

    Args:
        unit: of the source's temperatures (`temperature_unit`).

    Raises:
        Reject: the row's level is none of 1 to 5.
    """
    notes = Notes(row)
    _acuity(notes)
    _vitals(notes, unit)
    _pain(notes)
    _complaint(notes)
    if _number(row.get("age"), None, "age") is None:
        notes.flag("age_unknown")
    return notes.result()


def renamed(names: Iterable[str]) -> dict[str, str]:
    """The names among these that aren't read, each with the one that is, unless that is there too."""
    found = list(names)
    known = {name: rules()["renamed"].get(name.lower()) for name in found}
    return {name: right for name, right in known.items() if right and right not in found}


def temperature_unit(values: Iterable[Any]) -> Unit:
    """The unit that most of a source's temperatures are in; °F if neither is."""
    limits = rules()["temperature"]
    counts = {"C": 0, "F": 0}
    for value in values:
        number, written = _measured("temperature", value)
        if written:
            counts[written] += 1
        elif _is_number(number := _number(number, None, "temperature")):
            counts["C"] += _within(number, limits["taken_as_celsius"])
            counts["F"] += _within(number, limits["taken_as_fahrenheit"])
    return "C" if counts["C"] > counts["F"] else "F"


@lru_cache(maxsize=4096)
def pain_status(pain: str | float | None) -> PainStatus:
    """What the value of `Case.pain` says: a score, or why there is none."""
    if pain is None:
        return "not_recorded"
    if not isinstance(pain, str):
        return "score" if 0 <= pain <= _TOP else "unable_to_assess"
    return _status_of(_plain(pain)) or "not_recorded"


def complaints(text: str | None) -> list[str]:
    """The items of a complaint: it is a list with commas."""
    return [item.strip() for item in (text or "").split(",") if item.strip()]


def _acuity(notes: Notes) -> None:
    level = _number(notes.row.get("acuity"), notes, "acuity")
    if level is None:
        notes.flag("no_reference_acuity")
        notes.row["acuity"] = None
    elif not _is_number(level) or level not in (1, 2, 3, 4, 5):
        code = "acuity_out_of_range" if _is_number(level) else "invalid_value"
        found = notes.row["acuity"]
        raise Reject(code, f"acuity: expected a whole number from 1 to 5, or nothing (found {found!r:.60})")


def _vitals(notes: Notes, unit: Unit) -> None:
    """Vital signs, one by one, then pressures against each other."""
    vitals = notes.row.get("vitals")
    if not isinstance(vitals, dict):
        return
    checked = {name: _vital(notes, name, value, unit) for name, value in vitals.items()}
    dbp = _vital(notes, "dbp", notes.row.get("dbp"), unit)
    sbp = checked.get("sbp")
    if _is_number(sbp) and _is_number(dbp) and dbp >= sbp:
        notes.change("sbp", vitals["sbp"], "pressures_inverted")
        notes.change("dbp", notes.row["dbp"], "pressures_inverted")
        checked["sbp"] = dbp = None
    if all(value is None for value in checked.values()):
        notes.flag("vitals_missing")
    notes.row["vitals"] = checked
    if "dbp" in notes.row:
        notes.row["dbp"] = dbp


def _vital(notes: Notes, name: str, value: Any, unit: Unit) -> Any:
    bare, written = _measured(name, value)
    if written:
        notes.change(name, value, "unit_written")
    number = _number(bare, notes, name)
    limits = rules()["limits"].get(name)
    if limits is None or number is None:
        return number
    if not _is_number(number):
        notes.change(name, value, "vital_unreadable")
        return None
    if number == 0:
        notes.change(name, value, "vital_zero")
        return None
    if name == "temperature" and written:
        number, limits = _stated_temperature(number, written, unit, limits)
    elif name == "temperature":
        number, limits = _temperature(notes, number, value, unit, limits)
    if not _within(number, limits["hard"]):
        notes.change(name, value, f"{name}_implausible")
        return None
    if not _within(number, limits["soft"]):
        notes.flag(f"{name}_unusual")
    return number


def _measured(name: str, value: Any) -> tuple[Any, str | None]:
    """A sign's value without the unit that is written behind its number, and that unit; None where there is none."""
    match = _MEASURED.fullmatch(value.strip()) if isinstance(value, str) else None
    if match and _is_number(_number(match[1], None, name)):
        text = "".join(match[2].lower().split())
        for unit, texts in rules()["units"].get(name, {}).items():
            if text in texts:
                return match[1], unit
    return value, None


def _stated_temperature(number: float, written: str, unit: Unit, limits: Any) -> tuple[float, Any]:
    """The temperature in the source's unit, whichever it is written with, and the limits in it."""
    if written != unit:
        number = _converted(number, unit)
    return number, rules()["temperature"]["celsius"] if unit == "C" else limits


def _temperature(notes: Notes, number: float, raw: Any, unit: Unit, limits: Any) -> tuple[float, Any]:
    """The temperature in the source's unit, and the limits in it."""
    own = rules()["temperature"]
    if unit == "C":
        if _within(number, own["taken_as_fahrenheit"]):
            notes.change("temperature", raw, "temp_unit_assumed_fahrenheit")
            number = _converted(number, unit)
        return number, own["celsius"]
    if _within(number, own["taken_as_celsius"]):
        notes.change("temperature", raw, "temp_unit_assumed_celsius")
        number = _converted(number, unit)
    return number, limits


def _converted(number: float, unit: Unit) -> float:
    """A temperature of the other unit in this one, whole where it can be as `_number` has it."""
    found = round((number - 32) / 1.8 if unit == "C" else number * 1.8 + 32, 1)
    return int(found) if found.is_integer() else found


def _pain(notes: Notes) -> None:
    raw = notes.row.get("pain")
    value = _number(raw, notes, "pain")
    if isinstance(value, str):
        value = _pain_text(notes, raw, _plain(value))
    if _is_number(value):
        if value > _TOP:
            notes.change("pain", raw, "pain_gt_10")
            value = rules()["pain"]["above_ten"]["says"]
        elif value < 0:
            notes.change("pain", raw, "pain_unreadable")
            value = None
    notes.row["pain"] = value


def _pain_text(notes: Notes, raw: Any, text: str) -> str | float | None:
    """A score, words that say why there is none, or None."""
    if match := _OUT_OF_TEN.fullmatch(text):
        notes.change("pain", raw, "pain_out_of_ten")
        return float(match[1])
    if match := _RANGE.fullmatch(text):
        low, high = sorted(map(float, match.groups()))
        if high > _TOP:
            return high
        # The whole scale says nothing of the pain.
        whole = (low, high) == (0, _TOP)
        notes.change("pain", raw, "pain_unreadable" if whole else "pain_range")
        return None if whole else (low + high) / 2
    for flag, words in rules()["pain"]["zero"].items():
        if text in words:
            notes.change("pain", raw, flag)
            return 0
    status = _status_of(text)
    if status is None:
        notes.change("pain", raw, "pain_unreadable")
        return None
    group = rules()["pain"]["status"][status]
    if text not in group.get("short", ()):
        return str(raw).strip()
    notes.change("pain", raw, "pain_written_out")
    says: str = group["says"]
    return says


def _status_of(text: str) -> PainStatus | None:
    for status, group in rules()["pain"]["status"].items():
        words = [*group.get("words", ()), *group.get("short", ())]
        if text in words or text.startswith(tuple(group.get("begins", ()))):
            found: PainStatus = status
            return found
    return None


def _complaint(notes: Notes) -> None:
    raw = notes.row.get("chief_complaint")
    if not isinstance(raw, str):
        return
    data = rules()["complaint"]
    text = re.sub(data["redaction"], " ", raw)
    changes = ["complaint_redacted"] if text != raw else []
    items: list[str] = []
    arrivals: list[str] = []
    nothing = 0
    for item in complaints(text):
        plain = " ".join(item.lower().split())
        nothing += plain in data["nothing"]
        if plain in data["nothing"]:
            continue
        (arrivals if re.fullmatch(data["arrival"], plain) else items).append(" ".join(item.split()))
    changes += ["complaint_placeholder"] if nothing else []
    if arrivals and items:
        changes.append("arrival_in_complaint")
    for change in changes:
        notes.change("chief_complaint", raw, change)
    if arrivals:
        notes.row["arrival_flags"] = arrivals
        if not items:
            notes.flag("only_arrival_in_complaint")
    if changes:
        notes.row["chief_complaint"] = ", ".join(items or arrivals) or None
    if any(map(_is_diagnosis, items)):
        notes.flag("diagnosis_in_complaint")


@lru_cache(maxsize=65536)
def _is_diagnosis(item: str) -> bool:
    data, text = rules()["complaint"], item.lower()
    return any(re.search(pattern, text) for pattern in data["diagnoses"]) and not re.search(data["unless"], text)


def _number(value: Any, notes: Notes | None, field: str) -> Any:
    """A number, None where there is none, or the text as it stands if it is no number."""
    if isinstance(value, float):
        return None if math.isnan(value) else (int(value) if value.is_integer() else value)
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text or text.lower() in rules()["blank"]:
        return None
    if _DECIMAL_COMMA.fullmatch(text):
        text = text.replace(",", ".")
        if notes:
            notes.change(field, value, "decimal_comma")
    try:
        number = float(text)
    except ValueError:
        return value
    if not math.isfinite(number):
        return value
    return int(number) if number.is_integer() else number


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _within(number: float, ends: list[float]) -> bool:
    return ends[0] <= number <= ends[1]


def _plain(text: str) -> str:
    """A text for comparing: lower case, without quotes and end stops, single spaces."""
    return " ".join(text.lower().strip(" \"'“”.!?*").split())


def _names(value: Any) -> list[str]:
    if isinstance(value, str):
        return re.split(r"[;,\s]+", value.strip()) if value.strip() else []
    return [str(item) for item in value] if isinstance(value, list) else []
