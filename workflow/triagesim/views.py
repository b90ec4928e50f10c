"""What each agent may see: one declared table, and the views that are made from it.

A view is all that a role knows at a step. Prompts are rendered from views and from nothing else, and the agenda
backend reads them as they are, so a fact that isn't here can't leak.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from triagesim.cases import Case, PatientScript, Vital

Viewer = Literal["nurse", "patient", "master"]

#: Who may be told which field of a case. A field that isn't listed (race, disposition, stay ids, anything that a
#: source adds) is shown to nobody. Vital signs reach the nurse one by one, by measuring. The patient and the nurse
#: never hear the acuity's number: the patient is told in words how unwell it is.
VISIBLE: dict[str, frozenset[Viewer]] = {
    "gender": frozenset({"nurse", "patient", "master"}),
    "age": frozenset({"patient", "master"}),
    "age_group": frozenset({"nurse", "patient", "master"}),
    "arrival_transport": frozenset({"nurse", "patient", "master"}),
    "chief_complaint": frozenset({"patient", "master"}),
    "pain": frozenset({"patient", "master"}),
    "unwell": frozenset({"patient", "master"}),
    "script": frozenset({"patient", "master"}),
    "vitals": frozenset({"master"}),
    "acuity": frozenset({"master"}),
    "diagnoses": frozenset({"master"}),
    "medications": frozenset({"master"}),
    "prior_ed_visits": frozenset({"master"}),
}


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class Spoken(_View):
    """A line of the dialogue as both heard it."""

    speaker: Literal["nurse", "patient"]
    text: str


class Facts(_View):
    """The fields of a case that one viewer may know; the others are None."""

    gender: str | None = None
    age: int | None = None
    age_group: str | None = None
    arrival_transport: str | None = None
    chief_complaint: str | None = None
    pain: str | None = None
    unwell: str | None = None
    script: PatientScript | None = None


class NurseView(_View):
    """What the nurse knows before a step.

    Attributes:
        persona: level by trait.
        vitals: measured so far with their unit as text (`98.6 °F`); None where it could not be measured.
        record: the triage record, field by field; None without a dialogue master.
        actions, vitals_open: what the next step may do.
        heard_reply: the last line is a reply that the nurse hasn't acted on yet.
        infer: the vital that could not be measured and must be asked about now, or None.
    """

    algorithm: Literal["esi", "ats"]
    facts: Facts
    persona: dict[str, str]
    dialogue: tuple[Spoken, ...]
    vitals: dict[Vital, str | None]
    red_flags: tuple[str, ...]
    record: dict[str, str] | None
    actions: tuple[str, ...]
    vitals_open: tuple[Vital, ...]
    heard_reply: bool
    questions_asked: int
    questions_left: int
    infer: Vital | None


class PatientView(_View):
    """What the patient knows before it replies; the last line of `dialogue` is the nurse's."""

    facts: Facts
    persona: dict[str, str]
    dialogue: tuple[Spoken, ...]


def facts_for(viewer: Viewer, case: Case, *, age_group: str | None, unwell: str) -> Facts:
    """The part of a case that `viewer` may know, by the table `VISIBLE`.

    Args:
        age_group: of the drawn persona (`adult`, `older`).
        unwell: the acuity in plain words, for the patient.
    """
    known = {
        "gender": case.gender,
        "age": case.age,
        "age_group": age_group,
        "arrival_transport": case.arrival_transport,
        "chief_complaint": case.chief_complaint,
        "pain": None if case.pain is None else str(case.pain),
        "unwell": unwell,
        "script": case.script,
    }
    return Facts(**{name: value for name, value in known.items() if viewer in VISIBLE[name]})
