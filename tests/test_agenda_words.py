"""What the agenda's people say: nothing that no nurse and no patient would say, each kind once found in a dialogue."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from actors import PLAIN_NURSE, SCRIPT
from test_agenda import episodes, nurse, patient, replies, said, texts_in
from triagesim.backends.agenda.knowledge import exchange_of
from triagesim.backends.agenda.recording import reading
from triagesim.backends.agenda.understanding import ask, kind_of, pain_score, read, tell_apart, told
from triagesim.backends.agenda.wording import smooth
from triagesim.resources import load_yaml
from triagesim.views import ReadingView

BELIEVING = {"self_report_credence": "accepting"}


# -- the nurse


@pytest.mark.parametrize("arrival", ["ambulance", "helicopter"])
def test_nobody_on_a_trolley_is_told_to_come_over_or_to_sit(arrival: str) -> None:
    facts = {"gender": "male", "age_group": "adult", "arrival_transport": arrival}
    on_foot = re.compile(load_yaml("agenda/nurse.yaml")["on_foot"], re.IGNORECASE)
    for seed in range(40):
        opening = nurse(seed=seed, facts=facts, actions=("utterance",)).utterance or ""
        closing = nurse(
            "What's wrong?", "My ear hurts.", seed=seed, facts=facts, questions_left=0, actions=("end",)
        ).utterance
        assert not on_foot.search(opening), opening
        assert not on_foot.search(closing or ""), closing


def test_the_nurse_names_the_problem_by_nothing_that_was_not_told() -> None:
    persona = {"workload": "quiet", "expertise": "novice"}
    for complaint in ("There's blood in my pee.", "My chest got tight.", "My words come out wrong.", "I fell over."):
        heard = read(complaint).present
        for seed in range(30):
            text = nurse("What's wrong?", complaint, seed=seed, persona=persona, actions=("utterance",)).utterance
            question = ask(text or "")
            if question.strong == "onset":
                assert not re.search(r"\bpain\b|burning|muddle|weakness", text or ""), text
                named = {name for name in read(text or "").mentioned if kind_of(name) != "site"}
                assert named <= heard, text


def test_what_is_said_back_is_no_label() -> None:
    data = load_yaml("agenda/nurse.yaml")
    for finding, text in data["echoed"].items():
        assert finding in read(f"There is {text}.").mentioned, (finding, text)
    heard = [
        nurse("What's wrong?", "I'm muddled and I feel so low.", seed=seed, persona=BELIEVING, actions=("utterance",))
        for seed in range(40)
    ]
    assert not any(re.search(r"new confusion|low mood", step.utterance or "") for step in heard)


def test_a_question_about_the_time_is_worded_so_that_a_time_answers_it() -> None:
    items = load_yaml("agenda/nurse.yaml")["items"]
    for item in ("onset", "happened"):
        for text in texts_in([items[item]["open"], items[item]["closed"]]):
            assert not re.search(r"\bhow (?!long)|what were you doing", text, re.IGNORECASE), text


def test_a_question_that_no_can_answer_is_worded_so() -> None:
    for name, entry in load_yaml("agenda/nurse.yaml")["items"].items():
        for text in texts_in([entry["open"], entry["closed"]]) if "asks" in entry else ():
            asks = tell_apart(text)[-1]
            assert not re.match(r"How (?:much|many|often|long)\b|When\b|Where\b", asks), (name, text)


def test_a_measured_fever_is_not_asked_about() -> None:
    before = ("What's wrong?", "My belly hurts.", "When did it start?", "Yesterday.")
    hot = {"temperature": "101.8 °F"}
    asked = [nurse(*before, seed=seed, vitals=hot, actions=("utterance",)).utterance or "" for seed in range(40)]
    assert not any("fever" in ask(text).findings for text in asked)


def test_blood_in_vomit_is_asked_about_only_where_somebody_vomits() -> None:
    for seed in range(30):
        step = nurse("What's wrong?", "I've got diarrhoea.", seed=seed, persona={"risk_attitude": "risk_averse"},
                     actions=("utterance",))  # fmt: skip
        assert not ask(step.utterance or "").findings & {"vomiting_blood", "persistent_vomiting"}


def test_breathing_and_the_airway_come_before_everything_else() -> None:
    novice = {"expertise": "novice", "algorithm_reliance": "protocol_driven"}
    for complaint, first in [
        ("I'm short of breath.", {"cannot_breathe"}),
        ("I've come out in hives.", {"breathless"}),
        ("My chest hurts.", {"breathless"}),
        ("We had a crash.", {"high_energy"}),
    ]:
        step = nurse("What's wrong?", complaint, persona=novice, actions=("utterance",))
        assert ask(step.utterance or "").findings & first, (complaint, step.utterance)


def test_low_mood_and_an_earlier_attempt_lead_to_the_question_of_suicide() -> None:
    persona = {**PLAIN_NURSE, "workload": "overloaded", "risk_attitude": "risk_accepting"}
    talk = ["What's wrong?", "I'd rather not say."]
    for question in ("When did it start?", "Any fever?", "Any trouble breathing?", "Pain out of ten?", "Any cough?"):
        talk += [question, "No."]
    talk += ["Any medical conditions?", "Depression, and a suicide attempt back in college."]
    step = nurse(*talk, persona=persona)
    assert "suicidal" in ask(step.utterance or "").findings


def test_a_reason_that_is_never_told_sends_nobody_to_wait() -> None:
    talk = ("What's wrong?", "I'd rather not say.", "Is your heart racing?", "Yes, it's racing.")
    assert nurse(*talk, scale="ats").triage <= 3


def test_daily_life_is_no_matter_where_minutes_count() -> None:
    talk = ("What's wrong?", "There's crushing pressure in my chest.", "Any trouble breathing?", "Yes.")
    for seed in range(30):
        step = nurse(*talk, "Pain out of ten?", "Eight.", seed=seed, persona={"self_report_credence": "discounting"},
                     actions=("utterance",))  # fmt: skip
        assert "function" not in ask(step.utterance or "").topics


def test_no_thermometer_goes_into_the_mouth_of_somebody_who_cannot_breathe() -> None:
    data = load_yaml("agenda/nurse.yaml")
    assert not any(re.search(r"tongue|mouth", text) for text in texts_in(data["measure"]["temperature"]))
    assert data["measure_after"].keys() == data["measure"].keys()
    assert not any("hurt" in text for text in data["measure_after"]["resprate"])


# -- the patient


@pytest.mark.parametrize(
    "reply",
    [
        "One more time please, slow?",
        "One more time.",
        "Which one?",
        "One second.",
        "I went two times.",
        "One thing.",
    ],
)
def test_a_number_that_counts_something_else_is_no_pain_score(reply: str) -> None:
    assert pain_score(reply, asked=True) is None


@pytest.mark.parametrize(("reply", "score"), [("One.", 1), ("Seven or eight.", 8), ("It's a four, maybe?", None)])
def test_a_bare_number_is_a_pain_score_unless_it_is_a_question(reply: str, score: int | None) -> None:
    assert pain_score(reply, asked=True) == score


def test_how_long_ago_is_answered_by_the_beginning() -> None:
    script = SCRIPT.model_copy(update={"onset": "an hour ago", "duration": "since the crash"})
    assert "hour ago" in patient("How long ago did it happen?", script=script).utterance
    assert "since the crash" in patient("How long have you had it?", script=script).utterance.lower()


def test_what_the_nurse_says_before_its_question_is_not_what_is_answered() -> None:
    script = SCRIPT.model_copy(update={"associated_symptoms": ("shaking chills",), "medical_history": ("diabetes",)})
    text = patient("So, the shivers. Any medical history?", script=script).utterance
    assert "diabetes" in text.lower()
    assert "diabetes" in patient("I'm sorry about the pain. Any medical history?", script=script).utterance.lower()


def test_a_question_with_its_condition_first_is_read_whole() -> None:
    text = patient("If you had to score the pain from zero to ten, where would it be now?").utterance
    assert pain_score(text, asked=True) == 6


def test_what_a_question_sets_apart_is_not_what_it_asks() -> None:
    question = ask("Apart from your chest pain, is anything else bothering you?")
    assert question.topics == ("associated",)
    assert not question.findings


def test_medicines_named_as_what_one_may_react_to_are_not_asked_for() -> None:
    for text in ("Have you ever reacted badly to a medicine or a food?", "Allergies to any medicines or foods?"):
        assert ask(text).topics == ("allergies",)
    assert set(ask("Do you take any medicines, and are you allergic to anything?").topics) >= {"medications"}


def test_no_pain_is_not_hedged() -> None:
    for text in replies("Pain out of ten?", facts={"pain": "0"}):
        assert pain_score(text, asked=True) == 0
        assert not re.search(r"about|around|maybe|somewhere|call it", text, re.IGNORECASE), text


def test_words_on_the_pain_do_not_gainsay_how_the_patient_puts_it() -> None:
    strong = SCRIPT.model_copy(update={"severity": "an 8 out of 10, the worst thing I've ever felt"})
    weak = SCRIPT.model_copy(update={"severity": "a 3 out of 10, it's hardly pain"})
    asked = "Pain out of ten?"
    assert not any("worst" in text for text in replies(asked, script=strong, symptom_reporting="minimising"))
    assert not any("hardly" in text for text in replies(asked, script=weak, symptom_reporting="amplifying"))
    assert any("worst" in text for text in replies(asked, script=strong, symptom_reporting="amplifying"))


def test_a_question_how_it_went_is_not_answered_by_since_when() -> None:
    script = SCRIPT.model_copy(update={"duration": "a day or so"})
    heard = replies("Is it getting better or worse?", script=script)
    assert not any("day or so" in text for text in heard)
    worse = SCRIPT.model_copy(update={"duration": "a day, and worse tonight"})
    assert "worse tonight" in patient("Is it getting better or worse?", script=worse).utterance


def test_an_illness_or_a_thought_is_not_denied_as_something_not_noticed() -> None:
    for question in ("Do you have diabetes?", "Could you be pregnant?", "Any thoughts of hurting others?"):
        for text in replies(question, count=30):
            assert "notice" not in text, text


def test_somebody_short_of_words_has_none_for_insults_and_small_talk() -> None:
    script = SCRIPT.model_copy(update={"story": "Wasp... got me on the neck. Can't... swallow right."})
    manner = {"demeanour": "hostile", "distress": "highly_distressed", "verbosity": "expansive", "disfluency": "high"}
    added = [*texts_in(load_yaml("agenda/patient.yaml")["manner"]), *load_yaml("agenda/patient.yaml")["expansive"]]
    for question in ("Any allergies?", "Does it hurt?", "When did it start?"):
        for text in replies(question, script=script, **manner):
            assert not [line for line in added if line in text and len(line.split()) > 3], text


def test_a_confused_patient_does_not_say_that_it_tells_the_whole_story() -> None:
    script = SCRIPT.model_copy(update={"cognitive_state": "delirious"})
    lines = load_yaml("agenda/patient.yaml")["expansive"]
    for text in replies("Any allergies?", script=script, verbosity="expansive"):
        assert not any(line in text for line in lines), text


def test_little_english_keeps_the_words_that_carry_the_sense() -> None:
    def said_of(onset: str, **persona: Any) -> str:
        script = SCRIPT.model_copy(update={"onset": onset})
        return " ".join(replies("When did it start?", script=script, count=20, **persona))

    for level in ("limited", "functional"):
        assert "ne hour ago" in said_of("an hour ago", english_proficiency=level, verbosity="terse")
        script = SCRIPT.model_copy(update={"duration": "a little better this week"})
        heard = replies("Is it better or worse?", script=script, english_proficiency=level)
        assert not any(re.match(r"(?i)little better", text) for text in heard)
    assert "his morning" in said_of("this morning", english_proficiency="limited")
    story = SCRIPT.model_copy(
        update={"story": "It stings like crazy every time I go, and ten minutes later I have to go again."}
    )
    asked = replies("What's wrong?", "It hurts.", "Tell me what happened, step by step.", script=story,
                    english_proficiency="limited", facts={"chief_complaint": "Burning pee"})  # fmt: skip
    for text in asked:
        assert not re.search(r"\b(?:I|the|my|a|to|every)\.", text), text
        assert not re.search(r"\bI to\b", text), text


def test_no_filler_stands_beside_another() -> None:
    filler = r"(?:um|uh|er|uhm|you know|i mean)"
    for text in replies("What brought you in?", count=150, disfluency="high"):
        assert not re.search(rf"\b{filler}, {filler}\b", text, re.IGNORECASE), text


def test_a_slip_of_the_tongue_is_one_that_grammar_allows() -> None:
    table = load_yaml("agenda/patient.yaml")["disfluency"]["substituted"]
    assert all(wrong.endswith(f", {right}") for right, wrong in table.items())
    assert not {"get", "take", "think", "about"} & table.keys()


def test_a_line_of_the_same_word_twice_is_not_said_again_and_again() -> None:
    talk = ["What's wrong?", "My belly hurts. Please, please!", "Any fever?"]
    persona = {"english_proficiency": "limited", "distress": "highly_distressed", "verbosity": "terse"}
    assert not any("Please, please!" in text for text in replies(*talk, **persona))


@pytest.mark.parametrize(
    ("complaint", "words", "never"),
    [
        ("Chemical splash to eye", "chemical", "^my eye is red"),
        ("Dressing came loose", "dressing", "stitches"),
        ("Wound eval", "wound", "stitches"),
        ("Hemodialysis", "dialysis", "came out"),
        ("Vomiting", "vomiting|throwing up", "keep"),
        ("Insect sting", "stung", "reaction"),
        ("DVT", "leg", "my side"),
    ],
)
def test_a_complaint_is_put_in_words_that_say_no_more_and_nothing_else(complaint: str, words: str, never: str) -> None:
    for seed in range(12):
        text = patient("What's wrong?", seed=seed, script=None, facts={"chief_complaint": complaint}).utterance.lower()
        assert re.search(words, text), text
        assert not re.search(never, text), text


def test_everyday_words_for_medicines_swallow_no_other_word() -> None:
    script = SCRIPT.model_copy(
        update={"medical_history": ("diabetes, on insulin", "high cholesterol"), "medications": ("calcium carbonate",)}
    )
    text = patient("Any medical conditions?", script=script, health_literacy="limited").utterance
    assert " and too much fat" in text
    thyroid = SCRIPT.model_copy(
        update={"medical_history": ("an underactive thyroid",), "medications": ("insulin regular human", "aspirin")}
    )
    terse = {"script": thyroid, "health_literacy": "limited", "verbosity": "terse"}
    assert patient("Any medical conditions?", **terse).utterance == "A gland thing in my neck."
    assert patient("Which tablets?", **terse).utterance == "My insulin shots and aspirin."
    story = SCRIPT.model_copy(update={"story": "The emphysema's playing up again."})
    assert "lungs's" not in patient("What's wrong?", script=story, health_literacy="limited").utterance
    assert "carbonate" not in patient("Which tablets?", script=script, health_literacy="limited").utterance


def test_a_patients_own_complaint_comes_once() -> None:
    script = SCRIPT.model_copy(update={"story": "They rang and said my blood test is abnormal."})
    facts = {"chief_complaint": "Abnormal labs"}
    talk = ("What's wrong?", "I'd rather not say.", "What brought you in?")
    for text in replies(*talk, script=script, facts=facts):
        assert text.lower().count("blood test") == 1, text


# -- what words mean


@pytest.mark.parametrize(
    ("text", "never"),
    [
        ("Dead centre, and down the left arm.", "one_sided_weakness"),
        ("Everything went black at the edges.", "gaping"),
        ("I get a tight throat when I sob.", "throat_swelling"),
        ("I've got shaky hands.", "withdrawal"),
        ("It's red from the ankle to the knee, and hot.", "hot_joint"),
        ("My wife says I'm talking like I'm drunk, and I haven't touched a drop.", "intoxicated_now"),
        ("I haven't touched a drop.", "not_eating"),
        ("A cough with rusty phlegm.", "dirty_wound"),
        ("My heart is going a million miles an hour.", "high_energy"),
        ("The others have slipped my mind.", "fall"),
        ("The whole class has been down with gastro.", "low_mood"),
    ],
)
def test_words_in_another_sense_are_no_finding(text: str, never: str) -> None:
    assert never not in read(text).mentioned


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("My heart is going a million miles an hour.", "palpitations"),
        ("You sewed up my eyebrow ten days back, and I'm to have them out today.", "wound_check"),
        ("Now it's red from the ankle to the knee.", "spreading_redness"),
        ("Where is this?", "confusion"),
        ("The whole class has been down with gastro.", "diarrhoea"),
        ("Who you?", "confusion"),
        ("I shake when I haven't had a drink, and I stopped drinking on Monday.", "withdrawal"),
    ],
)
def test_lay_words_for_a_finding_are_understood(text: str, finding: str) -> None:
    assert finding in read(text).present


def test_a_yes_about_chemotherapy_counts_though_the_answer_names_the_cancer() -> None:
    talk = ("What's wrong?", "I've got a fever.", "Are you on chemo or steroids?", "Yes, breast cancer.")
    assert nurse(*talk, vitals={"temperature": "101.4 °F"}).triage == 2


@pytest.mark.parametrize(
    ("reply", "kind"),
    [("I'm, I'm not sure.", "unsure"), ("I've, I've got a cough.", "told"), ("I do, I do.", "yes"), ("No, no.", "no")],
)
def test_words_said_twice_at_the_start_are_no_answer_of_their_own(reply: str, kind: str) -> None:
    assert exchange_of("Any illnesses?", reply).kind == kind


def test_a_fall_is_asked_about_again_as_something_that_happened() -> None:
    talk = ("What's wrong?", "I fell over.", "When did it happen?", "I don't know when, exactly.")
    for seed in range(20):
        text = nurse(*talk, seed=seed, actions=("utterance",)).utterance or ""
        assert "happen" in text, text


def test_a_wait_that_is_only_told_is_no_anger() -> None:
    assert not told("anger", "I waited a while to see what it would do.")
    assert told("anger", "I've waited hours for this rubbish.")


# -- the record


def test_the_record_holds_no_small_talk() -> None:
    def news(question: str, reply: str) -> dict[str, str | None]:
        return reading(ReadingView(question=question, reply=reply, record={})).record.model_dump()

    assert news("Any medicines?", "Um, insulin lispro. Somebody moved the door.")["medications"] == "Insulin lispro"
    assert news("Which allergies?", "Latex. I think all night about. You not listen!")["allergies"] == "Latex"
    assert news("Pain out of ten?", "Please don't send me away.")["pain"] is None
    taken = news("Which tablets?", "Every day I was, is on, like, apixaban, that's it.")["medications"]
    assert taken is not None
    assert "that's it" not in taken


def test_a_slip_put_right_is_not_recorded() -> None:
    view = ReadingView(question="When did it start?", reply="From, since yesterday.", record={})
    assert reading(view).record.onset_and_course == "Since yesterday"


# -- variety


def test_no_line_is_heard_in_every_third_dialogue() -> None:
    """Save a plain no and the words of the scale, which everybody says."""
    counted: Counter[tuple[str, str]] = Counter()
    for episode in episodes("any"):
        heard = {
            (speaker, smooth(part))
            for speaker in ("nurse", "patient")
            for text in said(episode, speaker)
            for part in tell_apart(text)
        }
        counted.update(heard)
    often = [
        line for line, count in counted.items() if count > 0.3 * len(episodes("any")) and line != ("patient", "no")
    ]
    assert not often
