"""The agenda's dialogue master: who would talk, the script, the check of every line, the record, its own lines."""

from __future__ import annotations

import asyncio
import csv
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from actors import PLAIN_NURSE, PLAIN_PATIENT, SCRIPT
from triagesim import simulate
from triagesim.appearance import banned_in
from triagesim.artifact import RECORD_FIELDS, UNKNOWN
from triagesim.backends.agenda import Agenda
from triagesim.backends.agenda.asking import questions_in
from triagesim.backends.agenda.understanding import kind_of, read
from triagesim.cases import VITALS, Case, PatientScript, load_cases, with_unit
from triagesim.judging import Appearance, Edit, InSitu, LineCheck, NurseLineCheck, Reading, RecordNews, Script
from triagesim.personas import NursePersona, PatientPersona, registry
from triagesim.protocol import names_level
from triagesim.requests import Answer, CallName, Request
from triagesim.resources import RESOURCES, load_yaml
from triagesim.views import (
    ON_ARRIVAL,
    VISIBLE,
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
    Spoken,
    arrival_view,
    case_facts,
    facts_for,
)

DEMO = Path(__file__).parents[2] / "shared" / "data" / "mimic-iv-ed-demo" / "ed"
needs_demo = pytest.mark.skipif(not DEMO.is_dir(), reason="the MIMIC-IV-ED demo isn't in ../shared/data")

CASE = Case.model_validate(
    {
        "case_id": "belly-01",
        "chief_complaint": "Abdominal pain",
        "vitals": {"temperature": 100.9, "heartrate": 104, "resprate": 18, "o2sat": 97, "sbp": 98},
        "acuity": 3,
        "acuity_scale": "esi",
        "pain": 6,
        "gender": "female",
        "age": 44,
        "arrival_transport": "walk in",
        "diagnoses": ["Unspecified acute appendicitis", "Essential (primary) hypertension"],
        "medications": ["metformin", "lisinopril"],
        "expert_red_flags": ["rebound tenderness"],
        "race": "SECRET",
    }
)
ASK = {
    ArrivalView: InSitu,
    ScriptView: Script,
    AppearanceView: Appearance,
    PatientLineView: LineCheck,
    NurseLineView: NurseLineCheck,
    EditView: Edit,
    ReadingView: Reading,
}


def judge(view: MasterView, seed: int = 1) -> Any:
    """The master's valid answer to a view, by way of the backend."""
    kind: type[Answer] = ASK[type(view)]
    request = Request(CallName("x", "judge", 0), "judge", [], kind, {}, seed, view)
    return kind.model_validate_json(asyncio.run(Agenda().complete(request)).text)


def talk(*texts: str) -> tuple[Spoken, ...]:
    """A dialogue in turns, the nurse first."""
    return tuple(Spoken(speaker=("nurse", "patient")[n % 2], text=text) for n, text in enumerate(texts))


def patient_line(question: str, draft: str, *before: str, script: PatientScript | None = SCRIPT, **persona: str) -> Any:
    facts = case_facts(CASE.model_copy(update={"script": script}), age_group="adult", unwell="BADLY")
    return PatientLineView(
        facts=facts, persona={**PLAIN_PATIENT, **persona}, dialogue=talk(*before, question), draft=draft
    )


def nurse_line(draft: str, *before: str, action: Any = "utterance", vitals: Any = None, **persona: str) -> Any:
    facts = facts_for("nurse", CASE, age_group="adult", unwell="BADLY")
    dialogue = talk("What brought you in?", "My belly hurts since last night, low on the right.", *before)
    return NurseLineView(
        facts=facts,
        persona={**PLAIN_NURSE, **persona},
        dialogue=dialogue,
        vitals=vitals or {},
        action=action,
        draft=draft,
    )


def failed(verdict: LineCheck) -> set[str]:
    """The fields that a verdict fails."""
    return {name for name, value in verdict if value is False}


def written(case: Case, seed: int = 1, **persona: str) -> Script:
    """The master's script for a case."""
    facts = case_facts(case, age_group=case.age_group, unwell="")
    script: Script = judge(ScriptView(facts=facts, persona={**PLAIN_PATIENT, **persona}), seed)
    return script


def a_case(complaint: str | None, **fields: Any) -> Case:
    return Case.model_validate({"case_id": "c", "acuity": 3, "gender": "male", "chief_complaint": complaint, **fields})


