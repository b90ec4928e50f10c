"""How many things a line asks for: the rule that a nurse puts one question at a time."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise, permutations

from triagesim.backends.agenda.checks import data, pattern
from triagesim.backends.agenda.understanding import ask, tell_apart

# A request of so few words ("Tell me.") may belong to the question beside it.
_SHORT = 4
_JOINED = re.compile(r"\b(?:and|also|plus|then)[ ,]*$", re.IGNORECASE)


def questions_in(text: str) -> list[str]:
    """The things that a line asks for, in its order, each in the words that ask for it."""
    asked: list[str] = []
    for sentence in tell_apart(text):
        if not pattern("courtesies").search(sentence.lower()):
            asked += _asking_parts(sentence)
    # A short request that is about nothing of its own ("Tell me.") belongs to the question beside it.
    telling = [part for part in asked if not _is_bare_request(part)]
    return telling or asked[:1]


def kinds_joined(question: str) -> str | None:
    """Two kinds of things that one question asks a list of ("medicines or allergies"), if there are such."""
    match = _two_kinds().search(question.lower())
    return match and match[0]


def _asking_parts(sentence: str) -> list[str]:
    """The parts of a sentence that each ask for something; none where it isn't a question."""
    starts = [match.start() for match in _second().finditer(sentence.lower())]
    pieces = [sentence[start:end] for start, end in pairwise([0, *starts, len(sentence)])]
    asking = [piece for piece in pieces if _start().match(_bare(piece))]
    if sentence.rstrip("\"'”’ ").endswith("?"):
        asking = asking or [sentence]
    elif not asking or asking[0] != pieces[0]:
        return []
    kept = asking[:1]
    for before, piece in pairwise(pieces):
        tail = piece not in asking[1:] or len(_bare(piece).split()) <= 2
        if not tail and (_JOINED.search(before) or _is_new(kept[-1], piece)):
            kept.append(piece)
    return [_JOINED.sub("", piece).strip(" ,;–—-") for piece in kept]


def _is_bare_request(part: str) -> bool:
    words, question = _bare(part), ask(part)
    short = len(words.split()) <= _SHORT and not (question.topics or question.findings)
    return short and pattern("requests").match(words) is not None


def _bare(piece: str) -> str:
    """A part of a sentence without the words that lead to a question."""
    return pattern("leads").sub("", piece.lower().strip(" \"'“”‘’")).strip() or piece.lower().strip()


def _is_new(one: str, other: str) -> bool:
    """Whether two parts that stand side by side ask for different things."""
    first, second = ask(one), ask(other)
    if not (second.topics or second.findings) or not (first.topics or first.findings):
        return False
    return not (set(first.topics) & set(second.topics) or first.findings & second.findings)


@cache
def _start() -> re.Pattern[str]:
    """How a question or a request begins."""
    return re.compile(rf"(?:{data()['asks']}|{data()['requests']})")


@cache
def _second() -> re.Pattern[str]:
    """Where another question may begin within a sentence."""
    before = "|".join(rf"(?<={end})" for end in (r"\band ", r"\balso ", r"\bplus ", r"\bthen ", ", ", "; ", "[–—-] "))
    return re.compile(rf"(?:{before})(?={_start().pattern})")


@cache
def _two_kinds() -> re.Pattern[str]:
    kinds = data()["kinds"]
    between = r"(?:,| and| or|/)+ (?:(?:do you |you )?(?:have |take |taking )?(?:any |your |other ))?"
    pairs = [rf"{one}{between}{other}" for one, other in permutations(kinds.values(), 2)]
    return re.compile(rf"\b(?:{'|'.join(pairs)})\b")
