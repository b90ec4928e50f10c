"""One episode: the nurse acts until it speaks, the patient replies, until the nurse ends triage."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from triagesim.answers import NurseStep, PatientReply, nurse_step
from triagesim.artifact import RECORD_FIELDS, SPEAKING_RATE, UNKNOWN, Episode
from triagesim.calls import Caller, GivenUp, Seat
from triagesim.cases import Case, Scale, Vital
from triagesim.config import Features
from triagesim.journal import Journal
from triagesim.jsonl import digest
from triagesim.personas import Persona, Pool, for_case, traits_of
from triagesim.prompts import prompts_digest, unwell
from triagesim.protocol import Allowed, NurseState, allowed, apply, is_spoken, names_level, new_flags
from triagesim.requests import Role
from triagesim.views import NurseView, PatientView, Spoken, facts_for

#: Bumped by hand whenever the same answers would give another episode; `tests/test_episode.py` says when.
PROTOCOL = 1

_UNITS: dict[Vital, str] = {"heartrate": "/min", "resprate": "/min", "o2sat": "%", "sbp": "mmHg"}


@dataclass(frozen=True)
class Setup:
    """What the episodes of a run have in common."""

    seats: dict[Role, Seat]
    nurse_personas: Pool
    patient_personas: Pool
    pairing: str = ""
    algorithm: Scale | None = None
    max_turns: int = 12
    min_questions: int = 3
    seed: int = 0
    features: Features = field(default_factory=Features)

    @cached_property
    def specification(self) -> dict[str, Any]:
        """Everything that can change a result."""
        reading = {role: seat for role, seat in self.seats.items() if seat.backend.reads == "messages"}
        return {
            "protocol": PROTOCOL,
            "models": {role: seat.identity for role, seat in self.seats.items()},
            "prompts": {role: prompts_digest(seat.prompts) for role, seat in reading.items()},
            "nurse_personas": self.nurse_personas.digest,
            "patient_personas": self.patient_personas.digest,
            "algorithm": self.algorithm,
            "max_turns": self.max_turns,
            "min_questions": self.min_questions,
            "seed": self.seed,
            "features": self.features.model_dump(),
        }

    @cached_property
    def spec(self) -> str:
        """The specification's hash, which every artifact carries."""
        return digest(self.specification)[:16]


async def play(case: Case, number: int, setup: Setup, journal: Journal) -> dict[str, Any]:
    """Run episode `number` of a case and return its artifact (`triagesim.artifact.Episode` as a dict).

    Raises:
        StopRun: asking on is pointless or not allowed; nothing is lost.
    """
    name = f"{case.case_id}-{number}"
    nurse = setup.nurse_personas.draw(setup.seed, name)
    drawn = setup.patient_personas.draw(setup.seed, name)
    patient = for_case(drawn, gender=case.gender, age_group=case.age_group, seed=setup.seed, episode_id=name)
    interview = Interview(case, nurse, patient, setup, Caller(case, name, setup.seats, journal, setup.seed))
    status: dict[str, Any] = {"status": "ok", "error": None, "skip_reason": case.why_not()}
    if status["skip_reason"]:
        status["status"] = "skipped"
    else:
        try:
            await interview.run()
        except GivenUp as failure:
            status |= {"status": "error", "error": str(failure)}
            journal.give_up(case.case_id, name, str(failure), anew=failure.bad_answers)
    episode = {"episode_id": name, "pairing": setup.pairing, **status, **interview.artifact()}
    if status["status"] == "error":
        episode["end_reason"] = "error"
    Episode.model_validate(episode)
    if status["status"] != "error":
        journal.finish(case.case_id, name, status["status"], setup.spec, episode["usage"])
    return episode


