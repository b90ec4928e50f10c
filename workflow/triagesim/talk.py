"""Where a dialogue stands, as values that never change, and the view that each role gets of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from triagesim.answers import NurseStep
from triagesim.artifact import RECORD_FIELDS, UNKNOWN
from triagesim.cases import Case, PatientScript, Scale, Vital, with_unit
from triagesim.config import Features
from triagesim.judging import Appearance, Reading
from triagesim.personas import Persona, traits_of
from triagesim.prompts import unwell
from triagesim.protocol import Allowed, NurseState, apply, is_spoken, names_level, new_flags
from triagesim.views import (
    AppearanceView,
    ArrivalView,
    Belief,
    CaseFacts,
    Facts,
    NurseLineView,
    NurseView,
    PatientLineView,
    PatientView,
    ReadingView,
    Redraft,
    ScriptView,
    Spoken,
    arrival_view,
    case_facts,
    facts_for,
)


@dataclass(frozen=True)
class Scene:
    """What stays the same through an episode.

    Attributes:
        nurse, patient: level by trait.
        nurse_facts, patient_facts, master_facts: of the case, what each may know.
        features: which optional parts are on.
        appearance: what the dialogue master sees of the patient, by aspect.
    """

    case: Case
    algorithm: Scale
    nurse: dict[str, str]
    patient: dict[str, str]
    nurse_facts: Facts
    patient_facts: Facts
    master_facts: CaseFacts
    features: Features
    appearance: dict[str, str] | None = None

    @classmethod
    def of(cls, case: Case, algorithm: Scale, nurse: Persona, patient: Persona, features: Features) -> Scene:
        """The scene of a case with its two personas."""
        group = getattr(patient, "age_group", None)
        words = unwell(algorithm, case.acuity) if case.acuity else ""
        return cls(
            case,
            algorithm,
            traits_of(nurse),
            traits_of(patient),
            facts_for("nurse", case, age_group=group, unwell=words),
            facts_for("patient", case, age_group=group, unwell=words),
            case_facts(case, age_group=group, unwell=words),
            features,
        )

    def with_script(self, script: PatientScript) -> Scene:
        """The scene with a script for the patient; the nurse's part stays as it is."""
        facts = {"script": script}
        return replace(
            self,
            patient_facts=self.patient_facts.model_copy(update=facts),
            master_facts=self.master_facts.model_copy(update=facts),
        )

    def with_appearance(self, appearance: Appearance) -> Scene:
        """The scene with what can be seen of the patient."""
        return replace(self, appearance=appearance.model_dump())

    def arrival_view(self) -> ArrivalView:
        """For the in-situ check."""
        return arrival_view(self.case, age_group=self.master_facts.age_group)

    def script_view(self) -> ScriptView:
        """For the patient's script."""
        return ScriptView(facts=self.master_facts, persona=self.patient)

    def appearance_view(self, rejected: tuple[str, ...] = ()) -> AppearanceView:
        """For what can be seen; `rejected`: banned words of the answer before."""
        return AppearanceView(facts=self.master_facts.model_copy(update={"script": None}), rejected=rejected)


