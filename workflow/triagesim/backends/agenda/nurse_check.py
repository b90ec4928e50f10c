"""The agenda master's check of a nurse's line, by rules: against what it has learnt, its role and its persona."""

from __future__ import annotations

import re
from collections.abc import Iterator

from triagesim.backends.agenda.asking import kinds_joined, questions_in
from triagesim.backends.agenda.checks import (
    MANNER,
    NO_ANSWER,
    WORD,
    Problem,
    data,
    diagnosed,
    measured_number,
    named,
    names,
    of_anybody,
    pattern,
    problem,
    short,
    verdict,
)
from triagesim.backends.agenda.knowledge import exchanges_of, settle
from triagesim.backends.agenda.understanding import ask, implied, kind_of, read, says, tell_apart
from triagesim.judging import NurseLineCheck
from triagesim.views import NurseLineView

# Topics that one answer settles.
_SETTLED_ONCE = frozenset({"onset", "location", "medications", "allergies", "history"})


def check_nurse(view: NurseLineView) -> NurseLineCheck:
    """The verdict on a nurse's line."""
    return verdict(NurseLineCheck, list(_of_nurse(view)))


def _of_nurse(view: NurseLineView) -> Iterator[Problem]:
    text = view.draft.strip()
    earlier = [line.text for line in view.dialogue if line.speaker == "nurse"]
    replies = [line.text for line in view.dialogue if line.speaker == "patient"]
    yield from of_anybody(text, "nurse", earlier, replies)
    if not WORD.search(text):
        if view.action == "utterance":
            yield problem("one_question", "no_question")
        return
    heard = " ".join(replies)
    yield from names(text, heard)
    yield from _not_learnt(view, heard)
    yield from _too_many(view)
    yield from _asked_before(view)
    yield from _out_of_role(view)


def _not_learnt(view: NurseLineView, heard: str) -> Iterator[Problem]:
    """What the nurse says as a fact and can't know."""
    text = view.draft.lower()
    measured = " ".join(value for value in view.vitals.values() if value)
    if number := measured_number(text, f"{measured} {heard}"):
        yield problem("faithful", "not_measured", x=number)
    asked = questions_in(view.draft)
    stated = [part for part in tell_apart(view.draft) if not any(question in part for question in asked)]
    told = _told(view)
    claimed = {name for part in stated for name in read(part).present if kind_of(name) not in ("site", "course")}
    claimed -= told | implied(told) | MANNER
    if claimed and not pattern("supposed").search(" ".join(stated).lower()):
        yield problem("faithful", "not_told", x=named(sorted(claimed)))
    yield from diagnosed(" ".join(stated), heard, "not_claimed")
    other = data()["addresses"].get(view.facts.gender or "")
    wrong = re.search(other, text) if other else None
    if wrong:
        yield problem("faithful", "address", x=wrong[0])
    arrival = (view.facts.arrival_transport or "").lower()
    ways = data()["came_by"]
    for name, words in ways.items():
        if name not in arrival and any(way in arrival for way in ways) and re.search(words, text):
            yield problem("faithful", "arrival", x=name)


def _told(view: NurseLineView) -> set[str]:
    """The findings that the patient has affirmed or spoken of, and those that their names hold."""
    told: set[str] = set()
    denied: set[str] = set()
    for exchange in exchanges_of(view.dialogue):
        present, absent = settle(exchange, frozenset())
        told |= present | (exchange.learnt.mentioned - absent)
        denied |= absent
    told |= {name for finding in told for name in read(says(finding)).mentioned - denied}
    return told


def _too_many(view: NurseLineView) -> Iterator[Problem]:
    """More than one question, or none where one is due."""
    asked = questions_in(view.draft)
    if view.action == "utterance" and not asked:
        yield problem("one_question", "no_question")
    if len(asked) > 1:
        yield problem("one_question", "questions", n=str(len(asked)), x=short(asked[0]))
    joined = next(filter(None, map(kinds_joined, asked)), None)
    if joined:
        yield problem("one_question", "kinds", x=joined.capitalize())


def _asked_before(view: NurseLineView) -> Iterator[Problem]:
    """A question that was answered already."""
    question = ask(view.draft)
    if view.action != "utterance" or view.persona.get("workload") == "overloaded":
        return
    unmeasured = [data()["inferred"][name] for name, value in view.vitals.items() if value is None]
    inferred = frozenset(name for names in unmeasured for name in names)
    for exchange in exchanges_of(view.dialogue):
        if exchange.kind in NO_ANSWER:
            continue
        same_topic = question.strong in _SETTLED_ONCE and question.strong == exchange.question.strong
        same_topic = same_topic and question.findings <= exchange.question.findings
        findings = question.findings - inferred if question.strong is None and not question.topics else frozenset()
        settled = exchange.learnt.mentioned | exchange.question.findings
        if same_topic or (findings and findings <= settled and exchange.question.findings & findings):
            yield problem("informative", "asked_before", x=short(exchange.asked))
            return


def _out_of_role(view: NurseLineView) -> Iterator[Problem]:
    """Traits of the nurse that one line can contradict."""
    text, trait = view.draft.lower(), view.persona.get
    limit = data()["words"].get(trait("workload", ""))
    if limit and len(text.split()) > limit:
        yield problem("in_persona", "too_long_for", x="pressed for time")
    checks = [
        ("emotional_responsiveness", ("task_focused",), "feelings", "feeling"),
        ("emotional_responsiveness", ("acknowledging", "empathic"), "harsh", "cold"),
        ("self_report_credence", ("accepting",), "doubts", "doubting"),
    ]
    for name, levels, words, critique in checks:
        match = pattern(words).search(text) if trait(name) in levels else None
        if match:
            yield problem("in_persona", critique, x=match[0].strip())
