"""What each agent may see: one declared table, and the views that are made from it.

A view is all that a role knows at a step. Prompts are rendered from views and from nothing else, and the agenda
backend reads them as they are, so a fact that isn't here can't leak.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from triagesim.cases import Case, PatientScript, Vital
from triagesim.governance import OPEN

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
#: Of patients whose data isn't open nobody is told a greater age, and no dataset tells one of a real patient: 90 stands
#: for 90 and over, as in de-identified data.
OLDEST_TOLD = 90
#: Of what the master may know, that which anybody at the desk knows when the patient arrives.
ON_ARRIVAL = frozenset({"gender", "age_group", "arrival_transport", "chief_complaint"})


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


class CaseFacts(Facts):
    """The fields of a case that the dialogue master may know: the viewers' together, and what only it may know.

    Attributes:
        vitals: every sign, in the units of `Case.vitals`; None where the case has no value.
    """

    acuity: int | None = None
    vitals: dict[Vital, float | None] = Field(default_factory=dict)
    diagnoses: tuple[str, ...] = ()
    medications: tuple[str, ...] = ()
    prior_ed_visits: int | None = None


class Redraft(_View):
    """A line that the dialogue master rejected, for the speaker who writes it anew."""

    draft: str
    critique: str


class Belief(_View):
    """The nurse's own last assessment, shown with the feature belief_state."""

    explanation: str
    triage: int
    confidence: str


class NurseView(_View):
    """What the nurse knows before a step.

    Attributes:
        persona: level by trait.
        vitals: measured so far with their unit as text (`98.6 °F`); None where it could not be measured.
        record: the triage record, field by field; None without a dialogue master.
        actions, vitals_open: what the next step may do.
        heard_reply: the last line is a reply that the nurse hasn't acted on yet.
        infer: the vital that could not be measured and must be asked about now, or None.
        appearance: what the dialogue master sees of the patient, by aspect (feature appearance).
        belief: with the feature belief_state.
        feedback: how near the last level is to the true one (feature feedback: it leaks the label).
        redraft: the nurse's own last draft of this step, which was rejected.
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
    appearance: dict[str, str] | None = None
    belief: Belief | None = None
    feedback: str | None = None
    redraft: Redraft | None = None


class PatientView(_View):
    """What the patient knows before it replies; the last line of `dialogue` is the nurse's."""

    facts: Facts
    persona: dict[str, str]
    dialogue: tuple[Spoken, ...]
    redraft: Redraft | None = None


class ArrivalView(_View):
    """For the in-situ check: what is seen on arrival, before a word is spoken and without any measurement.

    Attributes:
        observed: the source's words where a pain score would stand (`unable`, `intubated`); None for a score.
    """

    facts: Facts
    observed: str | None


class ScriptView(_View):
    """For the patient's script: the case, and the persona that is to tell it."""

    facts: CaseFacts
    persona: dict[str, str]


class AppearanceView(_View):
    """For what can be seen of the patient (feature appearance); `facts` without the script.

    Attributes:
        rejected: banned words of the answer before this one, which is asked for once more.
    """

    facts: CaseFacts
    rejected: tuple[str, ...] = ()


class PatientLineView(_View):
    """For the check of a patient's line: the case with the script, the patient, and what the line answers.

    Attributes:
        dialogue: up to and with the nurse's line that `draft` answers.
    """

    facts: CaseFacts
    persona: dict[str, str]
    dialogue: tuple[Spoken, ...]
    draft: str


class NurseLineView(_View):
    """For the check of a nurse's line: what the nurse has learnt, and nothing else of the case.

    Attributes:
        vitals: measured so far, as in `NurseView`.
        action: what the line is said with.
        appearance: as in `NurseView`.
    """

    facts: Facts
    persona: dict[str, str]
    dialogue: tuple[Spoken, ...]
    vitals: dict[Vital, str | None]
    action: Literal["check_vital", "utterance", "end"]
    draft: str
    appearance: dict[str, str] | None = None


class EditView(_View):
    """For the line that the master writes itself: the last draft as it was checked, and what was wrong with it."""

    line: PatientLineView | NurseLineView
    critique: str


class ReadingView(_View):
    """For the reading of an exchange: its words alone, and the triage record as it stands.

    Attributes:
        record: text by field of `triagesim.artifact.RECORD_FIELDS`, open fields with the unknown mark.
    """

    question: str
    reply: str
    record: dict[str, str]


class TranscriptView(_View):
    """For the judgement whether a finished episode did what the patient came for; no fact of the case beside the talk.

    Attributes:
        request: the complaint that the patient came with.
        result: the nurse's decision in words; None where it made none.
    """

    request: str
    dialogue: tuple[Spoken, ...]
    result: str | None


MasterView = ArrivalView | ScriptView | AppearanceView | PatientLineView | NurseLineView | EditView | ReadingView
View = NurseView | PatientView | MasterView | TranscriptView


def facts_for(viewer: Viewer, case: Case, *, age_group: str | None, unwell: str) -> Facts:
    """The part of a case that `viewer` may know, by the table `VISIBLE`.

    Args:
        age_group: of the drawn persona (`adult`, `older`).
        unwell: the acuity in plain words, for the patient.
    """
    known = _known(case, age_group, unwell)
    return Facts(**{name: known[name] for name in Facts.model_fields if viewer in VISIBLE[name]})


def case_facts(case: Case, *, age_group: str | None, unwell: str) -> CaseFacts:
    """The part of a case that the dialogue master may know, by the table `VISIBLE`; arguments as for `facts_for`."""
    known = _known(case, age_group, unwell)
    return CaseFacts(**{name: known[name] for name in CaseFacts.model_fields if "master" in VISIBLE[name]})


def arrival_view(case: Case, *, age_group: str | None) -> ArrivalView:
    """What the in-situ check may look at, by the table `ON_ARRIVAL`."""
    known = _known(case, age_group, "")
    observed = case.pain if isinstance(case.pain, str) and not any(char.isdigit() for char in case.pain) else None
    return ArrivalView(facts=Facts(**{name: known[name] for name in ON_ARRIVAL}), observed=observed)


def _known(case: Case, age_group: str | None, unwell: str) -> dict[str, Any]:
    """Every field of the table `VISIBLE` with its value."""
    age = case.age
    if age is not None and case.provenance is not None and case.provenance not in OPEN:
        age = min(age, OLDEST_TOLD)
    pain = None if case.pain is None else str(case.pain)
    derived = {"age": age, "age_group": age_group, "unwell": unwell, "pain": pain}
    return {name: derived[name] if name in derived else getattr(case, name) for name in VISIBLE}
