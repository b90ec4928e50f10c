"""What the agenda nurse has learnt: everything that it heard and measured, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from triagesim.backends.agenda.triage import Facts, Rule, Verdict, decide, rule
from triagesim.backends.agenda.understanding import (
    Question,
    Reading,
    answer,
    ask,
    implied,
    kind_of,
    lexicon,
    pain_score,
    read,
    told,
)
from triagesim.cases import celsius
from triagesim.resources import load_yaml
from triagesim.views import NurseView, Spoken

# Topics whose answers say nothing about the finding that the question names ("when did the chest pain start?").
_ABOUT_THE_PROBLEM = frozenset({"complaint", "pain_score", "onset", "location", "quality"})
# Topics whose answers tell what is true of the person, not what is wrong today.
_ABOUT_THE_PERSON = frozenset({"history", "medications", "allergies"})
# So many answers of "I don't know" leave too much open to send somebody to wait.
_TOO_UNSURE = 3
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question with its reply, as the nurse understands them."""

    asked: str
    question: Question
    reply: str
    kind: str
    learnt: Reading
    score: float | None


@dataclass(frozen=True, slots=True)
class Beliefs:
    """What the nurse knows.

    Attributes:
        evidence: the reply that affirmed a finding, by finding.
        absent: findings that the patient denied.
        unclear: findings asked about whose answer was no answer (declined, or not understood).
        presentation: the entry of `nurse.yaml` that the problem is taken for.
    """

    exchanges: tuple[Exchange, ...]
    evidence: dict[str, str]
    absent: frozenset[str]
    unclear: frozenset[str]
    asked: frozenset[str]
    asked_topics: frozenset[str]
    pain: float | None
    facts: Facts
    verdict: Verdict
    presentation: dict[str, Any]


def believe(view: NurseView) -> Beliefs:
    """Read the whole dialogue and the vital signs of a view."""
    exchanges = tuple(exchanges_of(view.dialogue))
    evidence: dict[str, str] = {}
    absent: set[str] = set()
    unclear: set[str] = set()
    pain = None
    for exchange in exchanges:
        present, denied = settle(exchange, frozenset(evidence))
        present |= implied(present)
        for finding in sorted(present):  # the order of a set differs from process to process
            evidence.setdefault(finding, exchange.reply)
        absent = (absent | denied) - evidence.keys()
        if exchange.kind in ("declined", "lost", "unsure"):
            unclear |= exchange.question.findings
        pain = exchange.score if exchange.score is not None else pain
    facts = Facts(frozenset(evidence) | _seen(view), _numbers(view, pain))
    unclear -= evidence.keys() | absent
    unsure = sum(exchange.kind == "unsure" for exchange in exchanges)
    presentation = _presentation(exchanges, facts)
    complained = [exchange for number, exchange in enumerate(exchanges) if _is_of_complaint(number, exchange)]
    kept_back = bool(complained) and all(exchange.kind in ("declined", "lost") for exchange in complained)
    problem = "general" if kept_back else presentation["id"]
    return Beliefs(
        exchanges=exchanges,
        evidence=evidence,
        absent=frozenset(absent),
        unclear=frozenset(unclear),
        asked=frozenset(finding for exchange in exchanges for finding in exchange.question.findings),
        asked_topics=frozenset(topic for exchange in exchanges for topic in exchange.question.topics),
        pain=pain,
        facts=facts,
        verdict=_verdict(view, facts, problem, unclear & _dangers(presentation), unsure),
        presentation=presentation,
    )


def exchange_of(asked: str, reply: str) -> Exchange:
    """A question and its reply as the nurse understands them."""
    question = ask(asked)
    score = pain_score(reply, asked="pain_score" in question.topics)
    kind = answer(reply)
    if kind == "unsure" and (score is not None or ("onset" in question.topics and told("onset", reply))):
        kind = "told"
    return Exchange(asked, question, reply, kind, read(reply), score)


def exchanges_of(dialogue: Iterable[Spoken]) -> list[Exchange]:
    """Every reply of a dialogue with the nurse's line before it."""
    found = []
    asked = ""
    for line in dialogue:
        if line.speaker == "nurse":
            asked = line.text
        else:
            found.append(exchange_of(asked, line.text))
    return found


