"""The agenda master's reading of an exchange: what its words conveyed, and what the triage record gains by it."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

from triagesim.artifact import UNKNOWN
from triagesim.backends.agenda.asking import questions_in
from triagesim.backends.agenda.knowledge import Exchange, exchange_of, settle
from triagesim.backends.agenda.reasoning import understood
from triagesim.backends.agenda.understanding import answer, implied, kind_of, lexicon, read, says, tell_apart, told
from triagesim.backends.agenda.wording import join, smooth, start_large
from triagesim.judging import Reading, RecordNews
from triagesim.resources import load_yaml
from triagesim.views import ReadingView

# The field of the record that a topic fills; findings that a question names fill one by their kind.
_FIELD_OF = {
    "complaint": "chief_complaint",
    "onset": "onset_and_course",
    "course": "onset_and_course",
    "pain_score": "pain",
    "location": "pain",
    "quality": "pain",
    "associated": "associated_symptoms",
    "history": "relevant_history",
    "before": "relevant_history",
    "social": "relevant_history",
    "medications": "medications",
    "allergies": "allergies",
}
_CIRCUMSTANCES = frozenset({"onset", "location", "quality", "pain_score", "complaint"})
# The parts of what people with little English say that are beside any answer.
_BESIDE = (
    "minimising", "amplifying", "anxious", "highly_distressed", "impatient", "hostile", "tangents", "expansive",
)  # fmt: skip
_PAIN = re.compile(r"\bpain\b|ache\b|sore throat")
_DENIES = "denies "
_MANNER = frozenset({"mild_pain", "severe_pain", "distress"})


def reading(view: ReadingView) -> Reading:
    """What the words of an exchange conveyed and add to the record; nothing else is looked at."""
    asked = " ".join(questions_in(view.question)) or view.question
    exchange = exchange_of(asked, view.reply)
    news = _Record(view.record).after(exchange)
    record = RecordNews(**{name: news.get(name) for name in RecordNews.model_fields})
    return Reading(conveyed=_conveyed(exchange), record=record)


def _conveyed(exchange: Exchange) -> str:
    """The exchange in one sentence; a yes or no to the problem's circumstances says nothing of the problem itself."""
    question = exchange.question
    if question.strong in _CIRCUMSTANCES:
        question = replace(question, findings=frozenset())
    text = understood(replace(exchange, question=question, reply=_words(exchange.reply) or exchange.reply))
    if exchange.kind in ("yes", "no") and question.findings and "“" in text:
        named = join([says(name) for name in _in_order(question.findings)][:3], "or")
        return f"The patient {'confirms' if exchange.kind == 'yes' else 'denies'} {named}."
    return text


