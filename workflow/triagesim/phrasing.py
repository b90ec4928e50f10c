"""What the words of a line show: the form of a question, fillers, repairs, backchannels, feelings and answers to them.

The word lists are `resources/language.yaml`. Everything is told from the words alone, so all of it counts signs: a
question's form isn't its intent, and an unmarked self-correction ("I took, take it") is missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal

from triagesim.resources import load_yaml

Form = Literal["open", "closed"]

_TOKEN = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_SENTENCE = re.compile(r"[^.!?…]+[.!?…]*")
_BROKEN = re.compile(r"(?<![\w-])[a-z][a-z']{0,11}[-–—]+(?=[\s,.!?]|$)(?P<after>\s+\w+)?")
# A negation so many words before a feeling denies it.
_NEAR = 3


def tokens(text: str) -> list[str]:
    """The words of a text in lower case, without marks; `don't` and `well-kept` are one each."""
    return _TOKEN.findall(plain(text))


def plain(text: str) -> str:
    """The text in lower case with straight apostrophes."""
    return text.lower().replace("’", "'")


def question_forms(text: str) -> list[Form]:
    """The form of each question in a line, in order; a line without one gives none.

    Open invites a story (what, how, why, "tell me about …"); closed wants a yes or no, a choice or one fact (as open-
    and closed-ended questions in RIAS: Roter and Larson 2002).
    """
    forms = (_form(sentence) for sentence in _SENTENCE.findall(plain(text)))
    return [form for form in forms if form]


def fillers(text: str) -> int:
    """Filled pauses ("um"), and words that say nothing ("you know") between commas."""
    # ER is a place.
    text = plain(re.sub(r"\bER\b", "", text))
    return len(_phrases("filler", "pause").findall(text)) + len(_inserted().findall(text))


def repetitions(text: str) -> int:
    """Small words, one or two, said twice in a row ("my, my side", "it is, it is")."""
    return len(_repeated().findall(plain(text)))


def repairs(text: str) -> int:
    """Words broken off ("tel- telling"), and words that are taken back ("no, wait")."""
    text = plain(text)
    held = set(_data()["suspended"])
    broken = [match for match in _BROKEN.finditer(text) if (match["after"] or "").strip() not in held]
    return len(broken) + len(_phrases("correction").findall(text))


def fluent(text: str) -> str:
    """The text in lower case without what `fillers`, `repetitions` and `repairs` count, so that phrases are whole."""
    text = _BROKEN.sub(lambda match: match["after"] or "", plain(text))
    text = _inserted().sub("", _phrases("filler", "pause").sub("", text))
    return _repeated().sub(r"\1", re.sub(r"(?:\s*,)+", ",", " ".join(text.split())))


def only_listens(text: str) -> bool:
    """Whether a text shows only that somebody listens ("Okay, thanks.")."""
    return bool(tokens(text)) and not tokens(_phrases("backchannel").sub(" ", plain(text)))


def begins_listening(text: str) -> bool:
    """Whether a line's first sentence shows only that somebody listens ("Right. Does it hurt?")."""
    sentences = _SENTENCE.findall(text)
    return bool(sentences) and "?" not in sentences[0] and only_listens(sentences[0])


def shows_feeling(text: str) -> bool:
    """Whether a patient's words hold a sign of fear, upset or despair that isn't negated."""
    text = fluent(text)
    denied = _phrases("negation")
    for match in _phrases("cue").finditer(text):
        before = re.split(r"[,.!?;]", text[: match.start()])[-1].replace("n't", " n't").split()
        if not denied.search(" ".join(before[-_NEAR:])):
            return True
    return False


def answers_feeling(text: str) -> bool:
    """Whether a nurse's words take up a feeling."""
    return _phrases("answer_to_feeling").search(plain(text)) is not None


def asks_back(text: str) -> bool:
    """Whether a patient asks for the question again."""
    return _phrases("clarification").search(fluent(text)) is not None


def articles(text: str) -> int:
    """How many articles a text has."""
    known = set(_data()["article"])
    return sum(token in known for token in tokens(text))


def mattr(words: list[str], window: int = 50) -> float | None:
    """Moving-average type-token ratio, 0 … 1: the mean share of different words over all windows of `window` words.

    Unlike the plain ratio it doesn't fall with length (Covington and McFall 2010, Journal of Quantitative Linguistics
    17:94-100). None for a text of fewer words.
    """
    if len(words) < window:
        return None
    counts: dict[str, int] = {}
    total = 0
    for place, word in enumerate(words):
        counts[word] = counts.get(word, 0) + 1
        if place >= window:
            gone = words[place - window]
            counts[gone] -= 1
            if not counts[gone]:
                del counts[gone]
        if place >= window - 1:
            total += len(counts)
    return total / (window * (len(words) - window + 1))


def _form(sentence: str) -> Form | None:
    """The form of one sentence in lower case."""
    text = _LEADING.sub("", sentence)
    while (shorter := _lead_in().sub("", text)) != text:
        text = shorter
    asked = "?" in text
    text = re.sub(rf"^{_data()['question']['request']}", "", text)
    if _phrases("question", "command").match(text):
        return "closed"
    invited = _phrases("question", "invite").match(text)
    said = text.strip(" ?!.,…")
    if not (asked or invited) or not said or _phrases("question", "tag").fullmatch(said):
        return None
    if _phrases("question", "single_fact").search(text):
        return "closed"
    if invited:
        nearest = tokens(text[invited.end() :])[:1]
        return "closed" if nearest and nearest[0] in _data()["question"]["closed"] else "open"
    return next((form for token in tokens(text) if (form := _question_words().get(token))), "closed")


_LEADING = re.compile(r"^[\s,;:–—-]+")


@cache
def _question_words() -> dict[str, Form]:
    lists = _data()["question"]
    return {**dict.fromkeys(lists["closed"], "closed"), **dict.fromkeys(lists["open"], "open")}


@cache
def _lead_in() -> re.Pattern[str]:
    return re.compile(rf"^(?:{_either(_data()['question']['lead_in'])})(?![\w'])[\s,;:–—-]*")


@cache
def _inserted() -> re.Pattern[str]:
    return re.compile(rf"(?:^|[,.!?;–—-]\s*)(?:{_either(_data()['filler']['inserted'])})(?=\s*(?:[,.!?;]|$))")


@cache
def _repeated() -> re.Pattern[str]:
    small = f"(?:{_either(_data()['repeated'])})"
    return re.compile(rf"(?<![\w'])({small}(?: {small})?)(?:,|\.\.\.|\s?[…–—-])?\s+\1(?![\w'])")


@cache
def _phrases(*path: str) -> re.Pattern[str]:
    """The phrases at a place of the word lists as one pattern."""
    value: Any = _data()
    for key in path:
        value = value[key]
    # "n't" stands in a word.
    return re.compile(rf"(?<![\w'])(?:{_either(value)})(?![\w'])")


def _either(phrases: Iterable[str]) -> str:
    """One pattern of many, the longest first."""
    return "|".join(sorted(phrases, key=len, reverse=True))


def _data() -> dict[str, Any]:
    """The word lists; read-only."""
    data: dict[str, Any] = load_yaml("language.yaml")
    return data
