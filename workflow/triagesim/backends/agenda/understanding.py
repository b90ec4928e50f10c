"""What words mean to the agenda backend: findings, questions and answers, by the lexicon in `resources/agenda`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

from triagesim.resources import load_yaml

#: What kind of answer a reply is: `lost` when the question wasn't understood, `told` when it is none of the others.
Answered = Literal["yes", "no", "unsure", "declined", "lost", "told"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text says of the person who speaks.

    Attributes:
        present, absent: findings that are said to be there, or said not to be.
        mentioned: every finding that is named, in whatever way; what a question asks about.
    """

    present: frozenset[str]
    absent: frozenset[str]
    mentioned: frozenset[str]


@dataclass(frozen=True, slots=True)
class Question:
    """What a question is about: topics in the lexicon's order, and the findings that it names."""

    topics: tuple[str, ...]
    findings: frozenset[str]

    @property
    def strong(self) -> str | None:
        """The topic that decides what is answered, if one does."""
        topics = lexicon()["topics"]
        return next((topic for topic in self.topics if topics[topic].get("strong")), None)


def lexicon() -> dict[str, Any]:
    """The lexicon as data; read-only."""
    data: dict[str, Any] = load_yaml("agenda/lexicon.yaml")
    return data


def says(finding: str) -> str:
    """How a nurse names a finding."""
    text: str = lexicon()["findings"][finding]["says"]
    return text


def kind_of(finding: str) -> str:
    """`symptom`, `history`, `course` or `site`."""
    kind: str = lexicon()["findings"][finding].get("kind", "symptom")
    return kind


def implied(findings: Iterable[str]) -> frozenset[str]:
    """The findings that are given with others (`cannot_breathe` gives `breathless`)."""
    entries = lexicon()["findings"]
    return frozenset(other for name in findings for other in entries[name].get("implies", ()))


def told(what: str, text: str) -> bool:
    """Whether a text tells `what` (an entry of the lexicon's `told`) without being asked."""
    return _told(what).search(" ".join(_clauses(text))) is not None


@cache
def sensitive() -> frozenset[str]:
    """The findings that people may hesitate to tell."""
    return frozenset(name for name, entry in lexicon()["findings"].items() if entry.get("sensitive"))


@lru_cache(maxsize=16384)
def read(text: str) -> Reading:
    """Which findings a text affirms, denies and names.

    A symptom that belongs to the past or to somebody else is named only; what is true of the person (`kind: history`)
    counts however long ago.
    """
    present: set[str] = set()
    absent: set[str] = set()
    mentioned: set[str] = set()
    for clause in _clauses(text):
        past, others = _elsewhere("past", clause), _elsewhere("others", clause)
        masked = _negation("pseudo").sub(lambda match: "_" * len(match[0]), clause)
        for name, start, end in _matches(clause):
            mentioned.add(name)
            if others or (past and kind_of(name) not in ("history", "course")):
                continue
            (absent if _denied(masked, clause, start, end) else present).add(name)
    return Reading(frozenset(present), frozenset(absent - present), frozenset(mentioned))


@lru_cache(maxsize=4096)
def ask(text: str) -> Question:
    """What a nurse's line asks about: not what it sets apart ("apart from the chest pain, …")."""
    text = _SET_APART.sub("", text)
    prepared = "\n".join(_clauses(text))
    topics = tuple(name for name in lexicon()["topics"] if _topic(name).search(prepared))
    if "allergies" in topics and _REACTS_TO.search(prepared) and not _TAKES.search(prepared):
        topics = tuple(name for name in topics if name != "medications")
    named = frozenset(name for name in read(text).mentioned if kind_of(name) not in ("site", "course"))
    return Question(topics, named - implied(named))


@lru_cache(maxsize=4096)
def answer(text: str) -> Answered:
    """What kind of answer a reply is."""
    clauses = _clauses(text)
    whole = " ".join(clauses)
    if _answers("declined").search(whole):
        return "declined"
    if _answers("lost").search(whole):
        return "lost"
    for clause in clauses:
        start = _LEAD_IN.sub("", clause)
        if _answers("unsure").match(start):
            continue
        if _answers("yes").match(start):
            return "yes"
        if _answers("no").match(start):
            return "no"
    return "unsure" if _answers("unsure").search(whole) else "told"


def pain_score(text: str, *, asked: bool) -> float | None:
    """The pain score (0 … 10) that a reply gives; a bare number counts only when a number was asked for.

    Of two numbers ("seven or eight") the higher one counts, as the safer reading. A question back ("One more time?")
    gives none, and neither does a number that counts something else.
    """
    prepared = " ".join(_clauses(text))
    found = [_number(match[1]) for match in _SCORE.finditer(prepared)]
    if not found and asked:
        told = " ".join(_clauses(" ".join(part for part in tell_apart(text) if not part.endswith("?"))))
        found = [_number(match[0]) for match in _BARE.finditer(_NOT_SCORES.sub(" ", told))]
    scores = [score for score in found if 0 <= score <= 10]
    return max(scores, default=None)


