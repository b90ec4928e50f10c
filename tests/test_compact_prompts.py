"""The prompts of very small models: what they propose is what somebody would say, in every case."""

from __future__ import annotations

from typing import Any

import pytest

from actors import PLAIN_NURSE, PLAIN_PATIENT, SCRIPT
from triagesim.prompts import render
from triagesim.views import Facts, NurseView, PatientView, Spoken


def shown_to_nurse(**changes: Any) -> str:
    view = NurseView(
        algorithm="esi",
        facts=Facts(gender="female", age_group="adult"),
        persona=PLAIN_NURSE,
        dialogue=(Spoken(speaker="nurse", text="What brings you in?"), Spoken(speaker="patient", text="My belly.")),
        **{
            "vitals": {},
            "red_flags": (),
            "record": None,
            "actions": ("utterance", "check_vital"),
            "vitals_open": ("heartrate", "sbp"),
            "heard_reply": True,
            "questions_asked": 1,
            "questions_left": 5,
            "infer": None,
            **changes,
        },
    )
    return render(view, "compact")[-1]["content"]


def shown_to_patient(**script: str) -> str:
    facts = Facts(chief_complaint="Sting", pain="2", script=SCRIPT.model_copy(update=script))
    view = PatientView(facts=facts, persona=PLAIN_PATIENT, dialogue=(Spoken(speaker="nurse", text="What is wrong?"),))
    return "\n".join(message["content"] for message in render(view, "compact"))


@pytest.mark.parametrize("vital", ["temperature", "heartrate", "resprate", "o2sat", "sbp"])
def test_each_vital_sign_is_announced_in_words_of_its_own(vital: str) -> None:
    said = {one: shown_to_nurse(vitals_open=(one,)) for one in ("temperature", "heartrate", "resprate", "o2sat", "sbp")}
    assert f"Take: {vital}. Say: " in said[vital]
    assert len(set(said.values())) == len(said)


def test_nobody_is_told_to_take_a_seat_whatever_the_level() -> None:
    closing = shown_to_nurse(questions_left=0, vitals_open=())
    assert "Thank you" in closing
    assert "seat" not in closing


@pytest.mark.parametrize(
    ("severity", "said"),
    [
        ("a 6 out of 10", "It's a 6 out of 10."),
        ("it doesn't hurt, 0 out of 10", "It doesn't hurt, 0 out of 10."),
        ("none, 0 out of 10", "None, 0 out of 10."),
        ("I can't put a number on it", "I can't put a number on it."),
    ],
)
def test_how_bad_it_is_is_said_as_a_sentence(severity: str, said: str) -> None:
    assert said in shown_to_patient(severity=severity)
    assert "It's it" not in shown_to_patient(severity=severity)


def test_a_story_told_between_breaths_is_not_cut_at_a_gasp() -> None:
    text = shown_to_patient(story="Wasp... got me on the neck. Can't... swallow right.")
    assert "swallow right." in text
    assert "Can't." not in text
