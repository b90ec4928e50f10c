"""What a description of a patient's appearance must not hold, by the word lists in `resources/appearance.yaml`."""

from __future__ import annotations

import re
from functools import cache

from triagesim.judging import Appearance
from triagesim.resources import load_yaml
from triagesim.views import CaseFacts

# Shorter words of a diagnosis say too little, and so many letters stand for a word in all its forms.
_SHORTEST = 5
_STEM = 7
_WORD = re.compile(r"[^\W\d_]+")


def banned_in(appearance: Appearance, facts: CaseFacts) -> tuple[str, ...]:
    """The banned words of a description in the order in which they occur, each once and in lower case.

    Numbers, levels, what only an instrument shows, names of illnesses, and the words of the case's own diagnoses that
    nobody would use for what is seen.
    """
    coded = _stems(" ".join(facts.diagnoses))
    found: dict[str, None] = {}
    for text in map(str.lower, appearance.model_dump().values()):
        matches = [match for pattern in _banned() for match in pattern.finditer(text)]
        matches += [match for match in _WORD.finditer(text) if _stems(match[0]) & coded]
        found |= dict.fromkeys(match[0] for match in sorted(matches, key=re.Match.start))
    return tuple(found)


def _stems(text: str) -> set[str]:
    words = _WORD.findall(text.lower())
    return {word[:_STEM] for word in words if len(word) >= _SHORTEST and word not in _everyday()}


@cache
def _banned() -> list[re.Pattern[str]]:
    return [re.compile(pattern) for pattern in load_yaml("appearance.yaml")["banned"].values()]


@cache
def _everyday() -> frozenset[str]:
    return frozenset(load_yaml("appearance.yaml")["everyday"].split())