def tell_apart(text: str) -> list[str]:
    """The sentences of a text."""
    return [part.strip() for part in _SENTENCE.split(text.strip()) if part.strip()]


_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBER = rf"\d{{1,3}}(?:\.\d)?|{'|'.join(_WORDS)}|nought"
_SCORE = re.compile(rf"\b({_NUMBER}) ?(?:/|out of|of) ?(?:10|ten)\b")
_BARE = re.compile(rf"\b(?:{_NUMBER})\b")
_NOT_SCORES = re.compile(
    rf"\b(?:{_NUMBER})(?: or (?:{_NUMBER}))?"
    r" (?:more )?(?:seconds?|minutes?|hours?|days?|nights?|weeks?|months?|years?|times?|moments?|things?|people|in"
    r"|at(?! (?:moment|rest|worst|most|best|least)\b))\b"
    r"|\b(?:this|that|no|other|another|which|each|every) one\b|\bone (?:of|more|side|day|by|second)\b"
)
_SENTENCE = re.compile(r"(?<=[.!?])(?<!\.\.\.)\s+(?=[\"'A-Z])")
_SET_APART = re.compile(r"\b(?:apart from|aside from|other than|besides)\b[^,.?!;]*,", re.IGNORECASE)
# Medicines that are only named as what somebody may react to, unless the question is what is taken.
_REACTS_TO = re.compile(r"\b(?:allerg\w*|react\w*(?: badly)?) to\b")
_TAKES = re.compile(r"\b(?:take|taking|use|using|regular\w*|prescribed)\b|\byou on\b")
_BROKEN = re.compile(r"\b[a-z]{1,12}[-–—](?=[\s,.]|$)")
_CLAUSE = re.compile(
    r"[.;:!?\n]+|\s[-–—]\s|\b(?:but|except|apart from|although|though|however)\b"
    r"|,\s*(?=(?:and )?(?:i|it|my|the|there|then|now|just|only|so|because|he|she|they|we)\b)"
    r"|\s(?=and (?:i|it|my|there|then|now|just)\b)"
)
_CONTRACTIONS = (
    ("’", "'"),
    ("…", " "),
    ("...", " "),
    ("cannot", "can not"),
    ("can't", "can not"),
    ("won't", "will not"),
    ("n't", " not"),
    ("'re", " are"),
    ("'m", " am"),
    ("'ve", " have"),
    ("'ll", " will"),
    ("'d", " would"),
    ("'s", " is"),
    ("gonna", "going to"),
    ("wanna", "want to"),
    ("dunno", "do not know"),
)
_DROPPED = re.compile(
    r"\b(?:a|an|the|my|your|his|her|our|their|its|this|these|those|any|some|very|really|quite|actually"
    r"|um+|uh+m*|erm?|hm+|you know|i mean|sort of|kind of|let me see)\b"
)
_FILLERS = re.compile(r"(?:^|,)?\s*\b(?:um+|uh+m*|erm?|hm+|you know|i mean|like)\s*,")
_ODD = re.compile(r"[^\w\s,/%.$]")
_COMMAS = re.compile(r"(?:, )+(?=, )")
_EDGES = re.compile(r"^(?:, )+|(?: ,)+$")
_TWICE = re.compile(r"\b(\w+)(?: ,)? \1\b")
# Words said again before going on ("in my, my side", "I'm, I'm not sure") are no new clause; "no, no fever" is an
# answer and what it denies.
_AGAIN = re.compile(r"\b(?!no\b|yes\b)((?:\w+ )?\w+), \1\b")
_LEAD_IN = re.compile(r"^(?:(?:well|oh|look|so|like|honestly|ah|and|i said|i already said|okay|ok|sorry) ,? ?)+")
_GAP = r"(?: \w+){0,4}? "
_MACRO = re.compile(r"\$(\w+)")
_FIRST = re.compile(r"\w+")
# More blanks in a row than anybody writes: what is looked for around words takes time in their square.
_BLANKS = re.compile(r"\s{20,}")
# Characters before and after a finding in which a negation may stand; people's clauses are shorter than that.
_REACH = 600


@lru_cache(maxsize=16384)
def _clauses(text: str) -> tuple[str, ...]:
    """A text in the form that patterns are written for, clause by clause."""
    text = _BLANKS.sub(lambda match: "\n" if "\n" in match[0] else " ", text.lower())
    for old, new in _CONTRACTIONS:
        text = text.replace(old, new)
    text = _AGAIN.sub(r"\1", text)
    clauses = []
    for part in _CLAUSE.split(_BROKEN.sub(" ", text)):
        part = " ".join(_ODD.sub(" ", _FILLERS.sub(" ", part)).replace(",", " , ").split())
        part = " ".join(_DROPPED.sub(" ", _TWICE.sub(r"\1", part)).split())
        plain = _EDGES.sub("", _COMMAS.sub("", part))
        if plain:
            clauses.append(_TWICE.sub(r"\1", plain))
    return tuple(clauses)