class _Record:
    """The triage record before an exchange, and the fields that this changes."""

    def __init__(self, record: dict[str, str]) -> None:
        self._before = {name: text for name, text in record.items() if text != UNKNOWN}
        self._news: dict[str, str] = {}

    def after(self, exchange: Exchange) -> dict[str, str]:
        """The fields that changed, as they now stand."""
        if exchange.kind == "lost" or not exchange.reply.strip():
            return {}
        fields = _asked_for(exchange)
        present, absent = settle(exchange, frozenset())
        present = {name for name in present if name not in implied(present - {name})}
        if exchange.kind in ("declined", "unsure") and not present | absent and exchange.score is None:
            self._unanswered(exchange, fields)
            return self._news
        for field in fields:
            if len(fields) > 1 and field in _data()["aside"]:
                self._add(field, _of_two(exchange.reply, field))
            else:
                self._answered(exchange, field)
        self._volunteered(exchange, present, absent, set(fields))
        return self._news

    def _unanswered(self, exchange: Exchange, fields: list[str]) -> None:
        """No answer is information too, in every field that is still open; what was guessed at stands before it."""
        sure = [text for text in tell_apart(exchange.reply) if answer(text) == "told" and not _is_aside(text)]
        guess = _words(" ".join(sure), when=True) if exchange.kind == "unsure" else ""
        text = ", ".join(filter(None, [guess, _data()[exchange.kind]]))
        for field in fields or _fields_of(exchange.question.findings):
            if field not in self._before:
                self._news[field] = text

    def _answered(self, exchange: Exchange, field: str) -> None:
        """The answer to a question about the field itself, in the patient's words."""
        if field == "pain":
            self._pain(exchange)
        elif field != "chief_complaint" and _is_no(exchange):
            self._add(field, _data()["none"])
        elif field == "onset_and_course":
            self._add(field, _words(exchange.reply, when=True))
        elif field in _data()["aside"]:
            self._add(field, _listed(exchange.reply, field))
        elif exchange.kind != "declined":
            self._add(field, _words(exchange.reply))

    def _pain(self, exchange: Exchange) -> None:
        if exchange.score is not None:
            self._add("pain", f"{exchange.score:g} of 10" if exchange.score else _data()["none"])
        elif exchange.kind == "no" and exchange.question.strong == "pain_score":
            self._add("pain", _data()["none"])
        elif exchange.kind != "declined":
            self._add("pain", _words(exchange.reply))

    def _volunteered(self, exchange: Exchange, present: set[str], absent: set[str], answered: set[str]) -> None:
        """Findings that no asked-for field has taken up; a complaint told first takes up its own symptoms."""
        for field in ("pain", "associated_symptoms", "relevant_history"):
            # What a medicine is for wasn't said.
            if field in answered or (field == "relevant_history" and answered & {"medications", "allergies"}):
                continue
            denying = ("pain", field) if field == "associated_symptoms" else () if field == "pain" else (field,)
            denied = [says(name) for name in _in_order(absent) if _field_of(name) in denying]
            if field != "associated_symptoms" or "chief_complaint" not in answered:
                for name in _in_order(present):
                    self._add(field, says(name) if _field_of(name) == field else "")
            if denied:
                self._add(field, _DENIES + join(denied, "or"))
        past = "relevant_history" in answered  # a time in it isn't the problem's
        if told("onset", exchange.reply) and not past and "onset_and_course" not in {*answered, *self._before}:
            self._add("onset_and_course", _words(exchange.reply, when=True))

    def _add(self, field: str, text: str) -> None:
        """Put a text beside what the field holds, or in place of what was no answer."""
        held = self._news.get(field, self._before.get(field, ""))
        weak = {_data()[name] for name in ("none", "declined", "unsure")}
        if not text or text.lower() in held.lower() or (held and held not in weak and text in weak):
            return
        if not held or held in weak:
            self._news[field] = text
        elif text.startswith(_DENIES) and (start := held.rfind(_DENIES)) >= 0 and ";" not in held[start:]:
            self._news[field] = f"{held}, {text.removeprefix(_DENIES)}"
        else:
            self._news[field] = f"{held}; {text}"


def _is_no(exchange: Exchange) -> bool:
    """Whether the reply is a plain no."""
    said = " ".join(text for text in tell_apart(exchange.reply) if not _is_aside(text))
    plain = _pattern("nothing").fullmatch(_pattern("fillers").sub("", said).strip()) is not None
    return plain or (exchange.kind == "no" and not exchange.learnt.present - _MANNER)


def _asked_for(exchange: Exchange) -> list[str]:
    """The fields that the question is about."""
    question = exchange.question
    lists = [_FIELD_OF[topic] for topic in question.topics if topic in ("history", "medications", "allergies")]
    if "allergies" in lists and "medications" in lists and not _pattern("takes").search(exchange.asked):
        lists.remove("medications")
    if question.strong in _FIELD_OF and not (question.findings and question.strong in ("history", "medications")):
        return lists if len(lists) > 1 else [_FIELD_OF[question.strong]]
    if question.findings:
        return []
    return list(dict.fromkeys(_FIELD_OF[topic] for topic in question.topics if topic in _FIELD_OF))[:1]


def _fields_of(findings: frozenset[str]) -> list[str]:
    return list(dict.fromkeys(field for name in _in_order(findings) if (field := _field_of(name))))


def _field_of(finding: str) -> str | None:
    """Where a finding belongs; None for places."""
    match kind_of(finding):
        case "history":
            return "relevant_history"
        case "site":
            return None
        case "course":
            return "onset_and_course"
    if finding in _MANNER:
        return None
    return "pain" if _PAIN.search(says(finding)) else "associated_symptoms"


