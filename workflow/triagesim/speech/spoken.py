"""Written to spoken form: what an engine is given to say for a line of the transcript."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from triagesim.errors import InputError
from triagesim.jsonl import digest
from triagesim.resources import load_yaml

_FILE = "speech/spoken.yaml"
#: Where a long line may be cut, best first: after a sentence, after a clause, between words.
_CUTS = (re.compile(r"(?<=[.!?])\s+"), re.compile(r"(?<=[,;:])\s+"), re.compile(r"\s+"))


class _Rules(NamedTuple):
    patterns: list[tuple[re.Pattern[str], str]]
    units: dict[str, tuple[str, str]]
    unit: re.Pattern[str]
    abbreviations: dict[str, str]
    abbreviation: re.Pattern[str]


def spoken_form(text: str) -> str:
    """A line as it is said, by the rules in `resources/speech/spoken.yaml`; white space becomes single spaces."""
    rules = _rules()
    for pattern, say in rules.patterns:
        text = pattern.sub(say, text)
    text = rules.unit.sub(lambda match: f"{match[1]} {rules.units[match[2]][match[1] != '1']}", text)
    text = rules.abbreviation.sub(lambda match: rules.abbreviations[match[0]], text)
    return " ".join(text.split())


def rules_digest() -> str:
    """The hash of the rules as they are now."""
    return digest(load_yaml(_FILE))


def part_pause() -> float:
    """Seconds of silence between the parts of a line that was split."""
    return float(load_yaml(_FILE)["part_pause"])


def split(text: str, limit: int) -> list[str]:
    """Cut `text` into parts of at most `limit` characters: at sentences, else clauses, else words.

    Parts are as long as they may be; a word that is longer than the limit is cut where the limit is.
    """
    text = text.strip()
    parts = []
    while len(text) > limit:
        end, start = _last_cut(text, limit)
        parts.append(text[:end])
        text = text[start:].strip()
    return [*parts, text] if text else parts


def _last_cut(text: str, limit: int) -> tuple[int, int]:
    """Where the first part ends and the rest starts."""
    for cut in _CUTS:
        places = [match.span() for match in cut.finditer(text) if 0 < match.start() <= limit]
        if places:
            return places[-1]
    return limit, limit


@cache
def _rules() -> _Rules:
    data: dict[str, Any] = load_yaml(_FILE)
    patterns = []
    for rule in data["rules"]:
        try:
            patterns.append((re.compile(rule["find"]), rule["say"]))
        except re.error as error:
            raise InputError(f"resources/{_FILE}: {rule['find']!r} is no regular expression ({error})") from None
    units = {name: (one, many) for name, (one, many) in data["units"].items()}
    return _Rules(
        patterns,
        units,
        re.compile(rf"(?<![\d.,])(\d+(?:[.,]\d+)*)\s?({_any_of(units)})(?![\w/])"),
        data["abbreviations"],
        re.compile(rf"(?<!\w)(?:{_any_of(data['abbreviations'])})(?!\w)"),
    )


def _any_of(words: dict[str, Any]) -> str:
    """A pattern of the words, the longest first, so that `mg` doesn't win over `mg/dL`."""
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
