"""An episode as the metrics of `triagesim.utils` read it: the nurse's trace, what the environment knows, the truth."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from triagesim.backends.agenda.understanding import pain_score, read
from triagesim.lenient import mapping, mappings
from triagesim.resources import load_yaml

_NEXT_PART = re.compile(r"[;\n]|[.!?](?=\s|$)|\bbut\b")
_NEXT_ITEM = re.compile(r",|\+|&|\band\b")
# A number by itself ("Six", "pain 7") is a score only in a part of so few words.
_FEW = 2
_WORD = re.compile(r"\w+")
_LETTERS = re.compile(r"[^\W\d_]{2}")


def environment_view(episode: Mapping[str, Any]) -> dict[str, Any]:
    """The `trace`, `belief` and `ground_truth` that `compute_all_metrics` takes.

    Of a run file that has them already they are these. In the view of an episode only what the nurse said and its end
    state a level, an explanation stands beside the action, and flags are in lower case.

    `belief` holds a slot only where something was found: "none", "declined to say" and what was denied are no finding.
    Its texts are the dialogue master's record; without a master it is what the environment knows: the vital signs that
    were measured, the logged flags, and the complaint once the patient stated it. Nobody infers red flags, so
    `red_flags` is empty.
    """
    whole = mapping(episode)
    if "belief" in whole or "ground_truth" in whole:
        return {"trace": whole.get("trace"), "belief": whole.get("belief"), "ground_truth": whole.get("ground_truth")}
    return {
        "trace": [_step(step) for step in mappings(whole.get("trace"))],
        "belief": _belief(whole),
        "ground_truth": dict(mapping(whole.get("case"))),
    }


def phrases(words: tuple[str, ...]) -> re.Pattern[str]:
    """What finds any of some words in a text; `*` stands for any ending."""
    options = "|".join(re.escape(word).replace(r"\*", r"\w*") for word in words)
    return re.compile(rf"(?<!\w)(?:{options})(?!\w)", re.IGNORECASE)


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    kind = step.get("action")
    action: dict[str, Any] = {"type": kind}
    if kind == "check_vital":
        action["vital"] = step.get("vital")
    elif kind == "log_red_flag":
        action["red_flags"] = step.get("red_flags")
    else:
        action |= {"utterance": step.get("utterance"), "triage": step.get("triage")}
    kept = {name: step.get(name) for name in ("turn", "triage", "confidence", "explanation")}
    return {"actor": "nurse", **kept, "action": action, "red_flags_proposed": step.get("red_flags")}


def _belief(episode: Mapping[str, Any]) -> dict[str, Any]:
    history = mappings(episode.get("history"))
    measured = [line.get("name") for line in history if line.get("event") == "vital" and line.get("value") is not None]
    logged = episode.get("red_flags")
    flags = [flag for flag in logged if isinstance(flag, str)] if isinstance(logged, list) else []
    belief: dict[str, Any] = {
        "associated_symptoms": [],
        "red_flags": [],
        "vitals_known": sorted({name for name in measured if isinstance(name, str)}),
        "red_flags_logged": sorted({" ".join(flag.lower().split()) for flag in flags} - {""}),
    }
    record = {field: text for field, text in mapping(episode.get("record")).items() if isinstance(text, str)}
    if "judge" not in mapping(episode.get("models")) and not any(map(_says_something, record.values())):
        return {**belief, **_complaint_stated(episode, history)}
    return {**belief, **_recorded(record, _turns(history))}


def _recorded(record: dict[str, str], turns: dict[str, int]) -> dict[str, Any]:
    """The slots that the texts of a triage record fill."""
    complaint, pain = record.get("chief_complaint", ""), record.get("pain", "")
    severity = _severity(pain)
    found: dict[str, tuple[str, list[Any]]] = {
        "chief_complaint": ("chief_complaint", [complaint] if _says_something(complaint) else []),
        "pain_location": ("pain", _places(pain) or (_places(complaint) if _names_pain(complaint) else [])),
        "pain_severity": ("pain", [] if severity is None else [severity]),
        "duration": ("onset_and_course", [record.get("onset_and_course", "")]),
        "associated_symptoms": ("associated_symptoms", _symptoms(record.get("associated_symptoms", ""))),
    }
    if not _found("durations", found["duration"][1][0]):
        del found["duration"]
    slots = {slot: [_item(value, turns.get(field)) for value in values] for slot, (field, values) in found.items()}
    return {slot: items for slot, items in slots.items() if items or slot == "associated_symptoms"}


def _item(value: Any, turn: Any) -> dict[str, Any]:
    return {"value": value, "source": "patient", "turn": turn, "certainty": "explicit"}


def _turns(history: list[Mapping[str, Any]]) -> dict[str, int]:
    """The turn in which each field of the record was last written."""
    return {
        field: line.get("turn", 0)
        for line in history
        for field in mapping(mapping(line.get("information")).get("recorded"))
    }


def _complaint_stated(episode: Mapping[str, Any], history: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The complaint, from the first reply on that shares a finding or a word of its own with it."""
    complaint = mapping(episode.get("case")).get("chief_complaint")
    if not isinstance(complaint, str) or not complaint.strip():
        return {}
    findings, words = read(complaint).mentioned, _own_words(complaint)
    for line in history:
        text = line.get("utterance")
        if line.get("actor") != "patient" or not isinstance(text, str):
            continue
        if findings & read(text).present or words & _own_words(text):
            return {"chief_complaint": [_item(complaint, line.get("turn"))]}
    return {}