class Interview:
    """The dialogue as it grows, with what each side has learnt."""

    def __init__(self, case: Case, nurse: Persona, patient: Persona, setup: Setup, caller: Caller) -> None:
        self._case = case
        self._setup = setup
        self._caller = caller
        self._nurse = nurse
        self._patient = patient
        self._algorithm: Scale = setup.algorithm or case.acuity_scale or "esi"
        self._state = NurseState(setup.max_turns, setup.min_questions)
        self._turn = 0
        self._step = 0
        self._words = 0
        self._dialogue: list[Spoken] = []
        self._history: list[dict[str, Any]] = []
        self._trace: list[dict[str, Any]] = []
        self._flags: list[str] = []
        self._vitals: dict[Vital, float | None] = {}
        self._reply: dict[str, Any] | None = None

        age_group = getattr(patient, "age_group", None)
        feeling = unwell(self._algorithm, case.acuity) if case.acuity else ""
        self._nurse_facts = facts_for("nurse", case, age_group=age_group, unwell=feeling)
        self._patient_facts = facts_for("patient", case, age_group=age_group, unwell=feeling)

    async def run(self) -> None:
        """Talk until the nurse ends triage.

        Raises:
            GivenUp: a call keeps failing; what was said so far is kept.
        """
        while not self._state.ended:
            options = allowed(self._state)
            answers = nurse_step(options.actions, options.vitals, self._reply is not None)
            step = await self._caller.ask("nurse", self._nurse_view(options), answers, turn=self._turn, step=self._step)
            self._act(step)
            if step.action == "utterance":
                reply = await self._caller.ask("patient", self._patient_view(), PatientReply, turn=self._turn)
                self._hear(reply)

    def artifact(self) -> dict[str, Any]:
        """Everything that the episode is, but for its name and status."""
        setup, case = self._setup, self._case
        roles = {role: seat.backend for role, seat in setup.seats.items() if role in ("nurse", "patient", "judge")}
        ended = self._state.ended
        return {
            "case": case.model_dump(mode="json"),
            "algorithm": self._algorithm,
            "models": {role: backend.model for role, backend in roles.items()},
            "labels": {role: backend.label for role, backend in roles.items() if backend.label},
            "features": setup.features.model_dump(),
            "nurse_persona": self._nurse.model_dump(mode="json"),
            "patient_persona": self._patient.model_dump(mode="json"),
            "patient_script": case.script and case.script.model_dump(mode="json"),
            "end_reason": ("nurse_end" if self._state.questions_left > 0 else "max_turns") if ended else None,
            "final_triage": self._trace[-1]["triage"] if self._trace else None,
            "num_turns": self._turn,
            "transcript": [line.model_dump() for line in self._dialogue],
            "history": self._history,
            "trace": self._trace,
            "red_flags": self._flags,
            "record": {**dict.fromkeys(RECORD_FIELDS, UNKNOWN), "vitals": dict(self._vitals)},
            "usage": {
                role: {"calls": calls, **usage._asdict()} for role, (calls, usage) in sorted(self._caller.usage.items())
            },
            "spec": setup.spec,
        }

    def _act(self, step: NurseStep) -> None:
        """Write down a nurse step and what it does."""
        if self._reply is not None:
            self._reply["information"]["understood"] = step.understood
            self._reply = None
        vital = step.vital if step.action == "check_vital" else None
        flags = list(step.red_flags) if step.action == "log_red_flag" else []
        self._trace.append({"turn": self._turn, **step.model_dump(), "vital": vital, "red_flags": flags})
        self._step += 1
        if is_spoken(step):
            self._say_as_nurse(step)
        self._flags += new_flags(self._flags, flags)
        if vital is not None:
            self._measure(vital)
        if step.action == "end":
            self._event({"event": "triage_end", "triage": step.triage})
        self._state = apply(self._state, step, measurable=vital is None or self._vitals[vital] is not None)

    def _say_as_nurse(self, step: NurseStep) -> None:
        text = (step.utterance or "").strip()
        line: dict[str, Any] = {"turn": self._turn, "actor": "nurse", "utterance": text, "t": self._time()}
        line["triage"] = step.triage
        if step.action != "utterance":
            line["action"] = step.action
        elif self._state.infer:
            line["infers"] = self._state.infer
        if step.action == "end" and names_level(text):
            line["in_transcript"] = False
        else:
            self._speak("nurse", text)
        self._history.append(line)

    def _measure(self, name: Vital) -> None:
        value = self._case.vitals.get(name)
        self._vitals[name] = value
        event: dict[str, Any] = {"event": "vital", "name": name, "value": value}
        if value is None:
            event["measurable"] = False
        self._event(event)

    def _hear(self, reply: PatientReply) -> None:
        text = reply.utterance.strip()
        information = {"disclosed": reply.disclosed, "conveyed": None, "recorded": None, "understood": None}
        self._reply = {
            "turn": self._turn,
            "actor": "patient",
            "utterance": text,
            "t": self._time(),
            "information": information,
        }
        self._history.append(self._reply)
        self._speak("patient", text)
        self._turn += 1
        self._step = 0

    def _event(self, what: dict[str, Any]) -> None:
        self._history.append({"turn": self._turn, "actor": "system", **what, "t": self._time()})

    def _speak(self, speaker: Role, text: str) -> None:
        self._dialogue.append(Spoken(speaker=speaker, text=text))
        self._words += len(text.split())

    def _time(self) -> float:
        return round(self._words * 60 / SPEAKING_RATE, 1)

    def _nurse_view(self, options: Allowed) -> NurseView:
        return NurseView(
            algorithm=self._algorithm,
            facts=self._nurse_facts,
            persona=traits_of(self._nurse),
            dialogue=tuple(self._dialogue),
            vitals={name: None if value is None else with_unit(name, value) for name, value in self._vitals.items()},
            red_flags=tuple(self._flags),
            record=None,
            actions=options.actions,
            vitals_open=options.vitals,
            heard_reply=self._reply is not None,
            questions_asked=self._state.asked,
            questions_left=self._state.questions_left,
            infer=self._state.infer,
        )

    def _patient_view(self) -> PatientView:
        return PatientView(facts=self._patient_facts, persona=traits_of(self._patient), dialogue=tuple(self._dialogue))


def with_unit(name: Vital, value: float) -> str:
    """A vital sign as the nurse reads it off; temperatures from 50 on are Fahrenheit."""
    unit = _UNITS.get(name) or ("°F" if value >= 50 else "°C")
    return f"{value:g} {unit}"