def texts_in(data: Any) -> Iterator[str]:
    """Every text in a branch of a phrase file or an answer."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, list | dict | tuple):
        for part in data.values() if isinstance(data, dict) else data:
            yield from texts_in(part)


# -- the answers and the views


def test_what_is_reasoned_comes_before_what_is_judged() -> None:
    judged = ["faithful", "informative", "in_persona", "plausible", "no_names"]
    assert list(LineCheck.model_fields) == ["critique", *judged]
    assert list(NurseLineCheck.model_fields) == ["critique", *judged, "one_question"]
    assert list(InSitu.model_fields) == ["reasoning", "conversation"]
    assert list(Reading.model_fields) == ["conveyed", "record"]
    assert tuple(RecordNews.model_fields) == RECORD_FIELDS
    assert list(Script.model_fields) == list(PatientScript.model_fields)
    for kind in ASK.values():
        schema = kind.model_json_schema()
        assert schema["additionalProperties"] is False
        assert schema["required"] == list(schema["properties"])


def test_a_script_that_the_master_wrote_can_stand_where_an_authors_stands() -> None:
    script = Script(**SCRIPT.model_dump())
    assert Facts(script=script).model_dump() == Facts(script=SCRIPT).model_dump()


def test_a_verdict_passes_only_when_nothing_fails() -> None:
    good = dict.fromkeys(("faithful", "informative", "in_persona", "plausible", "no_names"), True)
    assert LineCheck(critique="fine", **good).passed
    assert not LineCheck(critique="x", **{**good, "no_names": False}).passed
    assert not NurseLineCheck(critique="x", **good, one_question=False).passed
    with pytest.raises(ValidationError, match="critique"):
        LineCheck(critique="", **good)


@pytest.mark.parametrize("text", ["unknown", "Unknown.", "N/A", "n/a", " ", "-", "not stated", "Not yet known", "null"])
def test_words_for_no_answer_are_no_news_for_the_record_and_no_answer_of_a_patient_is_lost(text: str) -> None:
    fields = dict.fromkeys(RECORD_FIELDS)
    assert RecordNews(**{**fields, "pain": text}).pain is None
    for answer in ("none", "declined to say", "no pain", "the patient isn't sure", "not known to the patient's son"):
        assert RecordNews(**{**fields, "pain": answer}).pain == answer


def test_each_view_holds_only_what_its_check_may_look_at() -> None:
    arrival = arrival_view(CASE, age_group="adult")
    assert arrival.facts.model_dump(exclude_none=True).keys() == ON_ARRIVAL
    assert not re.search(r"\d", arrival.model_dump_json())
    assert all("master" in VISIBLE[name] for name in ON_ARRIVAL)
    facts = case_facts(CASE, age_group="adult", unwell="badly")
    assert set(facts.model_dump()) == set(VISIBLE)
    assert (facts.acuity, facts.pain, facts.vitals["sbp"]) == (3, "6", 98)
    assert "SECRET" not in facts.model_dump_json()
    assert "rebound" not in facts.model_dump_json()
    assert set(ReadingView.model_fields) == {"question", "reply", "record"}
    hidden = ("Abdominal", "appendicitis", "metformin", "BADLY", "100.9", "SECRET")
    seen_by_nurse = nurse_line("Any fever?").model_dump_json()
    assert not [word for word in hidden if word in seen_by_nurse]


@pytest.mark.parametrize(("pain", "observed"), [(7, None), ("7/10", None), (None, None), ("ett", "ett"), ("13", None)])
def test_of_the_pain_score_only_words_are_seen_on_arrival(pain: Any, observed: str | None) -> None:
    assert arrival_view(CASE.model_copy(update={"pain": pain}), age_group=None).observed == observed


def test_a_view_that_nobody_has_is_refused() -> None:
    request = Request(CallName("x", "judge", 0), "judge", [], Edit, {}, 1, Spoken(speaker="nurse", text="Hello."))
    with pytest.raises(TypeError, match="not Spoken"):
        asyncio.run(Agenda().complete(request))


# -- would there be a conversation


@pytest.mark.parametrize(
    ("complaint", "observed", "talks"),
    [
        ("Cardiac arrest, Transfer", "ett", False),
        ("s/p cardiac arrest", "Critical", False),
        ("RESP ARREST", None, False),
        ("MVC/INTUBATED TRAUMA", None, False),
        ("Fall, unresponsive", None, False),
        ("Found down, unconscious", None, False),
        ("Overdose, GCS 6", None, False),
        ("Status epilepticus", None, False),
        ("Transfer", "Critical", False),
        ("Transfer", "sedated", False),
        ("CPR in progress", None, False),
        ("Chest pain", None, True),
        ("Altered mental status", "unable", True),
        ("Seizure", None, True),
        ("Syncope", None, True),
        ("Unresponsive episode, now alert", None, True),
        ("Syncope, no loss of consciousness", None, True),
        ("Brought in under arrest, hand pain", None, True),
        ("Sleep apnea, tired", None, True),
        ("Transfer", "asleep", True),
        (None, None, True),
    ],
)
def test_only_who_cannot_speak_or_is_treated_at_once_has_no_conversation(
    complaint: str | None, observed: str | None, talks: bool
) -> None:
    case = a_case(complaint, pain=observed, arrival_transport="ambulance")
    answer: InSitu = judge(arrival_view(case, age_group="adult"))
    assert answer.conversation == talks
    assert "ambulance" in answer.reasoning
    assert complaint is None or complaint in answer.reasoning
    assert ("so there is a conversation" in answer.reasoning) == talks


# -- the script


def test_the_script_of_a_case_that_has_one_is_left_as_it_is() -> None:
    assert written(CASE.model_copy(update={"script": SCRIPT})).model_dump() == SCRIPT.model_dump()


def test_a_script_is_the_same_for_a_seed_and_varies_between_seeds() -> None:
    assert written(CASE, 4) == written(CASE, 4)
    assert len({written(CASE, seed).model_dump_json() for seed in range(12)}) > 6


def test_a_script_tells_the_complaint_in_lay_words_with_its_place_and_side() -> None:
    script = written(a_case("R FOOT PAIN, N/V", pain=8, arrival_transport="AMBULANCE"))
    assert {"limb_pain", "vomiting"} <= read(script.story).present
    assert script.location == "my right foot"
    assert script.severity.startswith("an 8 out of 10")
    assert "ambulance" in script.story
    assert script.onset in script.story
    assert script.quality
    assert not re.search(r"FOOT|N/V", script.model_dump_json())


def test_medicines_are_listed_and_known_illnesses_said_in_plain_words() -> None:
    medicines = ["pen needle, diabetic", "warfarin [Coumadin]", "metoprolol succinate", "cholecalciferol (vitamin D3)",
                 "metformin", "Warfarin", "levothyroxine", "vitamin B-12"]  # fmt: skip
    diagnoses = [
        "Syncope and collapse",
        "Unspecified atrial fibrillation",
        "Type 2 diabetes mellitus w/o complications",
    ]
    script = written(a_case("Syncope", medications=medicines, diagnoses=diagnoses))
    assert {"warfarin", "metoprolol", "metformin", "levothyroxine", "vitamin B"} <= set(script.medications)
    assert "warfarin" in script.medications[:3]
    assert not [name for name in script.medications if re.search(r"\d|needle|succinate|\[", name)]
    assert len({name.lower() for name in script.medications}) == len(script.medications)
    assert set(script.medical_history) == {"an irregular heartbeat", "diabetes", "an underactive thyroid"}


@pytest.mark.parametrize(
    ("complaint", "diagnoses", "medicines", "never"),
    [
        ("Chest pain", ["Non-ST elevation (NSTEMI) myocardial infarction"], [], "infarct|nstemi|heart attack"),
        ("Palpitations", ["Unspecified atrial fibrillation"], [], "fibrillation|irregular"),
        ("Dyspnea", ["Pneumonia, unspecified organism"], [], "pneumonia"),
        ("Dyspnea", ["CONGESTIVE HEART FAILURE, UNSPEC"], [], "failure|weak heart"),
        ("Transfer", ["Saddle embolus of pulmonary artery"], [], "embol|clot"),
        ("N/V", ["DIAB KETOACIDOSIS IDDM"], ["insulin lispro"], "keto|acid"),
        ("Weakness", ["Malignant neoplasm of colon"], [], "cancer|neoplasm|tumou?r"),
        ("Fall", ["Displaced intertrochanteric fracture of left femur"], [], "fractur|femur"),
    ],
)
def test_what_was_found_after_the_visit_is_never_named(
    complaint: str, diagnoses: list[str], medicines: list[str], never: str
) -> None:
    for seed in range(8):
        script = written(a_case(complaint, diagnoses=diagnoses, medications=medicines), seed)
        assert not re.search(never, script.model_dump_json().lower())


def test_an_illness_that_a_medicine_shows_to_be_old_may_be_named() -> None:
    for diagnosis, medicine, known in [
        ("Unspecified atrial fibrillation", "apixaban", "an irregular heartbeat"),
        ("DIAB KETOACIDOSIS IDDM", "insulin lispro", "diabetes, on insulin"),
        ("CONGESTIVE HEART FAILURE, UNSPEC", "furosemide", "a weak heart"),
    ]:
        script = written(a_case("Weakness", diagnoses=[diagnosis], medications=[medicine]))
        assert script.medical_history == (known,)


def test_negatives_are_typical_for_the_problem_and_never_what_the_case_speaks_for() -> None:
    plain = written(a_case("Chest pain", acuity=3))
    assert {"trouble breathing", "sweating"} <= set(plain.pertinent_negatives)
    urgent = written(a_case("Chest pain", acuity=2))
    assert not {"trouble breathing", "sweating"} & set(urgent.pertinent_negatives)
    ill = written(a_case("Cough", vitals={"temperature": 102.2, "o2sat": 89}))
    assert {"fever", "breathless"} <= {f for text in ill.associated_symptoms for f in read(text).present}
    assert not {"fever", "trouble breathing"} & set(ill.pertinent_negatives)
    assert "cough" not in written(a_case("Weakness", diagnoses=["PNEUMONIA,ORGANISM UNSPECIFIED"])).pertinent_negatives
    for complaint in ("Abd pain", "Headache", "Dyspnea", "Fever", "ETOH, SI", "s/p Fall", "Dizziness", "Cough, Fever"):
        script = written(a_case(complaint))
        told = {f for text in texts_in(script.model_dump(exclude={"pertinent_negatives"})) for f in read(text).present}
        denied = {f for text in script.pertinent_negatives for f in read(text).mentioned}
        assert denied
        assert not {name for name in denied & told if kind_of(name) != "site"}


@pytest.mark.parametrize(
    ("complaint", "diagnoses", "state", "drunk"),
    [
        ("Altered mental status", [], "impaired", "none"),
        ("LETHARGY/SOB", [], "impaired", "none"),
        ("Weakness", ["ENCEPHALOPATHY, UNSPECIFIED"], "impaired", "none"),
        ("Confusion", ["SEMICOMA/STUPOR"], "delirious", "none"),
        ("Hypoglycemia", ["Type 1 diabetes mellitus with hypoglycemia without coma"], "alert", "none"),
        ("ETOH, SI", [], "alert", "mild"),
        ("ETOH", ["Alcohol abuse with intoxication, unspecified"], "alert", "marked"),
        ("Seizure", ["Alcohol dependence with withdrawal, unspecified"], "alert", "none"),
        ("Chest pain", ["Alcoholic cirrhosis of liver"], "alert", "none"),
    ],
)
def test_the_patients_state_comes_from_the_case(complaint: str, diagnoses: list[str], state: str, drunk: str) -> None:
    script = written(a_case(complaint, diagnoses=diagnoses))
    assert (script.cognitive_state, script.intoxication) == (state, drunk)


def test_a_complaint_that_says_nothing_takes_its_problem_from_a_symptom_among_the_diagnoses() -> None:
    assert "chest_pain" in read(written(a_case("Transfer", diagnoses=["Chest pain, unspecified"])).story).present
    script = written(a_case("UNKNOWN-CC"))
    assert not read(script.story).present
    assert script.onset


def test_home_and_habits_come_from_the_age_and_the_diagnoses() -> None:
    homes = load_yaml("agenda/master.yaml")["script"]["at_home"]
    assert written(CASE, age_group="older").social_history in homes["older"]
    homeless = written(a_case("Foot pain", diagnoses=["LACK OF HOUSING", "Alcohol dependence with withdrawal"]))
    assert "nowhere to stay" in homeless.social_history
    assert "drink more" in homeless.social_history
    assert not [home for home in texts_in(homes) if home in homeless.social_history]


@pytest.mark.parametrize(("pain", "severity"), [("unable", "number"), (13, "number"), (0, "0 out of 10"), (None, "")])
def test_pain_that_cannot_be_told_or_is_not_there_is_said_so(pain: Any, severity: str) -> None:
    script = written(a_case("Back pain", pain=pain))
    assert severity in script.severity if severity else script.severity == ""
    assert bool(re.search(r"isn't hurting|doesn't hurt", script.story)) == (pain == 0)


def test_no_line_of_the_scripts_story_plants_a_symptom() -> None:
    data = load_yaml("agenda/master.yaml")["script"]
    for text in texts_in([data[name] for name in ("began", "happened", "heard", "arrived", "feeling", "times")]):
        assert not read(text).mentioned, text
    assert not [text for text in texts_in(data["at_home"]) if read(text).mentioned]


def test_every_plain_word_for_a_finding_is_read_as_that_finding() -> None:
    for name, forms in load_yaml("agenda/master.yaml")["script"]["plain"].items():
        if "have" in forms:
            assert name in read(f"I have {forms['have']}.").present, name
        if "none" in forms:
            assert name in read(f"No {forms['none']}.").absent, name


@cache
def demo() -> list[Case]:
    """The demo's stays with what belongs to them, joined by stay."""
    tables: dict[str, dict[str, list[Any]]] = {"diagnosis": defaultdict(list), "medrecon": defaultdict(list)}
    for name, column in (("diagnosis", "icd_title"), ("medrecon", "name")):
        with (DEMO / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                tables[name][row["stay_id"]].append(row[column])
    return [
        case.model_copy(
            update={"diagnoses": tables["diagnosis"][case.case_id], "medications": tables["medrecon"][case.case_id]}
        )
        for case in load_cases(DEMO / "triage.csv")
    ]


ACUTE = re.compile(
    r"infarct|nstemi|embol|seps|septic|pneumon|appendic|ha?emorrh|fractur|ketoacid|thrombo|dissect|subdural|subarach"
    r"|pancreatit|cellulit|encephalop|tachycard|hypotens|hypoglyc|hyperglyc|\bcva\b|\bdvt\b|\bich\b|\bsah\b|etoh|s/p|n/v"
)


@needs_demo
def test_no_script_of_the_demo_holds_a_vital_number_an_acuity_or_an_acute_diagnosis() -> None:
    for seed, case in enumerate(demo()):
        script = written(case, seed)
        text = " ".join(texts_in(script.model_dump()))
        score = {"0", "10", *([f"{case.pain:g}"] if isinstance(case.pain, int | float) else [])}
        assert set(re.findall(r"\d+(?:\.\d+)?", text)) <= score, (case.chief_complaint, text)
        assert not names_level(text)
        assert not re.search(r"\b(?:esi|acuity|triage)\b", text.lower())
        assert not ACUTE.search(text.lower()), (case.chief_complaint, text)
        long_titles = [title.lower() for title in case.diagnoses if len(title.split()) > 2]
        assert not [title for title in long_titles if title in text.lower()]


@needs_demo
def test_a_patient_of_the_demo_can_answer_the_usual_questions_from_its_script() -> None:
    asked = ["What brought you in today?", "When did it start?", "Any medical conditions?", "What tablets do you take?"]
    for case in demo()[::20]:
        script = written(case)
        facts = facts_for("patient", case.model_copy(update={"script": script}), age_group="adult", unwell="")
        for question in asked:
            view = PatientView(facts=facts, persona=PLAIN_PATIENT, dialogue=talk(question))
            request = Request(CallName("x", "patient", 0), "patient", [], Answer, {}, 3, view)
            assert "I don't know" not in asyncio.run(Agenda().complete(request)).text


# -- the check of a patient's line

WHAT, BLOOD, PAIN = "What brought you in today?", "Any blood in the stool?", "How bad is the pain, zero to ten?"
PATIENT_LINES: list[tuple[str, str, set[str], dict[str, str]]] = [
    (WHAT, "My belly's been hurting since last night, low down on the right.", set(), {}),
    (WHAT, "My belly hurts, and I feel a bit feverish.", set(), {}),
    (WHAT, "I'm scared it's appendicitis, my cousin had that.", set(), {}),
    (WHAT, "It came on while I was painting, on Monday night. I took Tylenol.", set(), {}),
    (WHAT, "I have acute appendicitis.", {"faithful"}, {}),
    (WHAT, "I've got pneumonia, and my belly hurts.", {"faithful"}, {}),
    ("Any dizziness?", "No, but my blood pressure is 98 over 60.", {"faithful"}, {}),
    ("Any fever?", "Yes, my temperature was 100.9 when I looked.", {"faithful"}, {}),
    (WHAT, "My belly hurts, I'm an ESI level 3.", {"faithful"}, {}),
    (BLOOD, "No, nothing like that.", set(), {}),
    (BLOOD, "Yes, there's blood in my stool.", {"faithful"}, {}),
    (BLOOD, "Yes.", {"faithful"}, {}),
    (WHAT, "I've been vomiting blood since dinner.", {"faithful"}, {}),
    ("Any fever?", "Yes, a bit.", set(), {}),
    ("Any fever?", "No.", {"faithful"}, {}),
    (PAIN, "Six out of ten.", set(), {}),
    (PAIN, "Ten out of ten.", {"faithful"}, {}),
    (PAIN, "Two, maybe.", {"faithful"}, {}),
    (PAIN, "It's a four.", set(), {"symptom_reporting": "minimising"}),
    (PAIN, "Eight, easily.", set(), {"symptom_reporting": "amplifying"}),
    (PAIN, "I'd say it's a level five pain, six out of ten at worst.", set(), {}),
    ("Any allergies?", "Penicillin.", set(), {}),
    ("Any allergies?", "No, no allergies.", {"faithful"}, {}),
    ("What medicines do you take?", "Metformin and lisinopril.", set(), {}),
    ("What medicines do you take?", "I'm on warfarin.", {"faithful"}, {}),
    ("What medicines do you take?", "No, none.", {"faithful"}, {}),
    (WHAT, "", {"plausible"}, {}),
    (WHAT, " … ", {"plausible"}, {}),
    (WHAT, "As an AI language model I have no belly.", {"plausible"}, {}),
    (WHAT, "According to my script, my belly hurts.", {"plausible"}, {}),
    (WHAT, "*groans* My belly hurts.", {"plausible"}, {}),
    (WHAT, "Patient: My belly hurts.", {"plausible"}, {}),
    (WHAT, "My belly hurts. My belly hurts. My belly hurts.", {"plausible"}, {}),
    (WHAT, "How can I help you today?", {"plausible"}, {}),
    (WHAT, "My belly hurts, my name is Sandra.", {"no_names"}, {}),
    (WHAT, "Maria drove me here, my belly hurts.", {"no_names"}, {}),
    (WHAT, "I went to Mercy with it, my belly hurts.", {"no_names"}, {}),
    (WHAT, "Mrs. Lopez next door drove me, my belly hurts.", {"no_names"}, {}),
    (WHAT, "My brother said, “Go and see somebody.” My belly hurts.", set(), {}),
    (WHAT, "My belly hurts. I was painting when it began, I had to stop, and I lay down for the night, but it never"
           " went away and I could not sleep, and now it comes in waves.", {"in_persona"}, {"verbosity": "terse"}),
    (WHAT, "My belly hurts.", {"in_persona"}, {"verbosity": "expansive"}),
    (WHAT, "Um, my, my belly, uh, you know, it hurts.", {"in_persona"}, {"disfluency": "low"}),
    (WHAT, "My belly has been hurting since last night after dinner, low down on the right side.", {"in_persona"},
     {"disfluency": "high"}),
    (WHAT, "I was painting the ceiling when my belly began to hurt a great deal.", {"in_persona"},
     {"english_proficiency": "limited"}),
    (WHAT, "Belly hurt. Last night start.", set(), {"english_proficiency": "limited"}),
    (WHAT, "My belly hurts, it's excruciating.", {"in_persona"}, {"symptom_reporting": "minimising"}),
    (WHAT, "My belly hurts, but it's nothing much.", {"in_persona"}, {"symptom_reporting": "amplifying"}),
    (WHAT, "My belly hurts, and I have hypertension.", {"in_persona"}, {"health_literacy": "limited"}),
    (WHAT, "My belly hurts, just do your bloody job.", {"in_persona"}, {}),
    (WHAT, "My belly hurts, just do your bloody job.", set(), {"demeanour": "hostile"}),
    (WHAT, "Oh God, I'm so scared, my belly hurts.", {"in_persona"}, {}),
    (WHAT, "Oh God, I'm so scared, my belly hurts.", set(), {"distress": "highly_distressed"}),
    ("Do you use any drugs?", "Yes, I smoke cannabis.", {"in_persona"}, {"disclosure": "guarded"}),
    ("Do you use any drugs?", "I'd rather not say.", set(), {"disclosure": "guarded"}),
    ("Do you use any drugs?", "I'd rather not say.", {"in_persona"}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("question", "draft", "wrong", "persona"), PATIENT_LINES)
def test_a_patients_line_gets_its_verdict(question: str, draft: str, wrong: set[str], persona: dict[str, str]) -> None:
    verdict: LineCheck = judge(patient_line(question, draft, **persona))
    assert failed(verdict) == wrong, verdict.critique
    assert verdict.passed == (not wrong)
    assert (verdict.critique == "Nothing to change.") == (not wrong)


def test_a_line_that_was_said_before_tells_nothing_and_a_short_answer_may_come_again() -> None:
    said = "My belly's been hurting since last night, low down on the right."
    again = judge(patient_line("Can you tell me more?", f"Um, {said}", WHAT, said))
    assert failed(again) == {"informative"}
    assert said in again.critique
    assert judge(patient_line(BLOOD, "No.", WHAT, said, "Any chest pain?", "No.")).passed


def test_a_speaker_does_not_say_what_the_other_one_said() -> None:
    asked = "Can you show me where it hurts the most?"
    assert "plausible" in failed(judge(patient_line(asked, asked)))
    heard = "It hurts since last night, all over my belly."
    parrot = judge(nurse_line(heard, "Where does it hurt?", heard, action="check_vital"))
    assert "plausible" in failed(parrot)
    assert "own part" in parrot.critique
    assert judge(nurse_line("How bad is the pain, from zero to ten?", "Where does it hurt?", heard)).passed


@pytest.mark.parametrize("draft", ["I'm allergic to sulfa.", "I live with my sister, and I work in an office."])
def test_something_else_is_no_answer_to_how_bad_the_pain_is(draft: str) -> None:
    assert "informative" in failed(judge(patient_line(PAIN, draft)))


@pytest.mark.parametrize(
    "draft", ["It's pretty bad.", "I can't put a number on it.", "It hurts when I move.", "I'd rather not say.", "Six."]
)
def test_words_for_how_bad_it_is_and_no_number_are_an_answer(draft: str) -> None:
    assert "informative" not in failed(judge(patient_line(PAIN, draft)))


def test_a_critique_says_what_to_change() -> None:
    assert "Leave it out" in judge(patient_line(WHAT, "I've been vomiting blood.")).critique
    assert "6 out of 10" in judge(patient_line(PAIN, "Ten.")).critique
    assert "everyday" in judge(patient_line(WHAT, "I have hypertension.", health_literacy="limited")).critique


def test_a_patient_without_a_script_is_checked_for_all_but_the_script() -> None:
    assert judge(patient_line(BLOOD, "Yes, some.", script=None)).passed
    assert failed(judge(patient_line(WHAT, "I have acute appendicitis.", script=None))) == {"faithful"}


def test_a_confused_patient_may_sound_confused() -> None:
    wrong = "I don't know where I am, I'm all confused."
    assert failed(judge(patient_line(WHAT, wrong))) == {"faithful"}
    impaired = SCRIPT.model_copy(update={"cognitive_state": "impaired"})
    assert judge(patient_line(WHAT, wrong, script=impaired)).passed


# -- the check of a nurse's line

NURSE_LINES: list[tuple[str, set[str], dict[str, Any]]] = [
    ("How bad is the pain, from zero to ten?", set(), {}),
    ("Where is the pain and how bad is it?", {"one_question"}, {}),
    ("Do you have a fever, and when did it begin to hurt?", {"one_question"}, {}),
    ("Any nausea? Any trouble passing urine?", {"one_question"}, {}),
    ("Do you take any medications or have any allergies?", {"one_question"}, {}),
    ("Any medications or allergies?", {"one_question"}, {}),
    ("Tell me how it hurts and what you have taken for it.", {"one_question"}, {}),
    ("Any nausea, vomiting or diarrhoea?", set(), {}),
    ("Do you have a fever, chills and night sweats?", set(), {}),
    ("Is it sharp or dull?", set(), {}),
    ("Is it constant, or does it come and go?", set(), {}),
    ("Are you allergic to any medicines or foods?", set(), {}),
    ("Tell me about alcohol, do you drink any?", set(), {}),
    ("Okay. Thank you for that.", {"one_question"}, {}),
    ("Your blood pressure is 98 over 60. Do you feel dizzy?", {"faithful"}, {}),
    ("Your pulse is 104. Do you feel dizzy?", set(), {"vitals": {"heartrate": "104 /min"}}),
    ("So you have chest pain. Have you been sweating?", {"faithful"}, {}),
    ("So, belly pain. Have you vomited?", set(), {}),
    ("This looks like appendicitis. Have you vomited?", {"faithful"}, {}),
    ("Have you ever had appendicitis?", set(), {}),
    ("You're an ESI level 3. Have you vomited?", {"faithful"}, {}),
    ("Sir, have you vomited?", {"faithful"}, {}),
    ("I see you came by ambulance. Have you vomited?", {"faithful"}, {}),
    ("How long has it been hurting?", set(), {}),
    ("Calm down. Have you vomited?", {"in_persona"}, {"emotional_responsiveness": "empathic"}),
    ("That sounds painful. Have you vomited?", {"in_persona"}, {}),
    ("That sounds painful. Have you vomited?", set(), {"emotional_responsiveness": "acknowledging"}),
    ("Hi, I'm Jessica, one of the nurses. Have you vomited?", {"no_names"}, {}),
    ("Thanks, Mrs. Lopez. Have you vomited?", {"no_names"}, {}),
    ("[checks chart] Have you vomited?", {"plausible"}, {}),
    ("As an AI, I must ask, have you vomited?", {"plausible"}, {}),
    ("", {"plausible", "one_question"}, {}),
    ("Let me take your temperature.", set(), {"action": "check_vital"}),
    ("Take a seat, we'll call you. Tell me at once if it gets worse.", set(), {"action": "end"}),
    ("Take a seat. You're a category 3, so you'll wait.", {"faithful"}, {"action": "end"}),
]


@pytest.mark.parametrize(("draft", "wrong", "changes"), NURSE_LINES)
def test_a_nurses_line_gets_its_verdict(draft: str, wrong: set[str], changes: dict[str, Any]) -> None:
    verdict: NurseLineCheck = judge(nurse_line(draft, **changes))
    assert failed(verdict) == wrong, verdict.critique
    assert (verdict.critique == "Nothing to change.") == (not wrong)


def test_a_question_that_was_answered_is_not_asked_again_unless_it_stayed_open() -> None:
    again = "Are you allergic to anything?"
    verdict = judge(nurse_line(again, "Any allergies?", "No allergies."))
    assert failed(verdict) == {"informative"}
    assert "Any allergies?" in verdict.critique
    for open_still in ("I'm not sure.", "I'd rather not say.", "Sorry, what do you mean?"):
        assert judge(nurse_line(again, "Any allergies?", open_still)).passed
    assert judge(nurse_line(again, "Any allergies?", "No allergies.", workload="overloaded")).passed
    breathing = nurse_line("Are you short of breath?", "Any trouble breathing?", "No.", vitals={"o2sat": None})
    assert judge(breathing).passed


def test_a_nurse_says_back_what_was_affirmed_and_nothing_that_was_denied() -> None:
    echo = "So, a fever. Have you vomited?"
    assert judge(nurse_line(echo, "Any fever?", "Yes.")).passed
    assert failed(judge(nurse_line(echo, "Any fever?", "No."))) == {"faithful"}
    assert failed(judge(nurse_line(echo))) == {"faithful"}


def test_a_critique_of_two_questions_keeps_the_first() -> None:
    critique = judge(nurse_line("Where is the pain and how bad is it?")).critique
    assert "Where is the pain" in critique
    assert "how bad" not in critique


def test_the_agendas_own_questions_ask_for_one_thing_save_for_a_few() -> None:
    items = load_yaml("agenda/nurse.yaml")["items"].values()
    wordings = [text.replace("{it}", "the pain") for entry in items for text in entry["open"] + entry["closed"]]
    more_or_less = [text for text in wordings if len(questions_in(text)) != 1]
    assert all(re.search(r", and (?:what|does|has|is) ", text) for text in more_or_less), more_or_less
    assert len(more_or_less) <= 5


# -- real dialogues


def lines_of(episode: dict[str, Any]) -> Iterator[NurseLineView | PatientLineView]:
    """Every spoken line of an episode as the master would have been asked about it."""
    case = Case.model_validate(episode["case"])
    nurse = {name: episode["nurse_persona"][name] for name in registry("nurse").traits}
    patient = {name: episode["patient_persona"][name] for name in registry("patient").traits}
    known = case_facts(case, age_group=patient["age_group"], unwell="")
    seen = facts_for("nurse", case, age_group=patient["age_group"], unwell="")
    dialogue: list[Spoken] = []
    vitals: dict[Any, str | None] = {}
    for line in episode["history"]:
        if line.get("event") == "vital":
            vitals[line["name"]] = None if line["value"] is None else with_unit(line["name"], line["value"])
        elif line["actor"] != "system":
            said, so_far = line["utterance"], tuple(dialogue)
            dialogue.append(Spoken(speaker=line["actor"], text=said))
            if line["actor"] == "patient":
                yield PatientLineView(facts=known, persona=patient, dialogue=so_far, draft=said)
            else:
                action = line.get("action") or "utterance"
                yield NurseLineView(
                    facts=seen, persona=nurse, dialogue=so_far, vitals=dict(vitals), action=action, draft=said
                )


@cache
def episodes() -> list[dict[str, Any]]:
    """Twenty vignettes played by the agenda with all sorts of personas."""
    nurses = [NursePersona(**registry("nurse").at(number)) for number in range(0, 3888, 97)]
    patients = [PatientPersona(**registry("patient").at(number)) for number in range(0, 104976, 1499)]
    cases = load_cases(RESOURCES / "cases" / "vignettes.jsonl")[::2][:20]
    people: dict[str, Any] = {"nurse_personas": nurses, "patient_personas": patients}
    return list(simulate(cases, nurse_llm=Agenda(), patient_llm=Agenda(), seed=7, **people))


@pytest.mark.parametrize("kind", [NurseLineView, PatientLineView])
def test_the_agendas_own_lines_pass_nearly_always(kind: type) -> None:
    verdicts = [
        (view.draft, judge(view)) for episode in episodes() for view in lines_of(episode) if isinstance(view, kind)
    ]
    wrong = [(draft, verdict.critique) for draft, verdict in verdicts if not verdict.passed]
    assert len(verdicts) > 100
    assert len(wrong) <= 0.05 * len(verdicts), wrong


def test_somebody_elses_answers_are_caught_where_they_contradict_the_script() -> None:
    """The check isn't blind: lines of one patient put into the mouth of another mostly fail."""
    views = [view for episode in episodes() for view in lines_of(episode) if isinstance(view, PatientLineView)]
    openings = [view for view in views if len(view.dialogue) == 1]
    swapped = [
        view.model_copy(update={"draft": other.draft, "persona": other.persona})
        for view, other in zip(openings, openings[1:] + openings[:1], strict=True)
    ]
    caught = [not judge(view).faithful for view in swapped]
    assert sum(caught) >= 0.6 * len(caught)


# -- the reading of an exchange

OPEN = dict.fromkeys(RECORD_FIELDS, UNKNOWN)
READINGS: list[tuple[str, str, dict[str, str]]] = [
    (WHAT, "I've got this crushing pain in my chest.",
     {"chief_complaint": "This crushing pain in my chest", "pain": "chest pain"}),
    (WHAT, "I'd rather not say.", {"chief_complaint": "declined to say"}),
    ("When did it start?", "Um, about two hours ago, I was sitting down.",
     {"onset_and_course": "Two hours ago, I was sitting down"}),
    ("When did it start?", "I'm not sure exactly when.", {"onset_and_course": "the patient isn't sure"}),
    (PAIN, "Seven out of ten.", {"pain": "7 of 10"}),
    (PAIN, "No pain at all, zero.", {"pain": "none"}),
    ("Where exactly is it?", "Low down on the right.", {"pain": "Low down on the right"}),
    ("Any fever?", "No.", {"associated_symptoms": "denies fever"}),
    ("Any fever?", "Yes, since yesterday.", {"associated_symptoms": "fever", "onset_and_course": "Since yesterday"}),
    ("Any other symptoms?", "No, that's all.", {"associated_symptoms": "none"}),
    ("Any other symptoms?", "I feel sick and I've got the shivers.",
     {"associated_symptoms": "I feel sick and I've got the shivers"}),
    ("Any medical conditions?", "Nothing, I've always been healthy.", {"relevant_history": "none"}),
    ("Any medical conditions?", "Well, I have diabetes and high blood pressure.",
     {"relevant_history": "Diabetes and high blood pressure"}),
    ("Do you have asthma?", "No.", {"relevant_history": "denies asthma or lung disease"}),
    ("Do you use any drugs?", "That's private.", {"relevant_history": "declined to say"}),
    ("What medicines do you take?", "I'm on, uh, metformin and lisinopril.",
     {"medications": "Metformin and lisinopril"}),
    ("What medicines do you take?", "No, I don't take anything.", {"medications": "none"}),
    ("What medicines do you take?", "I don't know the names.", {"medications": "the patient isn't sure"}),
    ("Any allergies?", "None that I know of.", {"allergies": "none"}),
    ("Any allergies?", "I'm allergic to penicillin. Is it serious?", {"allergies": "Penicillin"}),
    ("Any allergies?", "Sorry, what do you mean?", {}),
    ("Are you on any medicines, and do you have any allergies?", "No, nothing.",
     {"medications": "none", "allergies": "none"}),
    ("Any allergies?", "", {}),
]  # fmt: skip


@pytest.mark.parametrize(("question", "reply", "news"), READINGS)
def test_an_exchange_fills_the_record_from_its_words_alone(question: str, reply: str, news: dict[str, str]) -> None:
    answer: Reading = judge(ReadingView(question=question, reply=reply, record=OPEN))
    assert {name: text for name, text in answer.record if text is not None} == news
    assert answer.conveyed


def test_the_record_grows_and_keeps_what_it_held() -> None:
    record = {**OPEN, "associated_symptoms": "denies fever", "pain": "7 of 10", "medications": "declined to say"}
    cough = judge(ReadingView(question="Any cough?", reply="No.", record=record)).record
    assert cough.associated_symptoms == "denies fever, a cough"
    where = judge(ReadingView(question="Where is it?", reply="In my chest.", record=record)).record
    assert where.pain == "7 of 10; In my chest"
    told = judge(ReadingView(question="What medicines do you take?", reply="Warfarin.", record=record)).record
    assert told.medications == "Warfarin"
    again = judge(ReadingView(question="Any fever?", reply="No.", record=record)).record
    assert not [text for _, text in again if text is not None]
    declined = judge(ReadingView(question=PAIN, reply="I'd rather not say.", record=record)).record
    assert declined.pain is None


def test_what_was_conveyed_is_one_sentence_about_the_exchange() -> None:
    for question, reply, sentence in [
        ("What's wrong?", "I've got a headache and no fever.", "The patient reports headache and denies fever."),
        ("Do you have diabetes?", "No. You're not listening!", "The patient denies diabetes."),
        ("When did the headache start?", "Yes, yesterday.", "The patient says: “Yesterday”"),
        ("Any allergies?", "I'd rather not say.", "The patient would rather not say."),
    ]:
        assert judge(ReadingView(question=question, reply=reply, record=OPEN)).conveyed == sentence


def test_a_nurses_echo_is_no_question() -> None:
    asked = "Okay, so a rash. Do you have difficulty breathing?"
    assert judge(ReadingView(question=asked, reply="No.", record=OPEN)).record.associated_symptoms == (
        "denies shortness of breath"
    )


def test_a_record_of_a_whole_interview_holds_answers_alone_and_fills_up() -> None:
    filled = 0
    for episode in episodes():
        record, asked = dict(OPEN), ""
        for line in episode["transcript"]:
            if line["speaker"] == "nurse":
                asked = line["text"]
                continue
            news = judge(ReadingView(question=asked, reply=line["text"], record=record)).record
            record |= {name: text for name, text in news if text is not None}
        filled += sum(text != UNKNOWN for text in record.values())
        assert record["chief_complaint"] != UNKNOWN
        assert not re.search(r"\b(?:unknown|null|n/a)\b", " ".join(t for t in record.values() if t != UNKNOWN).lower())
    assert filled >= 3 * len(episodes())


# -- the master's own line


@pytest.mark.parametrize("seed", range(3))
def test_the_masters_own_line_passes_its_check_and_keeps_to_the_matter(seed: int) -> None:
    for question, draft, wrong, persona in PATIENT_LINES:
        if wrong:
            view = patient_line(question, draft, **persona)
            edit: Edit = judge(EditView(line=view, critique="no"), seed)
            assert judge(view.model_copy(update={"draft": edit.utterance})).passed, (draft, edit.utterance)
    for draft, wrong, changes in NURSE_LINES:
        if wrong:
            view = nurse_line(draft, **changes)
            edit = judge(EditView(line=view, critique="no"), seed)
            assert judge(view.model_copy(update={"draft": edit.utterance})).passed, (draft, edit.utterance)


def test_the_masters_own_line_keeps_the_speakers_intent() -> None:
    two = judge(EditView(line=nurse_line("Where is the pain and how bad is it?"), critique="two"))
    assert two.utterance == "Where is the pain?"
    named = judge(EditView(line=nurse_line("I'm Jessica. Any allergies?"), critique="name"))
    assert named.utterance == "Any allergies?"
    answered = judge(EditView(line=patient_line("Any allergies?", "No, none."), critique="denied"))
    assert "penicillin" in answered.utterance.lower()
    closing = judge(EditView(line=nurse_line("Level 3 for you. Take a seat.", action="end"), critique="level"))
    assert closing.utterance == "Take a seat."


# -- what is seen of the patient


def looks(complaint: str, pain: Any = None, seed: int = 1, **fields: Any) -> Appearance:
    """The master's description of a case's patient."""
    case = a_case(complaint, pain=pain, **fields)
    seen: Appearance = judge(AppearanceView(facts=case_facts(case, age_group=case.age_group, unwell="")), seed)
    return seen


@pytest.mark.parametrize(
    ("complaint", "fields", "aspect", "words"),
    [
        ("Shortness of breath", {"vitals": {"resprate": 34}}, "breathing", "fast and hard|Fights for air"),
        ("Cough", {"vitals": {"resprate": 16}}, "breathing", "quietly"),
        ("Overdose", {"vitals": {"resprate": 8}}, "breathing", "slow"),
        ("Abd pain", {"pain": 9}, "visible_distress", "belly"),
        ("Ankle pain", {"pain": 6}, "visible_distress", "moving"),
        ("Med refill", {"pain": 0}, "visible_distress", "None|at ease"),
        ("Fever", {"vitals": {"temperature": 102.6}}, "skin", "damp|sweating"),
        ("Fever", {"vitals": {"temperature": 39.2}}, "skin", "damp|sweating"),
        ("Weakness", {"vitals": {"sbp": 82}}, "skin", "sweat|damp"),
        ("Weakness", {"vitals": {"o2sat": 80}}, "skin", "blu"),
        ("Laceration", {}, "visible_injuries", "wound"),
        ("Epistaxis", {}, "visible_injuries", "tissue"),
        ("Cough", {}, "visible_injuries", "None|No injury"),
        ("SI", {}, "behaviour", "floor|lowered"),
        ("Altered mental status", {}, "behaviour", "lost|not sure"),
        ("Chest pain", {"arrival_transport": "ambulance"}, "arrival", "stretcher"),
        ("L ankle injury", {"arrival_transport": "walk in"}, "arrival", "[Ll]imp"),
    ],
)
def test_what_is_seen_follows_from_the_complaint_the_vitals_and_the_pain(
    complaint: str, fields: dict[str, Any], aspect: str, words: str
) -> None:
    for seed in range(6):
        assert re.search(words, getattr(looks(complaint, seed=seed, **fields), aspect))


def test_neither_diagnoses_nor_acuity_show_and_the_seed_varies_the_words() -> None:
    plain = looks("Cough")
    assert plain == looks("Cough", diagnoses=["Stroke", "Jaundice"], acuity=1, medications=["insulin"])
    assert len({looks("Cough", seed=seed) for seed in range(12)}) > 3


@needs_demo
def test_nothing_that_is_said_of_a_demo_patients_looks_is_banned() -> None:
    for case in demo():
        view = AppearanceView(facts=case_facts(case, age_group=None, unwell=""))
        for seed in range(4):
            assert banned_in(judge(view, seed), view.facts) == ()


def test_no_wording_of_what_is_seen_is_banned() -> None:
    for aspect, rules in load_yaml("agenda/master.yaml")["appearance"].items():
        assert aspect in Appearance.model_fields
        assert set(rules[-1]) == {"says"}
        for text in texts_in([rule["says"] for rule in rules]):
            seen = Appearance(**{**dict.fromkeys(Appearance.model_fields, "x"), aspect: text})
            assert banned_in(seen, CaseFacts()) == (), text


# -- any view

TEXT = st.sampled_from(
    [*(draft for _, draft, _, _ in PATIENT_LINES), *(draft for draft, _, _ in NURSE_LINES)]
) | st.text(max_size=80)
DIALOGUE = st.lists(TEXT, max_size=7).map(lambda texts: talk(*texts))
FACTS = {
    "gender": st.sampled_from([None, "female", "male", "x"]),
    "age_group": st.sampled_from([None, "adult", "older"]),
    "arrival_transport": st.sampled_from([None, "walk in", "AMBULANCE", "helicopter", "?"]),
}
CASE_FACTS = st.builds(
    CaseFacts,
    **FACTS,
    chief_complaint=st.none()
    | st.text(max_size=40)
    | st.sampled_from(["N/V/D, Transfer", "R FOOT PAIN", "s/p Fall", "SI"]),
    pain=st.none() | st.sampled_from(["0", "10", "7.5", "unable", "13", "", "nan"]),
    unwell=st.just("unwell"),
    script=st.none() | st.just(SCRIPT),
    acuity=st.none() | st.integers(1, 5),
    vitals=st.dictionaries(st.sampled_from(VITALS), st.none() | st.floats(20, 200)),
    diagnoses=st.lists(
        st.sampled_from(["HYPERTENSION NOS", "Chest pain, unspecified", ""]) | st.text(max_size=30), max_size=3
    ),
    medications=st.lists(st.sampled_from(["insulin lispro [Humalog]", "*x ", ""]) | st.text(max_size=20), max_size=4),
)
PATIENTS = st.integers(0, registry("patient").size - 1).map(registry("patient").at)
NURSES = st.integers(0, registry("nurse").size - 1).map(registry("nurse").at)
PATIENT_VIEWS = st.builds(PatientLineView, facts=CASE_FACTS, persona=PATIENTS, dialogue=DIALOGUE, draft=TEXT)
NURSE_VIEWS = st.builds(
    NurseLineView,
    facts=st.builds(Facts, **FACTS),
    persona=NURSES,
    dialogue=DIALOGUE,
    vitals=st.dictionaries(st.sampled_from(VITALS), st.sampled_from([None, "98.6 °F", "130 /min", "88 %"])),
    action=st.sampled_from(["utterance", "check_vital", "end"]),
    draft=TEXT,
)
VIEWS = st.one_of(
    st.builds(ArrivalView, facts=CASE_FACTS, observed=st.none() | st.text(max_size=10)),
    st.builds(ScriptView, facts=CASE_FACTS, persona=PATIENTS),
    st.builds(AppearanceView, facts=CASE_FACTS, rejected=st.just(()) | st.just(("fever",))),
    PATIENT_VIEWS,
    NURSE_VIEWS,
    st.builds(EditView, line=PATIENT_VIEWS | NURSE_VIEWS, critique=st.text(max_size=20)),
    st.builds(
        ReadingView,
        question=TEXT,
        reply=TEXT,
        record=st.fixed_dictionaries(dict.fromkeys(RECORD_FIELDS, st.sampled_from([UNKNOWN, "none", "denies fever"]))),
    ),
)


@settings(max_examples=400, deadline=None)
@given(view=VIEWS, seed=st.integers(0, 2**31 - 1))
def test_any_view_gets_a_valid_answer_and_the_same_one_again(view: MasterView, seed: int) -> None:
    answer = judge(view, seed)
    assert answer == judge(view, seed)
    if isinstance(answer, LineCheck):
        assert answer.passed == (answer.critique == "Nothing to change.")


def fingerprint() -> str:
    """A hash of the answers to many views of every kind."""
    views: list[MasterView] = [
        patient_line(question, draft, **persona) for question, draft, _, persona in PATIENT_LINES
    ]
    views += [nurse_line(draft, **changes) for draft, _, changes in NURSE_LINES]
    views += [
        EditView(line=view, critique="no") for view in views[::3] if isinstance(view, PatientLineView | NurseLineView)
    ]
    views += [ReadingView(question=question, reply=reply, record=OPEN) for question, reply, _ in READINGS]
    for complaint in ("Abd pain, N/V", "Chest pain, Dizziness, Cough", "ETOH, SI", "s/p Fall, L Shoulder pain"):
        case = a_case(complaint, diagnoses=["HYPERTENSION NOS", "Nausea with vomiting"], vitals={"temperature": 101})
        views.append(ScriptView(facts=case_facts(case, age_group="older", unwell=""), persona=PLAIN_PATIENT))
        views.append(arrival_view(case, age_group="older"))
        views.append(AppearanceView(facts=case_facts(case, age_group="older", unwell="")))
    answers = [judge(view, seed).model_dump_json() for seed, view in enumerate(views)]
    return sha256("\n".join(answers).encode()).hexdigest()


def test_answers_do_not_depend_on_the_order_of_sets() -> None:
    code = "import test_agenda_master; print(test_agenda_master.fingerprint())"
    tests = Path(__file__).parent
    path = os.pathsep.join([str(tests), str(tests.parent / "workflow")])
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "2")
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("question", "reply", "field", "text"),
    [
        (
            "What allergies do you know of?",
            "Only penicillin. I take losartan and a water tablet.",
            "allergies",
            "Penicillin",
        ),
        ("What medicines do you take?", "I take losartan. I'm allergic to penicillin.", "medications", "Losartan"),
        ("Any allergies?", "Yes, penicillin. It gives me a rash.", "allergies", "Penicillin. It gives me a rash"),
        ("Do you take medications or have any allergies?", "I take aspirin. No allergies.", "medications", "Aspirin"),
        ("Do you take medications or have any allergies?", "I take aspirin. No allergies.", "allergies", "none"),
        ("Ever reacted badly to a medicine or a food?", "Nothing. Nothing. So scared.", "allergies", "none"),
        ("Ever reacted badly to a medicine or a food?", "Nothing. Nothing. So scared.", "medications", None),
        ("What medicines do you take?", "Just cetirizine. Don't let me die.", "medications", "Cetirizine"),
        ("Other medical problems?", "There's gout, years ago. Please.", "onset_and_course", None),
    ],
)
def test_an_answer_about_one_list_puts_nothing_of_the_other_into_it(
    question: str, reply: str, field: str, text: str | None
) -> None:
    record = dict.fromkeys(RECORD_FIELDS, UNKNOWN)
    answer = judge(ReadingView(question=question, reply=reply, record=record))
    assert getattr(answer.record, field) == text