def settle(exchange: Exchange, known: frozenset[str]) -> tuple[set[str], set[str]]:
    """The findings that an exchange affirms and denies: what was said, and what a bare yes or no was about."""
    topics = set(exchange.question.topics)
    present, absent = set(exchange.learnt.present), set(exchange.learnt.absent)
    if topics & _ABOUT_THE_PERSON:
        present = {name for name in present if kind_of(name) == "history" or name in exchange.question.findings}
        absent &= exchange.question.findings
    elif "social" in topics or exchange.question.findings & _of_kind("history"):
        present = {name for name in present if kind_of(name) != "course"}
    if exchange.question.strong == "onset" and told("long_ago", exchange.reply):
        present.add("long_standing")
    if exchange.question.strong not in _ABOUT_THE_PROBLEM:
        open_ones = exchange.question.findings - known - present
        if exchange.kind == "no" or (exchange.kind == "told" and told("well", exchange.reply)):
            absent |= open_ones
        elif exchange.kind == "yes" and not present & exchange.question.findings:
            present |= open_ones - absent
    return present, absent - present


def _verdict(view: NurseView, facts: Facts, problem: str, unclear: set[str], unsure: int) -> Verdict:
    """The scale's level, held at 3 at most while the problem isn't understood or a danger can't be ruled out."""
    verdict = decide(view.algorithm, facts)
    if verdict.level <= 3:
        return verdict
    if problem == "general":
        return verdict._replace(level=3, reason="the problem isn't clear yet")
    if unclear or unsure >= _TOO_UNSURE:
        return verdict._replace(level=3, reason=f"{verdict.reason}; a danger could not be ruled out")
    return verdict


def _dangers(presentation: dict[str, Any]) -> set[str]:
    """What the presentation's first questions would find out."""
    items = load_yaml("agenda/nurse.yaml")["items"]
    return {finding for name in presentation["ask"] for finding in items[name].get("asks", ())}


def _presentation(exchanges: tuple[Exchange, ...], facts: Facts) -> dict[str, Any]:
    """What the problem is: by what the patient came with, else by whatever else is known."""
    told_first: set[str] = set()
    for number, exchange in enumerate(exchanges):
        if _is_of_complaint(number, exchange):
            told_first |= exchange.learnt.present
    for known in (Facts(frozenset(told_first)), Facts(facts.present)):
        found = next(entry for entry in presentations() if entry["rule"].holds(known))
        if found["id"] != "general":
            break
    return found


def _is_of_complaint(number: int, exchange: Exchange) -> bool:
    """Whether an exchange, `number` in the dialogue, is about what the patient came with."""
    return number == 0 or exchange.question.strong == "complaint"


@cache
def presentations() -> tuple[dict[str, Any], ...]:
    """The presentations of `nurse.yaml`, each with its conditions compiled as `rule`."""
    entries = load_yaml("agenda/nurse.yaml")["presentations"]
    return tuple({**entry, "rule": rule({**entry, "says": entry["id"]})} for entry in entries)


@cache
def checks() -> tuple[tuple[Rule, str], ...]:
    """What else to ask (an item) when a rule holds."""
    entries = load_yaml("agenda/nurse.yaml")["checks"]
    return tuple((rule({**entry, "says": entry["ask"]}), entry["ask"]) for entry in entries)


@cache
def _of_kind(kind: str) -> frozenset[str]:
    return frozenset(name for name in lexicon()["findings"] if kind_of(name) == kind)


def _seen(view: NurseView) -> frozenset[str]:
    arrival = (view.facts.arrival_transport or "").lower()
    seen = {
        "older": view.facts.age_group == "older",
        "female": view.facts.gender == "female",
        "ambulance": "ambulance" in arrival or "helicopter" in arrival,
    }
    return frozenset(name for name, true in seen.items() if true)


def _numbers(view: NurseView, pain: float | None) -> dict[str, float]:
    numbers: dict[str, float] = {} if pain is None else {"pain": pain}
    for name, text in view.vitals.items():
        if text is not None and _NUMBER.search(text):
            number = _number(text)
            numbers[name] = celsius(number) if name == "temperature" else number
    return numbers


def _number(text: str) -> float:
    match = _NUMBER.search(text)
    assert match, text
    return float(match[0])
