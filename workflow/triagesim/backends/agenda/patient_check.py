"""The agenda master's check of a patient's line, by rules: against the case, the script and the persona."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from triagesim.backends.agenda.checks import (
    MANNER,
    NO_ANSWER,
    REPEATABLE,
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
    verdict,
)
from triagesim.backends.agenda.knowledge import Exchange, exchange_of
from triagesim.backends.agenda.story import story_of
from triagesim.backends.agenda.understanding import ask, implied, kind_of, read, sensitive
from triagesim.backends.agenda.wording import join, smooth
from triagesim.judging import LineCheck
from triagesim.views import CaseFacts, Facts, PatientLineView, Spoken

# Findings that go with a patient's state.
_STATES = frozenset({"confusion", "drowsy", "alcohol", "heavy_alcohol", "intoxicated_now", "drugs", "speech_trouble"})
# How far a told pain score may lie from the felt one, below and above.
_SCORES = {"minimising": (4, 0), "faithful": (1, 1), "amplifying": (0, 4)}
_LISTS = {"medications": "medications", "allergies": "allergies", "history": "medical_history"}


@dataclass(frozen=True, slots=True)
class _Known:
    """What a patient has to tell.

    Attributes:
        affirmed: findings that the complaint (in whatever words) or the script holds.
        scripted: those that the script holds for sure.
        denied: findings that it denies.
        words: all of it as text.
    """

    affirmed: frozenset[str]
    scripted: frozenset[str]
    denied: frozenset[str]
    words: str


def check_patient(view: PatientLineView) -> LineCheck:
    """The verdict on a patient's line."""
    return verdict(LineCheck, list(_of_patient(view)))


def _of_patient(view: PatientLineView) -> Iterator[Problem]:
    text = view.draft.strip()
    question = _last_asked(view.dialogue)
    earlier = [line.text for line in view.dialogue if line.speaker == "patient"]
    yield from of_anybody(text, "patient", earlier, [line.text for line in view.dialogue if line.speaker == "nurse"])
    if not WORD.search(text):
        return
    known = _known(view.facts.model_dump_json())
    if not smooth(text).strip():
        yield problem("informative", "no_content")
    yield from names(text, known.words)
    exchange = exchange_of(question, text)
    yield from _unfaithful(view, exchange, known)
    yield from diagnosed(text, known.words, "guessed", view.facts.diagnoses)
    yield from _out_of_persona(view, exchange, known)


def _unfaithful(view: PatientLineView, exchange: Exchange, known: _Known) -> Iterator[Problem]:
    """What a patient can't know, or what the script says otherwise."""
    if number := measured_number(exchange.reply, known.words):
        yield problem("faithful", "number", x=number)
    yield from _off_score(view, exchange)
    yield from _not_how_bad(view, exchange)
    script = view.facts.script
    if script is None:
        return
    clear = script.cognitive_state == "alert" and script.intoxication == "none"
    free = MANNER if clear else MANNER | _STATES
    yield from _unsupported(exchange, known, free)
    asked = exchange.question.findings
    if asked and not exchange.question.strong:
        withholds = asked & sensitive() and view.persona.get("disclosure", "open") != "open"
        if exchange.kind == "no" and asked <= known.scripted - free and not withholds:
            yield problem("faithful", "denies", x=named(sorted(asked)))
    yield from _wrong_list(view, exchange)


def _unsupported(exchange: Exchange, known: _Known, free: frozenset[str]) -> Iterator[Problem]:
    """A finding that is affirmed, by words or by a bare yes, and that the script denies or doesn't hold."""
    told = {name for name in exchange.learnt.present - known.affirmed - free if kind_of(name) not in ("site", "course")}
    if exchange.question.strong in _LISTS:
        told = {name for name in told if kind_of(name) == "history" or name in exchange.question.findings}
    asked = exchange.question.findings
    bare = exchange.kind == "yes" and not exchange.question.strong and not exchange.learnt.present
    if bare and not asked & (known.affirmed | free):
        told |= asked
    if contradicted := sorted(told & known.denied):
        yield problem("faithful", "contradicts", x=named(contradicted))
    elif told:
        yield problem("faithful", "unsupported", x=named(sorted(told)))


def _wrong_list(view: PatientLineView, exchange: Exchange) -> Iterator[Problem]:
    """None told where the script has some, or some where it has none: medicines, allergies, illnesses."""
    topic = exchange.question.strong or ""
    script = view.facts.script
    if script is None or topic not in _LISTS or exchange.question.findings:
        return
    items: tuple[str, ...] = getattr(script, _LISTS[topic])
    plain = [item for item in items if not read(item).mentioned & sensitive()]
    words = set(WORD.findall(exchange.reply.lower()))
    named = any(words & {word for word in WORD.findall(item.lower()) if len(word) > 3} for item in items)
    forgets = view.persona.get("recall_reliability") == "unreliable"
    if exchange.kind == "no" and plain and not named and not forgets and len(words) < 3 * REPEATABLE:
        yield problem("faithful", "denies", x=join(plain[:2]))
    if topic == "allergies" and not items and pattern("allergic").search(exchange.reply.lower()):
        yield problem("faithful", "has_none", x="allergies")


def _off_score(view: PatientLineView, exchange: Exchange) -> Iterator[Problem]:
    """A pain score far from the felt one, on the wrong side of it for this persona."""
    try:
        felt = float(view.facts.pain or "")
    except ValueError:
        return
    given = exchange.question.strong == "pain_score" and exchange.kind not in NO_ANSWER
    if exchange.score is None or not given or not 0 <= felt <= 10:
        return
    below, above = _SCORES[view.persona.get("symptom_reporting", "faithful")]
    if not felt - below <= exchange.score <= felt + above:
        yield problem("faithful", "score", x=f"{felt:g} out of 10")


