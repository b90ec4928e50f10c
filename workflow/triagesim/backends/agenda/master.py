"""The agenda's dialogue master, by rules: would the patient talk at all, what is seen of it, and the master's own line.

Its other parts: `scripting` (the patient's script), `patient_check` and `nurse_check` (every line), `recording` (every
exchange).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from triagesim.backends.agenda.asking import questions_in
from triagesim.backends.agenda.nurse_check import check_nurse
from triagesim.backends.agenda.patient import reply
from triagesim.backends.agenda.patient_check import check_patient
from triagesim.backends.agenda.recording import reading
from triagesim.backends.agenda.scripting import script
from triagesim.backends.agenda.story import story_of
from triagesim.backends.agenda.triage import Facts as Known
from triagesim.backends.agenda.triage import Rule, rule
from triagesim.backends.agenda.understanding import ask, pain_score, read, tell_apart
from triagesim.backends.agenda.wording import Picker, start_large
from triagesim.cases import celsius
from triagesim.judging import Appearance, Edit, InSitu
from triagesim.requests import Answer
from triagesim.resources import load_yaml
from triagesim.views import (
    AppearanceView,
    ArrivalView,
    CaseFacts,
    EditView,
    Facts,
    MasterView,
    NurseLineView,
    PatientLineView,
    PatientView,
    ReadingView,
    ScriptView,
)

# How many of the patient's own answers are tried before a plain line is taken.
_TRIES = 3


def judge(view: MasterView, seed: int) -> Answer:
    """The master's answer to a view; it depends on the view and the seed alone."""
    match view:
        case ArrivalView():
            return in_situ(view)
        case ScriptView():
            return script(view, seed)
        case AppearanceView():
            return appearance(view, seed)
        case PatientLineView():
            return check_patient(view)
        case NurseLineView():
            return check_nurse(view)
        case ReadingView():
            return reading(view)
        case EditView():
            return edit(view, seed)


def in_situ(view: ArrivalView) -> InSitu:
    """Whether there would be a conversation, by what is seen on arrival."""
    data: dict[str, Any] = load_yaml("agenda/master.yaml")["in_situ"]
    complaint = view.facts.chief_complaint or "no complaint on record"
    seen = [text.lower().strip() for text in (*re.split(r"[,;]", complaint), view.observed or "")]
    over = re.compile(data["unless"])
    reasons = (
        says for text in seen if text and not over.search(text) for words, says in _silent() if words.search(text)
    )
    reason = next(reasons, None)
    arrival = (view.facts.arrival_transport or "").lower()
    filled = {
        "arrival": next((says for name, says in data["arrivals"].items() if name in arrival), ""),
        "complaint": f"“{complaint}”",
        "observed": f", noted as “{view.observed}”" if view.observed else "",
        "who": {"female": "her", "male": "him"}.get(view.facts.gender or "", "the patient"),
        "reason": reason or "",
    }
    text: str = data["talks"] if reason is None else data["silent"]
    for name, value in filled.items():
        text = text.replace(f"{{{name}}}", value)
    return InSitu(reasoning=text, conversation=reason is None)


def appearance(view: AppearanceView, seed: int) -> Appearance:
    """What is seen of the patient, aspect by aspect, from the complaint, the vital signs and the pain."""
    known, picker = _on_sight(view.facts), Picker(seed, [])
    seen = {
        aspect: picker.pick(next(wordings for holds, wordings in rules if holds.holds(known)))
        for aspect, rules in _looks().items()
    }
    return Appearance(**seen)


def edit(view: EditView, seed: int) -> Edit:
    """A plain line with the speaker's intent, the first of several that passes the master's own check."""
    line = view.line
    options = _for_nurse(line, seed) if isinstance(line, NurseLineView) else _for_patient(line, seed)
    tried = ""
    for tried in options:
        drafted = line.model_copy(update={"draft": tried})
        verdict = check_nurse(drafted) if isinstance(drafted, NurseLineView) else check_patient(drafted)
        if verdict.passed:
            break
    return Edit(utterance=tried)


def _for_patient(line: PatientLineView, seed: int) -> Iterator[str]:
    """The agenda patient's own answers to what was asked, then lines that fit any question."""
    facts = Facts(**{name: getattr(line.facts, name) for name in Facts.model_fields})
    asked = PatientView(facts=facts, persona=line.persona, dialogue=line.dialogue)
    for number in range(_TRIES):
        yield reply(asked, (seed + number) % 2**31).utterance
    yield from Picker(seed, []).shuffled(load_yaml("agenda/master.yaml")["edit"]["patient"])


def _for_nurse(line: NurseLineView, seed: int) -> Iterator[str]:
    """The draft's first question alone, another wording of what it asks, then lines that fit any interview."""
    picker = Picker(seed, [spoken.text for spoken in line.dialogue if spoken.speaker == "nurse"])
    if line.action == "utterance":
        for question in questions_in(line.draft):
            yield start_large(question.rstrip(" .?!")) + "?"
        yield from picker.fresh(_wordings(line.draft))
    else:
        yield from (text for text in tell_apart(line.draft) if not text.endswith("?"))
    yield from picker.shuffled(load_yaml("agenda/master.yaml")["edit"][line.action])


def _wordings(draft: str) -> list[str]:
    """The nurse's wordings of the item that a draft asks about."""
    question = ask(draft)
    for entry in load_yaml("agenda/nurse.yaml")["items"].values():
        asks = set(entry.get("asks", ()))
        if (asks and asks <= question.findings) or ("topic" in entry and entry["topic"] in question.topics):
            return [text.replace("{it}", "this") for text in (*entry["closed"], *entry["open"])]
    return []


def _on_sight(facts: CaseFacts) -> Known:
    """What decides how the patient looks."""
    complaint = Facts(chief_complaint=facts.chief_complaint)
    present = set(read(facts.chief_complaint or "").present)
    present.update(name for piece in story_of(complaint).pieces("complaint") for name in piece.findings)
    arrival = (facts.arrival_transport or "").lower()
    present |= {"older"} if facts.age_group == "older" else set()
    present |= {"ambulance"} if "ambulance" in arrival or "helicopter" in arrival else set()
    numbers: dict[str, float] = {name: value for name, value in facts.vitals.items() if value is not None}
    if "temperature" in numbers:
        numbers["temperature"] = celsius(numbers["temperature"])
    pain = pain_score(facts.pain or "", asked=True)
    return Known(frozenset(present), numbers if pain is None else {**numbers, "pain": pain})


@cache
def _looks() -> dict[str, list[tuple[Rule, list[str]]]]:
    """The rules of each aspect with what they say."""
    data: dict[str, Any] = load_yaml("agenda/master.yaml")["appearance"]
    return {
        aspect: [(rule({**entry, "says": aspect}), entry["says"]) for entry in entries]
        for aspect, entries in data.items()
    }


@cache
def _silent() -> list[tuple[re.Pattern[str], str]]:
    return [
        (re.compile(entry["words"]), entry["says"]) for entry in load_yaml("agenda/master.yaml")["in_situ"]["unable"]
    ]
