"""Small backends in memory and small cases, for tests of the engine."""

from __future__ import annotations

import random
from typing import Any, get_args

from triagesim.answers import NurseStep, PatientReply
from triagesim.artifact import RECORD_FIELDS, UNKNOWN
from triagesim.cases import Case, PatientScript
from triagesim.judging import Appearance, Edit, InSitu, LineCheck, Reading, RecordNews, Script
from triagesim.personas import PERSONAS, Persona, registry
from triagesim.requests import Answer, Request
from triagesim.views import ReadingView

VITALS = {"temperature": 99.1, "heartrate": 112.0, "resprate": 26.0, "o2sat": 91.0, "sbp": 98.0}


def a_case(name: str = "syncope-01", **changes: Any) -> Case:
    """A complete case."""
    fields = {
        "case_id": name,
        "chief_complaint": "Syncope",
        "vitals": VITALS,
        "acuity": 2,
        "acuity_scale": "esi",
        "pain": 7,
        "gender": "male",
        "arrival_transport": "ambulance",
    }
    return Case.model_validate({**fields, **changes})


def personas(role: Any, count: int = 3) -> list[Persona]:
    """A few personas of the registry."""
    known = registry(role)
    return [PERSONAS[role].model_validate(known.at(number * (known.size // count))) for number in range(count)]


def seats(llm: Any, judge: Any = None) -> dict[str, Any]:
    """What `simulate` wants of one backend that plays nurse and patient, with a few personas each."""
    talking = {"nurse_llm": llm, "patient_llm": llm, "judge_llm": judge}
    return {**talking, "nurse_personas": personas("nurse"), "patient_personas": personas("patient")}


class Puppet:
    """Answers validly at random, by the request's seed alone; remembers what it was asked.

    It is the plainest kind of backend: `model` and `complete(requests)`.

    Args:
        rejects: how often it rejects a line, as the dialogue master.
        fixed: of every nurse step.
    """

    def __init__(self, model: str = "puppet", *, rejects: float = 0.0, **fixed: Any) -> None:
        self.model = model
        self.rejects = rejects
        self.fixed = fixed
        self.requests: list[Request] = []

    def complete(self, requests: list[Request]) -> list[str | Exception]:
        """One answer a request."""
        self.requests += requests
        return [self.answer(request) for request in requests]

    def answer(self, request: Request) -> str:
        """A valid answer."""
        chance = random.Random(request.seed)
        if issubclass(request.output_type, NurseStep):
            return self._step(request.output_type, chance).model_dump_json()
        return self._said(request, chance).model_dump_json()

    def asked(self, purpose: str) -> list[Request]:
        """What it was asked for one purpose."""
        return [request for request in self.requests if request.name.purpose == purpose]

    def _said(self, request: Request, chance: random.Random) -> Answer:
        form = request.output_type
        number = f"{chance.random():.6f}"
        if form is PatientReply:
            return PatientReply(utterance=f"It hurts, {number}.", disclosed="pain")
        if form is InSitu:
            return InSitu(reasoning="walks and talks", conversation=True)
        if form is Script:
            return Script.model_validate(SCRIPT.model_dump())
        if form is Appearance:
            return Appearance(**dict.fromkeys(Appearance.model_fields, "looks tired"))
        if form is Edit:
            return Edit(utterance=f"Could you say a little more, {number}?")
        if form is Reading:
            assert isinstance(request.view, ReadingView)
            gaps = [name for name, text in request.view.record.items() if text == UNKNOWN]
            news = dict.fromkeys(RECORD_FIELDS) | dict.fromkeys(gaps[:2], f"told {number}")
            return Reading(conveyed="it hurts", record=RecordNews(**news))
        assert issubclass(form, LineCheck)
        passed = chance.random() >= self.rejects
        checks = {name: True for name in form.model_fields if name != "critique"}
        return form(critique="good" if passed else f"say it more plainly, {number}", **checks | {"plausible": passed})

    def _step(self, form: type[NurseStep], chance: random.Random) -> NurseStep:
        fields = form.model_fields
        action = chance.choice(get_args(fields["action"].annotation))
        vitals = [name for name in get_args(fields["vital"].annotation) if name] if action == "check_vital" else [None]
        step = {
            "understood": None if fields["understood"].annotation is type(None) else "it hurts",
            "action": action,
            "vital": chance.choice(vitals),
            "utterance": f"Where does it hurt, {chance.random():.6f}?",
            "red_flags": [f"flag {chance.randrange(4)}"] if action == "log_red_flag" else [],
            "explanation": "so far",
            "triage": chance.randrange(1, 6),
            "confidence": "low",
        }
        return form.model_validate({**step, **self.fixed})


#: A persona of each role without anything remarkable, and what a patient knows.
PLAIN_PATIENT = {
    "age_group": "adult",
    "english_proficiency": "fluent",
    "health_literacy": "adequate",
    "recall_reliability": "reliable",
    "symptom_reporting": "faithful",
    "distress": "calm",
    "disclosure": "open",
    "demeanour": "cooperative",
    "verbosity": "typical",
    "focus": "on_target",
    "disfluency": "low",
}
PLAIN_NURSE = {
    "gender": "female",
    "expertise": "competent",
    "algorithm_reliance": "blended",
    "risk_attitude": "balanced",
    "self_report_credence": "accepting",
    "questioning_style": "mixed",
    "emotional_responsiveness": "task_focused",
    "workload": "busy",
}
SCRIPT = PatientScript(
    cognitive_state="alert",
    intoxication="none",
    story="I was painting the ceiling when my belly began to hurt. It has been there all night. I could not sleep.",
    onset="last night around nine, after dinner",
    duration="about twelve hours, and it comes in waves",
    location="low down on the right side of my belly",
    quality="a dull ache that turns sharp when I move",
    severity="a 6 out of 10, worse when I walk",
    associated_symptoms=["a queasy stomach", "a bit of a fever", "no interest in food"],
    pertinent_negatives=["blood in the stool", "chest pain", "trouble breathing"],
    medical_history=["high blood pressure", "an old knee operation"],
    medications=["metformin", "lisinopril", "atorvastatin"],
    allergies=["penicillin"],
    social_history="I live with my brother. I smoke cannabis on weekends and I drink a bottle of wine a day.",
)
