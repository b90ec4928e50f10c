"""What a dialogue says that nobody in it should say: levels, vital signs, diagnoses of the case, names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from triagesim.backends.agenda.checks import measured_number, names, pattern
from triagesim.phrasing import plain, tokens
from triagesim.protocol import names_level
from triagesim.resources import load_yaml

#: Who says what. A patient can't know a number that nobody told, nor a diagnosis that comes after the visit.
KINDS = ("nurse_level", "patient_level", "patient_vital", "patient_diagnosis", "nurse_name", "patient_name")
# Shorter words of a diagnosis name nothing.
_LETTERS = 4


class Leak(NamedTuple):
    """One finding: its kind, the turn and the line."""

    kind: str
    turn: int
    text: str


def leaks(case: Mapping[str, Any], script: Mapping[str, Any], lines: list[tuple[int, str, str]]) -> Iterator[Leak]:
    """The leaks of a dialogue in order, each kind once a line.

    Args:
        case, script: what the patient has to tell: the complaint and the script are known to the patient.
        lines: (turn, `nurse` or `patient`, text), as heard.
    """
    told = [str(value) for value in script.values() if value]
    known = " ".join([str(case.get("chief_complaint") or ""), *told])
    # A medicine is written with a capital, and is no name.
    medicines = " ".join(map(str, case.get("medications") or ()))
    diagnoses = [words for title in case.get("diagnoses") or () if (words := diagnosis_words(str(title)))]
    for turn, speaker, text in lines:
        if names_level(text) and (speaker == "nurse" or pattern("of_triage").search(plain(text))):
            yield Leak(f"{speaker}_level", turn, text)
        if speaker == "patient":
            if measured_number(text, known):
                yield Leak("patient_vital", turn, text)
            heard = set(tokens(text))
            named = [words for words in diagnoses if words <= heard]
            if named and any(not words <= set(tokens(known)) for words in named):
                yield Leak("patient_diagnosis", turn, text)
        if next(names(text, f"{known} {medicines}"), None):
            yield Leak(f"{speaker}_name", turn, text)
        # What was said aloud is known from then on.
        known = f"{known} {text}"


@cache
def diagnosis_words(title: str) -> frozenset[str]:
    """The words of a coded diagnosis that name it (`{bronchitis}` of "Acute bronchitis, unspecified"); none if general.

    They are the first part of its title that has any, without the words that many codes and plain complaints share.
    """
    data = load_yaml("language.yaml")["diagnosis"]
    generic = set(data["generic"])
    for part in re.split(data["part"], plain(title)):
        words = {word for word in tokens(part) if len(word) >= _LETTERS and word not in generic}
        if words:
            return frozenset(words)
    return frozenset()