@dataclass(frozen=True)
class Talk:
    """A moment of a dialogue.

    Attributes:
        turn, step: replies so far, and nurse steps since the last one.
        vitals: taken so far; None where a sign could not be measured. Never changed in place.
        record: the triage record's texts by field; None without a dialogue master.
        heard: the last line is a reply that the nurse hasn't acted on yet.
        steps: every nurse step.
    """

    scene: Scene
    state: NurseState
    turn: int = 0
    step: int = 0
    dialogue: tuple[Spoken, ...] = ()
    vitals: dict[Vital, float | None] | None = None
    flags: tuple[str, ...] = ()
    record: dict[str, str] | None = None
    heard: bool = False
    steps: tuple[NurseStep, ...] = ()

    @classmethod
    def begin(cls, scene: Scene, max_turns: int, min_questions: int, *, judged: bool) -> Talk:
        """Before the first word; `judged`: whether a dialogue master keeps the record."""
        state = NurseState(max_turns, min_questions, record_open=judged)
        return cls(scene, state, vitals={}, record=dict.fromkeys(RECORD_FIELDS, UNKNOWN) if judged else None)

    def acted(self, step: NurseStep) -> Talk:
        """After a nurse step whose words stand."""
        vitals, measurable = self.vitals or {}, True
        if step.action == "check_vital" and step.vital is not None:
            value = self.scene.case.vitals.get(step.vital)
            vitals, measurable = {**vitals, step.vital: value}, value is not None
        fresh = new_flags(list(self.flags), list(step.red_flags)) if step.action == "log_red_flag" else []
        spoken = is_spoken(step) and not (step.action == "end" and names_level(step.utterance or ""))
        return self._with(
            state=apply(self.state, step, measurable=measurable),
            step=self.step + 1,
            dialogue=(*self.dialogue, _line("nurse", step.utterance)) if spoken else self.dialogue,
            vitals=vitals,
            flags=(*self.flags, *fresh),
            heard=False,
            steps=(*self.steps, step),
        )

    def replied(self, text: str) -> Talk:
        """After a reply whose words stand."""
        dialogue = (*self.dialogue, _line("patient", text))
        return self._with(turn=self.turn + 1, step=0, dialogue=dialogue, heard=True)

    def recorded(self, reading: Reading) -> dict[str, str]:
        """What a reading of the last exchange adds to the record: field by field, where it says something else."""
        record = self.record or {}
        news = {field: text for field, text in reading.record if text is not None}
        return {field: text.strip() for field, text in news.items() if text.strip() != record[field]}

    def noted(self, news: dict[str, str]) -> Talk:
        """With these fields of the record as they now stand; nothing without a dialogue master."""
        if self.record is None or not news:
            return self
        record = {**self.record, **news}
        still_open = UNKNOWN in record.values()
        state = self.state if self.state.record_open == still_open else replace(self.state, record_open=still_open)
        return self._with(record=record, state=state)

    def nurse_view(self, options: Allowed, redraft: Redraft | None = None) -> NurseView:
        """For the nurse's next step; with `redraft`, for the same step anew."""
        scene, last = self.scene, self.steps[-1] if self.steps else None
        belief = None
        if scene.features.belief_state and last:
            belief = Belief(explanation=last.explanation, triage=last.triage, confidence=last.confidence)
        return NurseView(
            algorithm=scene.algorithm,
            facts=scene.nurse_facts,
            persona=scene.nurse,
            dialogue=self.dialogue,
            vitals=self._shown_vitals(),
            red_flags=self.flags,
            record=self.record,
            actions=options.actions,
            vitals_open=options.vitals,
            heard_reply=self.heard,
            questions_asked=self.state.asked,
            questions_left=self.state.questions_left,
            infer=self.state.infer,
            appearance=scene.appearance,
            belief=belief,
            feedback=self.feedback(),
            redraft=redraft,
        )

    def patient_view(self, redraft: Redraft | None = None) -> PatientView:
        """For the reply to the last line."""
        scene = self.scene
        return PatientView(facts=scene.patient_facts, persona=scene.patient, dialogue=self.dialogue, redraft=redraft)

    def nurse_line_view(self, step: NurseStep) -> NurseLineView:
        """For the check of what the nurse says with a step."""
        return NurseLineView(
            facts=self.scene.nurse_facts,
            persona=self.scene.nurse,
            dialogue=self.dialogue,
            vitals=self._shown_vitals(),
            action=cast(Literal["check_vital", "utterance", "end"], step.action),
            draft=(step.utterance or "").strip(),
            appearance=self.scene.appearance,
        )

    def patient_line_view(self, draft: str) -> PatientLineView:
        """For the check of a reply."""
        scene = self.scene
        return PatientLineView(
            facts=scene.master_facts, persona=scene.patient, dialogue=self.dialogue, draft=draft.strip()
        )

    def reading_view(self, reply: str) -> ReadingView:
        """For the reading of the last question and this reply, their words alone."""
        return ReadingView(question=self.dialogue[-1].text, reply=reply.strip(), record=self.record or {})

    def feedback(self) -> str | None:
        """How near the last level is to the true one, and how that changed (feature feedback): `warm, colder`."""
        truth = self.scene.case.acuity
        if not self.scene.features.feedback or not self.steps or truth is None:
            return None
        away = [abs(step.triage - truth) for step in self.steps[-2:]]
        word = ("hot", "warm", "cold")[min(away[-1], 2)]
        if len(away) == 1:
            return word
        return f"{word}, {'warmer' if away[1] < away[0] else 'colder' if away[1] > away[0] else 'as before'}"

    def _with(self, **changes: Any) -> Talk:
        """Like `dataclasses.replace`, five times as fast: this runs after every line."""
        changed = object.__new__(Talk)
        changed.__dict__.update(self.__dict__, **changes)
        return changed

    def _shown_vitals(self) -> dict[Vital, str | None]:
        taken = (self.vitals or {}).items()
        return {name: None if value is None else with_unit(name, value) for name, value in taken}


def _line(speaker: Literal["nurse", "patient"], text: str | None) -> Spoken:
    return Spoken(speaker=speaker, text=(text or "").strip())