def _in_order(findings: set[str] | frozenset[str]) -> list[str]:
    """Findings in the lexicon's order: that of a set differs from process to process."""
    return sorted(findings, key=_places().__getitem__)


@cache
def _places() -> dict[str, int]:
    return {name: place for place, name in enumerate(lexicon()["findings"])}


def _words(reply: str, *, when: bool = False) -> str:
    """What a reply says, in its own words: its telling sentences, without lead-ins and fillers.

    Args:
        when: whether the sentences that tell a time are wanted, else those that hold a finding.
    """
    sentences = [text for text in tell_apart(reply) if not _is_aside(text)]
    telling = [text for text in sentences if (told("onset", text) if when else _field_of_any(text))]
    return _tidy((telling or sentences[: 1 if when else 2])[: _data()["sentences"]])


def _tidy(sentences: list[str]) -> str:
    """Sentences without lead-ins and fillers, cut where they grow too long."""
    texts = [_pattern("fillers").sub("", _pattern("fillers").sub("", text)) for text in sentences]
    texts = [_slips().sub("", _pattern("tail").sub("", text)) for text in texts]
    texts = [start_large(_pattern("lead_in").sub("", text.strip()).strip(" ,…")) for text in texts]
    words = " ".join(text for text in texts if text).split()
    most = _data()["most_words"]
    return " ".join(words[:most]).rstrip(" .,") + (" …" if len(words) > most else "")


def _apart(reply: str, field: str) -> tuple[list[str], list[str]]:
    """The sentences that answer, and those of them that aren't about the other list."""
    other = re.compile(_data()["aside"][field], re.IGNORECASE)
    said = [text for text in tell_apart(reply) if not _is_aside(text)]
    return said, [text for text in said if not other.search(text)]


def _listed(reply: str, field: str) -> str:
    """The medicines or the allergies that a reply names, in its own words, without what it says of the other list."""
    _, own = _apart(reply, field)
    return _tidy(own[: _data()["sentences"]]) or _words(reply)


def _of_two(reply: str, field: str) -> str:
    """What a reply to a question about medicines and allergies at once says of one of them."""
    said, own = _apart(reply, field)
    own = own or said
    return str(_data()["none"]) if own and _pattern("nothing").match(own[0]) else _tidy(own)


def _field_of_any(text: str) -> bool:
    """Whether a sentence names a finding that belongs into the record."""
    return any(_field_of(name) for name in read(text).mentioned - _MANNER)


def _is_aside(text: str) -> bool:
    """Whether a sentence holds no answer: a question back, a plea, fear or anger alone, small talk."""
    if text.endswith("?") or smooth(text) in _small_talk():
        return True
    moved = told("fear", text) or told("anger", text) or _pattern("plea").search(text.strip()) is not None
    return moved and not read(text).mentioned - _MANNER


@cache
def _slips() -> re.Pattern[str]:
    """A wrong word that was put right at once, up to the right one."""
    table: dict[str, str] = load_yaml("agenda/patient.yaml")["disfluency"]["substituted"]
    pairs = [said.removesuffix(right).strip() for right, said in table.items() if said.endswith(right)]
    after = [rf"\b{re.escape(wrong)} (?={right}\b)" for wrong, right in zip(pairs, table, strict=True)]
    return re.compile("|".join(after), re.IGNORECASE)


@cache
def _small_talk() -> frozenset[str]:
    """What people say beside an answer, whatever was asked."""
    phrases = load_yaml("agenda/patient.yaml")
    beside = [phrases["manner"], phrases["expansive"], phrases["english"]["helpers"]]
    beside += [phrases["simple"][name] for name in _BESIDE]
    return frozenset(smooth(text) for texts in beside for text in _texts(texts))


def _texts(data: Any) -> list[str]:
    """Every text in a branch of a phrase file."""
    if isinstance(data, str):
        return [data]
    parts = data.values() if isinstance(data, dict) else data
    return [text for part in parts for text in _texts(part)]


def _data() -> dict[str, Any]:
    data: dict[str, Any] = load_yaml("agenda/master.yaml")["record"]
    return data


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(_data()[name], re.IGNORECASE)