def _expand(pattern: str) -> str:
    """A pattern of the lexicon as a regular expression, without the word boundaries around it."""
    macros = lexicon()["macros"]
    pattern = _MACRO.sub(lambda match: macros[match[1]] if match[1] in macros else match[0], pattern.strip())
    pattern = pattern.removesuffix("~").rstrip().replace("*", r"\w*").replace(" ~ ", _GAP)
    return re.sub(r"\((?!\?)", "(?:", pattern)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{_expand(pattern)})(?!\w)")


def _any_of(patterns: list[str]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(map(_expand, patterns))})(?!\w)", re.MULTILINE)


@cache
def _topic(name: str) -> re.Pattern[str]:
    return _any_of(lexicon()["topics"][name]["words"])


@cache
def _answers(kind: str) -> re.Pattern[str]:
    return _any_of(lexicon()["answers"][kind])


@cache
def _told(what: str) -> re.Pattern[str]:
    return _any_of(lexicon()["told"][what])


@cache
def _index() -> dict[str, list[tuple[str, str]]]:
    """Patterns by the first letters of the words that they can begin with, so that few are tried at a word."""
    index: dict[str, list[tuple[str, str]]] = {}
    for name, entry in lexicon()["findings"].items():
        for pattern in entry["words"]:
            for first in _beginnings(_expand(pattern)):
                index.setdefault(first[:3], []).append((name, pattern))
    return index


def _beginnings(source: str) -> set[str]:
    """The letters that a match of an expanded pattern can begin with."""
    if not source.startswith("(?:"):
        match = _FIRST.match(source)
        assert match, source
        return {match[0]}
    end = _closing(source)
    found: set[str] = set()
    for option in _options(source[3:end]):
        found |= _beginnings(option)
    if source[end + 1 : end + 2] == "?":
        found |= _beginnings(source[end + 2 :].lstrip())
    return found


def _closing(source: str) -> int:
    """Where the bracket closes that opens first."""
    depth = 0
    for place, char in enumerate(source):
        depth += (char == "(") - (char == ")")
        if char == ")" and depth == 0:
            return place
    raise ValueError(f"pattern {source!r}: a bracket isn't closed")


def _options(source: str) -> Iterator[str]:
    """The alternatives of a group, split at its own bars."""
    depth = start = 0
    for place, char in enumerate(source):
        depth += (char == "(") - (char == ")")
        if char == "|" and depth == 0:
            yield source[start:place]
            start = place + 1
    yield source[start:]


def _matches(clause: str) -> Iterator[tuple[str, int, int]]:
    """(finding, start, end) of every pattern that matches in a clause and isn't made void there."""
    index, void = _index(), cache(lambda name: _void(name, clause))
    for word in _FIRST.finditer(clause):
        letters, tried = word[0], set()
        for key in (letters[:1], letters[:2], letters[:3]):
            if key in tried:
                continue
            tried.add(key)
            for name, pattern in index.get(key, ()):
                match = _compiled(pattern).match(clause, word.start())
                if match and not void(name):
                    yield name, match.start(), match.end()


def _void(name: str, clause: str) -> bool:
    pattern = _except(name)
    return pattern is not None and pattern.search(clause) is not None


@cache
def _except(name: str) -> re.Pattern[str] | None:
    patterns = lexicon()["findings"][name].get("except")
    return _any_of(patterns) if patterns else None


@cache
def _negation(part: str) -> re.Pattern[str]:
    if part == "after":
        return re.compile(rf"^ ?,? ?(?:{'|'.join(map(_expand, lexicon()['negation'][part]))})")
    return _any_of(lexicon()["negation"][part])


@cache
def _elsewhere_pattern(part: str) -> re.Pattern[str]:
    return _any_of(lexicon()["elsewhere"][part])


def _elsewhere(part: str, clause: str) -> bool:
    return _elsewhere_pattern(part).search(clause) is not None


def _denied(masked: str, clause: str, start: int, end: int) -> bool:
    """Whether a negation word governs the match: one before it with no breaker in between, or one right after it.

    Args:
        masked: the clause without what only looks like a negation.
    """
    before = masked[max(0, start - _REACH) : start]
    triggers = list(_negation("triggers").finditer(before))
    if triggers and not _negation("breakers").search(before[triggers[-1].end() :]):
        return True
    return _negation("after").match(clause[end : end + _REACH]) is not None


def _number(text: str) -> float:
    if text in _WORDS:
        return float(_WORDS.index(text))
    return 0.0 if text == "nought" else float(text)