def _not_how_bad(view: PatientLineView, exchange: Exchange) -> Iterator[Problem]:
    """Something else where it was asked how bad the pain is, of somebody who is clear in the mind."""
    script = view.facts.script
    clear = script is not None and script.cognitive_state == "alert" and script.intoxication == "none"
    asked = exchange.question.strong == "pain_score" and exchange.kind == "told" and exchange.score is None
    if clear and asked and not pattern("how_bad").search(exchange.reply.lower()):
        yield problem("informative", "not_how_bad")


def _out_of_persona(view: PatientLineView, exchange: Exchange, known: _Known) -> Iterator[Problem]:
    """Traits of the persona that one line can contradict."""
    text, trait = exchange.reply, view.persona.get
    lower = text.lower()
    scripted = known.words.lower()
    yield from _wrong_length(view, exchange)
    yield from _wrong_flow(view, text)
    checks = [
        ("symptom_reporting", "minimising", "strong", "too_strong"),
        ("symptom_reporting", "amplifying", "weak", "too_weak"),
        ("health_literacy", "limited", "medical", "too_medical"),
        ("distress", "calm", "upset", "too_upset"),
        ("demeanour", "cooperative", "rude", "rude"),
    ]
    for name, level, words, critique in checks:
        match = pattern(words).search(lower) if trait(name) == level else None
        if match and match[0] not in scripted:
            yield problem("in_persona", critique, x=match[0])
    matter = exchange.question.findings & sensitive()
    if not matter:
        return
    before = any(ask(line.text).findings & matter for line in view.dialogue[:-1] if line.speaker == "nurse")
    if trait("disclosure") == "guarded" and not before and exchange.learnt.present & matter:
        yield problem("in_persona", "too_open", x=named(sorted(matter)))
    if trait("disclosure") == "open" and pattern("deflects").search(lower):
        yield problem("in_persona", "too_closed")


def _wrong_length(view: PatientLineView, exchange: Exchange) -> Iterator[Problem]:
    trait, limits = view.persona.get, data()["words"]
    words = len(exchange.reply.split())
    for level in (trait("verbosity", ""), trait("english_proficiency", "")):
        if words > limits.get(level, words):
            yield problem("in_persona", "too_long_for", x="short of words" if level == "terse" else "no great talker")
            return
    script = view.facts.script
    short = story_of(_as_patient(view.facts)).short_of_words or (script and script.cognitive_state != "alert")
    short = short or trait("english_proficiency") == "limited" or exchange.kind in ("declined", "lost")
    opens = exchange.question.strong == "complaint"
    if trait("verbosity") == "expansive" and opens and not short and words < data()["least_expansive"]:
        yield problem("in_persona", "too_short_for")


def _wrong_flow(view: PatientLineView, text: str) -> Iterator[Problem]:
    """Too many or too few fillers, too much grammar."""
    trait, limits = view.persona.get, data()
    fillers = len(pattern("fillers").findall(text.lower()))
    level = trait("disfluency", "")
    if fillers > limits["most_fillers"].get(level, fillers):
        yield problem("in_persona", "fillers")
    if level == "high" and not fillers and len(text.split()) >= limits["smooth_from"]:
        yield problem("in_persona", "too_smooth")
    if trait("english_proficiency") == "limited":
        longest = max((len(part.split()) for part in re.split(r"[.!?,;…]+", text)), default=0)
        if longest > limits["longest_piece"]:
            yield problem("in_persona", "too_fluent")


@lru_cache(maxsize=1024)
def _known(facts: str) -> _Known:
    """What the case of a view lets a patient say."""
    view = CaseFacts.model_validate_json(facts)
    pieces = story_of(_as_patient(view)).pieces("complaint")
    complaint = [text for piece in pieces for text in piece.wordings or (piece.text,)]
    texts: list[str] = []
    negatives: tuple[str, ...] = ()
    if (script := view.script) is not None:
        texts = [text for name, value in script if name != "pertinent_negatives" for text in _texts(value)]
        listed = (*script.associated_symptoms, *script.medical_history)
        texts += [f"{frame} {text}" for text in listed for frame in ("I have", "I've got")]
        negatives = script.pertinent_negatives
    affirmed = frozenset[str]().union(*(_named_in(text) for text in [*complaint, *texts]))
    scripted = frozenset[str]().union(*(read(text).present for text in texts))
    denied = frozenset(name for text in negatives for name in read(text.split(",")[0]).mentioned)
    words = " ".join([*complaint, *texts, *negatives, view.chief_complaint or "", *view.medications])
    return _Known(affirmed | implied(affirmed), scripted, denied - affirmed, words)


def _named_in(text: str) -> frozenset[str]:
    """What a text affirms, or names without denying it."""
    reading = read(text)
    return reading.present | (reading.mentioned - reading.absent)


def _as_patient(facts: Facts) -> Facts:
    """The fields of a case that the patient may know."""
    return Facts(**{name: getattr(facts, name) for name in Facts.model_fields})


def _texts(value: Any) -> Iterable[str]:
    return (value,) if isinstance(value, str) else value


def _last_asked(dialogue: tuple[Spoken, ...]) -> str:
    return dialogue[-1].text if dialogue and dialogue[-1].speaker == "nurse" else ""
