"""What a check of a line looks for, whoever speaks: that it can be said, is new, names nobody and no diagnosis."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from triagesim.backends.agenda.understanding import implied, says, tell_apart
from triagesim.backends.agenda.wording import join, smooth
from triagesim.judging import LineCheck
from triagesim.protocol import names_level
from triagesim.resources import load_yaml

_V = TypeVar("_V", bound=LineCheck)

#: Kinds of answers that leave a question open.
NO_ANSWER = frozenset({"declined", "lost", "unsure"})
#: Findings that are heard in how somebody speaks, or that any complaint may bring.
MANNER = frozenset({"distress", "anxiety", "severe_pain", "mild_pain", "worst_ever", "low_mood", "sudden"})
#: Lines of fewer words may come again ("No, nothing.").
REPEATABLE = 4
WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")

# A long line is one said before if it shares so much of its words with it; a word said so often in a row is a loop.
_ALIKE = 0.9
_LOOPED = 4
_AFTER_STOP = re.compile(r"(?:^|,(?=\s*[\"“'‘])|[.!?…:;)\]]|[.!?]['\"”’]|[-–—])\s*[\"'“‘(]*$")
_SENTENCES = re.compile(r"[^.;!?]+[.;!?]*")


class Problem(NamedTuple):
    """What is wrong: the verdict's field that it fails, and the critique."""

    field: str
    text: str


def verdict(kind: type[_V], problems: list[Problem]) -> _V:
    """The verdict that these problems make, with one critique of them all."""
    failed = {found.field for found in problems}
    judged = {name: name not in failed for name in kind.model_fields if name != "critique"}
    texts = dict.fromkeys(found.text for found in problems)
    return kind(critique=" ".join(texts) or data()["fine"], **judged)


def of_anybody(text: str, speaker: str, earlier: list[str], others: list[str]) -> Iterator[Problem]:
    """What is wrong whoever says it, save for names.

    Args:
        earlier, others: the speaker's own lines so far, and those of the one it talks to.
    """
    words = WORD.findall(text)
    if not words:
        yield problem("plausible", "empty" if speaker == "patient" else "silent")
        return
    for name in ("meta", "markup"):
        match = pattern(name).search(text.lower())
        if match:
            yield problem("plausible", name, x=match[0].strip())
    match = _swapped(speaker).search(text.lower())
    if match:
        yield problem("plausible", "swapped", x=match[0].strip(" .!?,"))
    if len(words) > data()["most_words"][speaker]:
        yield problem("plausible", "long", x=str(len(words)))
    looped = _looped(text)
    if looped:
        yield problem("plausible", "looped", x=looped)
    if names_level(text) and (speaker == "nurse" or pattern("of_triage").search(text.lower())):
        yield problem("faithful", "level")
    before = _said_before(text, earlier)
    if before:
        yield problem("informative", "said_before", x=short(before))
    parroted = _said_before(text, others)
    if parroted:
        yield problem("plausible", "parroted", x=short(parroted))


def names(text: str, known: str) -> Iterator[Problem]:
    """Names of persons, places and firms; `known` holds words that stand in the case."""
    for kind in ("titles", "introduces"):
        for match in _cased(kind).finditer(text):
            if match["name"].lower() not in _capitals():
                yield problem("no_names", "name", x=match["name"])
                return
    said = pattern("says_name").search(text.lower())
    if said:
        yield problem("no_names", "name", x=said["name"] or said["name2"])
        return
    for match in WORD.finditer(text):
        if not match[0][0].isupper():
            continue
        word = match[0].replace("’", "'")
        plain = word.lower().removesuffix("'s")
        if word.startswith("I'") or plain in _capitals():
            continue
        if word.isupper() and len(word) <= 5:
            continue
        first = _AFTER_STOP.search(text[: match.start()]) is not None
        odd = plain in _given() if first else _is_odd_capital(word)
        # What is known may be all that was said before: it is only read where it decides.
        if odd and plain not in WORD.findall(known.lower()):
            yield problem("no_names", "name", x=word)
            return


