"""The typed answers of the dialogue master; what it reasons comes before what it judges."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from triagesim.answers import not_blank
from triagesim.cases import PatientScript
from triagesim.requests import Answer

# What stands for "nothing new" without saying what; "none" and "declined to say" are answers and aren't among them.
_NO_ANSWER = re.compile(
    r"[\W_]*|\W*(?:unknown|null|n/?a|tbd|not (?:yet )?(?:known|stated|mentioned|provided|specified|asked|discussed)"
    r"|no (?:new )?information|nothing new|unchanged|no changes?|(?:the )?same(?: as (?:before|above))?"
    r"|(?:as|see) (?:before|above))\W*",
    re.IGNORECASE,
)


def _null_for_no_answer(value: Any) -> Any:
    return None if isinstance(value, str) and _NO_ANSWER.fullmatch(value) else value


_Said = Annotated[str, Field(min_length=1), AfterValidator(not_blank)]
_News = Annotated[str | None, BeforeValidator(_null_for_no_answer)]


class InSitu(Answer):
    """Whether the patient would have a conversation at the triage desk at all."""

    reasoning: _Said
    conversation: bool


class Script(PatientScript, Answer):
    """The script of a standardised patient, as an answer."""


class Appearance(Answer):
    """What anybody at the desk can see of the patient: observations, no finding and no number."""

    arrival: _Said
    breathing: _Said
    skin: _Said
    behaviour: _Said
    visible_distress: _Said
    visible_injuries: _Said


class LineCheck(Answer):
    """The verdict on a patient's line.

    Attributes:
        critique: what is wrong and what to change, or that nothing is.
        faithful: to the case and the script; for a nurse to what it has learnt.
        informative: it tells or asks something that wasn't told or asked before.
        in_persona, plausible: as this person would say it; as anybody would at a real desk.
        no_names: it names no person, place or firm.
    """

    critique: _Said
    faithful: bool
    informative: bool
    in_persona: bool
    plausible: bool
    no_names: bool

    @property
    def passed(self) -> bool:
        """Whether every judgement is good."""
        return all(value for name, value in self.__dict__.items() if name != "critique")


class NurseLineCheck(LineCheck):
    """The verdict on a nurse's line.

    Attributes:
        one_question: it asks for one thing (a list of related symptoms or an either/or is one), and asks at all
            where a question is due.
    """

    one_question: bool


class RecordNews(Answer):
    """The fields of the triage record (`triagesim.artifact.RECORD_FIELDS`) after an exchange.

    A text is the field as it now stands, with what it held before as far as that still holds; None: nothing new.
    "none" and "declined to say" are information. Words for no answer ("unknown", "n/a") are taken as None.
    """

    chief_complaint: _News
    onset_and_course: _News
    pain: _News
    associated_symptoms: _News
    relevant_history: _News
    medications: _News
    allergies: _News


class Reading(Answer):
    """What an exchange's words conveyed, in one sentence, and what that adds to the triage record."""

    conveyed: _Said
    record: RecordNews


class Edit(Answer):
    """The line that the master writes in a speaker's place."""

    utterance: _Said


class Completion(Answer):
    """Whether an episode achieved what the patient came for, and how well, from 1 (poorly) to 5 (very well)."""

    reason: _Said
    completed: bool
    quality: Literal[1, 2, 3, 4, 5]