def _own_words(text: str) -> set[str]:
    """The words of a text that say what is wrong, by their first five letters, so that endings don't matter."""
    words = {word for word in _WORD.findall(text.lower()) if len(word) > 2} - set(_data()["common"])
    return {word[:5] for word in words}


def _says_something(text: str) -> bool:
    """Whether a text of the record holds a finding at all."""
    if text.strip(" .,;!").lower() in _data()["no_finding"]:
        return False
    return any(_WORD.search(part) for part in _affirmed(text))


def _affirmed(text: str) -> Iterator[str]:
    """What the parts of a text say that is there, each up to where it begins to deny."""
    for part in _NEXT_PART.split(text):
        start = _words("denies").search(part)
        kept = part[: start.start()] if start else part
        if kept.strip(" .,").lower() not in _data()["no_finding"]:
            yield kept


def _symptoms(text: str) -> list[str]:
    """The associated symptoms that a text lists as there."""
    items = [item for part in _affirmed(text) for item in _NEXT_ITEM.split(part)]
    plain = [_lead_in().sub("", item.strip(" .,")).strip() for item in items]
    known: dict[str, str] = {}
    for item in plain:
        if _LETTERS.search(item) and item.lower() not in _data()["no_finding"]:
            known.setdefault(item.lower(), item)
    return list(known.values())


def _places(text: str) -> list[str]:
    """The parts of the body that a text names, without those of which pain is denied."""
    said = [part for part in _NEXT_PART.split(text) if not _words("denies").match(part.strip())]
    return list(dict.fromkeys(match[0].lower() for part in said for match in _words("places").finditer(part)))


def _severity(text: str) -> float | str | None:
    """A pain score (of 10), or a word for how strong; the last one of each, since it is the latest."""
    said = [part.strip() for part in _NEXT_PART.split(text) if not _words("denies").match(part.strip())]
    scores = [pain_score(part, asked=len(part.split()) <= _FEW) for part in said]
    words = [match[0].lower() for part in said for match in _words("severity").finditer(part)]
    return next((score for score in reversed(scores) if score is not None), words[-1] if words else None)


def _names_pain(text: str) -> bool:
    return bool(re.search(r"pain|ache|\bhurt|sore|cramp", text.lower()))


def _found(name: str, text: str) -> bool:
    return bool(re.search(rf"(?<!\w)(?:{'|'.join(_data()[name])})(?!\w)", text.lower()))


def _data() -> dict[str, Any]:
    data: dict[str, Any] = load_yaml("metrics.yaml")["record"]
    return data


@cache
def _words(name: str) -> re.Pattern[str]:
    return phrases(tuple(_data()[name]))


@cache
def _lead_in() -> re.Pattern[str]:
    return re.compile(rf"^(?:(?:{'|'.join(_data()['lead_in'])})\b[\s,]*)+", re.IGNORECASE)