def diagnosed(text: str, known: str, excused: str, diagnoses: tuple[str, ...] = ()) -> Iterator[Problem]:
    """A diagnosis that isn't among what is known, stated as a fact: a common one, or a word of the coded ones.

    Args:
        excused: the pattern of words that make it a guess, a fear or something past.
    """
    known = known.lower()
    coded = {word for title in diagnoses for word in pattern("coded").findall(title.lower())}
    for part in _SENTENCES.findall(text.lower()):
        found = [match[0] for match in pattern("diagnoses").finditer(part)]
        found += [word for word in pattern("coded").findall(part) if word in coded]
        new = [name for name in found if name not in known]
        if new and not pattern(excused).search(part):
            yield problem("faithful", "diagnosis", x=new[0])
            return


def problem(field: str, critique: str, **filled: str) -> Problem:
    """A problem with its critique from `master.yaml`, its gaps filled."""
    text: str = data()["critiques"][critique]
    for name, value in filled.items():
        text = text.replace(f"{{{name}}}", value)
    return Problem(field, text)


def named(findings: list[str]) -> str:
    """Findings in words, without those that others of them bring with them."""
    plain = [name for name in findings if name not in implied(set(findings) - {name})]
    return join([says(name) for name in plain[:3]], "or")


def short(text: str) -> str:
    """The first dozen words."""
    words = text.split()
    return " ".join(words[:12]) + (" …" if len(words) > 12 else "")


def data() -> dict[str, Any]:
    """The check's part of `master.yaml`; read-only."""
    data: dict[str, Any] = load_yaml("agenda/master.yaml")["check"]
    return data


@cache
def pattern(name: str) -> re.Pattern[str]:
    """A pattern of `master.yaml`, compiled; for lower-case text."""
    return re.compile(data()[name])


def measured_number(text: str, known: str) -> str | None:
    """A number given as a vital sign that isn't among the `known` words."""
    match = pattern("near_vital").search(text.lower())
    number = match and (match["number"] or match["number2"] or match["number3"])
    return number if number and number not in known else None


def _looped(text: str) -> str | None:
    """A word or a sentence that comes again and again."""
    words = text.lower().split()
    run = 1
    for one, other in pairwise(words):
        run = run + 1 if one == other else 1
        if run >= _LOOPED:
            return one
    counted: dict[str, int] = {}
    for sentence in tell_apart(text):
        plain = smooth(sentence)
        counted[plain] = counted.get(plain, 0) + 1
        if counted[plain] >= 3 and " " in plain:
            return short(sentence)
    return None


def _said_before(text: str, earlier: list[str]) -> str | None:
    """The earlier line that this one repeats, if there is one."""
    plain = smooth(text)
    words = set(plain.split())
    if len(plain.split()) < REPEATABLE:
        return None
    for line in earlier:
        other = smooth(line)
        if other == plain:
            return line
        others = set(other.split())
        shared = len(words & others)
        if min(len(words), len(others)) >= 2 * REPEATABLE and shared >= _ALIKE * len(words | others):
            return line
    return None


def _is_odd_capital(word: str) -> bool:
    """Whether a capital within a sentence makes a word look like a name (`I` and `Type-A` don't)."""
    return len(word) > 1 and word[1:].islower()


@cache
def _cased(name: str) -> re.Pattern[str]:
    """A pattern whose `name` group minds capitals while its other words don't."""
    source = data()[name].replace("[A-Z]", "(?-i:[A-Z])").replace("[a-z]", "(?-i:[a-z])")
    return re.compile(source, re.IGNORECASE)


@cache
def _swapped(speaker: str) -> re.Pattern[str]:
    return re.compile(data()["swapped"][speaker])


@cache
def _capitals() -> frozenset[str]:
    return frozenset(data()["capitals"])


@cache
def _given() -> frozenset[str]:
    return frozenset(data()["given"])
