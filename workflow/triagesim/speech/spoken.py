"""Written to spoken form: what an engine is given to say for a line of the transcript, and which words say what."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache, lru_cache
from string import Formatter
from typing import Any, NamedTuple

from triagesim.errors import InputError
from triagesim.jsonl import digest
from triagesim.resources import load_yaml

#: Bumped by hand when this module's code would say a text differently; with the rules it is part of a line's key.
VERSION = 2

_FILE = "speech/spoken.yaml"
#: Passes over a text until it stays as it is; two or three are enough for anything seen.
_PASSES = 8


class Span(NamedTuple):
    """A stretch of a line: as written, as said, and what the rule that took it is about (empty: said as written)."""

    written: str
    spoken: str
    kind: str


class _Rule(NamedTuple):
    kind: str
    find: re.Pattern[str]
    say: list[tuple[str, str | None, str]]


def spoken_form(text: str) -> str:
    """A line as it is said, by the rules in `resources/speech/spoken.yaml`.

    No digit is left, white space becomes single spaces, and what is said is said the same when it is read again.
    """
    return "".join(span.spoken for span in align(text))


@lru_cache(maxsize=4096)
def align(text: str) -> tuple[Span, ...]:
    """The line in stretches: the `written` joined are the text, the `spoken` joined its spoken form."""
    spans = _once(text)
    said = "".join(span.spoken for span in spans)
    for _ in range(_PASSES):
        again = _once(said)
        after = "".join(span.spoken for span in again)
        if after == said:
            break
        spans, said = _compose(spans, again), after
    return tuple(spans)


def rules_digest() -> str:
    """The hash of the normaliser as it is now: its version and its rules."""
    return digest([VERSION, load_yaml(_FILE)])


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
    for cut in _cuts():
        places = [match.span() for match in cut.finditer(text) if 0 < match.start() <= limit]
        if places:
            return places[-1]
    return limit, limit


@cache
def _cuts() -> tuple[re.Pattern[str], ...]:
    """Where a long line may be cut, best first: after a sentence, after a clause, before a joining word, at a space."""
    joining = "|".join(map(re.escape, load_yaml(_FILE)["joining"]))
    patterns = (r"(?<=[.!?])\s+", r"(?<=[,;:])\s+", rf"\s+(?=(?:{joining})\b)", r"\s+")
    return tuple(map(re.compile, patterns))


def _once(text: str) -> list[Span]:
    """One pass of the rules over a text."""
    spans: list[Span] = []
    place = 0
    for rule, match in _matches(text):
        spans += _as_written(text[place : match.start()])
        spans.append(Span(match[0], _said(rule, match), rule.kind))
        place = match.end()
    return _spaced([*spans, *_as_written(text[place:])])


def _matches(text: str) -> Iterator[tuple[_Rule, re.Match[str]]]:
    """The matches that count, from left to right: the one that begins first, then the higher rule."""
    rules = _rules()
    found = [rule.find.search(text) for rule in rules]
    place = 0
    while True:
        best: tuple[int, int] | None = None
        for number, match in enumerate(found):
            if match is not None and match.start() < place:
                found[number] = match = rules[number].find.search(text, place)
            if match is not None and (best is None or match.start() < best[0]):
                best = match.start(), number
        if best is None:
            return
        match = found[best[1]]
        assert match is not None
        yield rules[best[1]], match
        place = match.end()


def _said(rule: _Rule, match: re.Match[str]) -> str:
    """What a rule says for its match."""
    said = []
    for literal, name, how in rule.say:
        said.append(literal)
        if name is not None and match[name] is not None:
            said.append(_WAYS[how](match[name], match) if how in _WAYS else _looked_up(how, match[name]))
    return "".join(said)


def _as_written(text: str) -> list[Span]:
    """What no rule takes: said as it stands, but for symbols and digits of other scripts."""
    spans: list[Span] = []
    for char in text:
        said = _character(char)
        if said == char and spans and not spans[-1].kind:
            spans[-1] = Span(spans[-1].written + char, spans[-1].spoken + char, "")
        else:
            spans.append(Span(char, said, "" if said == char else "symbol"))
    return spans


@cache
def _character(char: str) -> str:
    """How a single character is said; a space for what can't be."""
    data = load_yaml(_FILE)
    if char in data["symbols"]:
        return f" {data['symbols'][char]} "
    if unicodedata.category(char)[0] == "N":
        value = Fraction(unicodedata.numeric(char)).limit_denominator(1000)
        over = "" if value.denominator == 1 else f" over {_number(str(value.denominator))}"
        return f" {_number(str(value.numerator).lstrip('-'))}{over} "
    return char if unicodedata.category(char)[0] in "LM" or char in data["kept"] else " "


def _spaced(spans: list[Span]) -> list[Span]:
    """White space as single spaces, none at the ends, one where a word that was put in would touch its neighbour."""
    done: list[Span] = []
    last, before, pending = "", "", False
    for span in spans:
        said: list[str] = []
        for char in span.spoken:
            if char.isspace():
                pending = True
                continue
            touches = not said and (span.kind or before) and last.isalnum() and char.isalnum()
            if last and (touches or pending) and char not in ",.;:!?":
                said.append(" ")
            said.append(char)
            last, pending = char, False
        before = span.kind
        done.append(Span(span.written, "".join(said), span.kind))
    return done


def _compose(first: list[Span], second: list[Span]) -> list[Span]:
    """Spans from the written side of `first` to the spoken side of `second`, cut wherever both are cut."""
    done: list[Span] = []
    left, right = iter(first), iter(second)
    written = spoken = kind = ""
    ahead = 0  # characters of the text between that `first` has given and `second` hasn't taken
    while True:
        span = next(left if ahead <= 0 else right, None)
        if span is None:
            return done
        if ahead <= 0:
            written, ahead = written + span.written, ahead + len(span.spoken)
        else:
            spoken, ahead = spoken + span.spoken, ahead - len(span.written)
        kind = kind or span.kind
        if ahead == 0:
            done.append(Span(written, spoken, kind))
            written = spoken = kind = ""


# -- ways of saying


def _number(text: str) -> str:
    """A number in words: its whole part, then the decimals one by one."""
    from num2words import num2words

    whole, point, decimals = text.replace(",", "").partition(".")
    words = num2words(int(whole)).replace(",", "") if whole else ""
    return f"{words} point {_digits(decimals)}".strip() if point else words


def _digits(text: str) -> str:
    """Digit by digit, with a pause at a hyphen."""
    return ", ".join(" ".join(map(_number, group)) for group in text.split("-"))


def _plain(text: str) -> str:
    return _number(text) if any(map(str.isdecimal, text)) else text


def _ordinal(text: str) -> str:
    from num2words import num2words

    return str(num2words(int(text), to="ordinal")).replace(",", "")


def _year(text: str) -> str:
    from num2words import num2words

    return str(num2words(int(text), to="year")).replace("-", " ")


def _minute(text: str) -> str:
    if int(text) == 0:
        return "hundred"
    return f"oh {_number(text[1])}" if int(text) < 10 else _number(text)


def _month(text: str) -> str:
    names: list[str] = load_yaml(_FILE)["months"]
    if text.isdecimal():
        return names[int(text) - 1]
    return next(name for name in names if name.startswith(text[:3]))


def _decade(text: str) -> str:
    word = _number(f"{text}0") if text != "0" else "hundred"
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


def _unit(text: str, match: re.Match[str]) -> str:
    one, many = load_yaml(_FILE)["units"][text]
    return str(one if match["n"] == "1" else many)


def _one(text: str) -> str:
    return str(load_yaml(_FILE)["units"][text][0])


def _money(text: str, match: re.Match[str]) -> str:
    names = load_yaml(_FILE)["currencies"][match["sign"]]
    whole, _, cents = text.replace(",", "").partition(".")
    said = f"{_number(whole)} {names['one' if int(whole) == 1 else 'many']}"
    return f"{said} and {_number(cents)} {names['part']}" if cents.strip("0") else said


def _cut(text: str) -> str:
    vowel = str(load_yaml(_FILE)["cut_off_vowel"])
    bare = not re.search("[aeiouyAEIOUY]", text) and (len(text) > 1 or text.islower())
    return text + vowel if bare else text


def _times(text: str) -> str:
    return f"{_number(text)} {'time' if int(text) == 1 else 'times'}"


def _looked_up(table: str, text: str) -> str:
    """From one of the tables; what isn't in it is said plainly."""
    entries = _abbreviations() if table == "abbreviation" else load_yaml(_FILE)["tables"][table]
    return str(entries[text]) if text in entries else _plain(text)


@cache
def _abbreviations() -> dict[str, str]:
    """The abbreviations, those that begin small also as a sentence begins with them."""
    known: dict[str, str] = load_yaml(_FILE)["abbreviations"]
    return {_large(short): _large(said) for short, said in known.items() if short[0].islower()} | known


def _large(text: str) -> str:
    return text[0].upper() + text[1:]


def _alone(way: Callable[[str], str]) -> Callable[[str, re.Match[str]], str]:
    return lambda text, _match: way(text)


_WAYS: dict[str, Callable[[str, re.Match[str]], str]] = {
    "": _alone(_plain),
    "cut": _alone(_cut),
    "decade": _alone(_decade),
    "digits": _alone(_digits),
    "minute": _alone(_minute),
    "money": _money,
    "month": _alone(_month),
    "one": _alone(_one),
    "ordinal": _alone(_ordinal),
    "times": _alone(_times),
    "unit": _unit,
    "year": _alone(_year),
}


# -- reading the rules


@cache
def _rules() -> tuple[_Rule, ...]:
    data: dict[str, Any] = load_yaml(_FILE)
    macros = dict(data["macros"])
    macros["unit"] = f"(?:{_any_of(data['units'])})"
    macros["abbreviation"] = rf"(?<!\w)(?:{_any_of(_abbreviations())})(?!\w)"
    return tuple(_rule(entry, macros, data) for entry in data["rules"])


def _rule(entry: dict[str, str], macros: dict[str, str], data: dict[str, Any]) -> _Rule:
    source = re.sub(r"\$([a-z]+)", lambda match: macros.get(match[1], match[0]), entry["find"])
    where = f"resources/{_FILE}: {entry['find']!r}"
    try:
        find = re.compile(source)
    except re.error as error:
        raise InputError(f"{where} is no regular expression ({error})") from None
    say = [(literal, name, how or "") for literal, name, how, _ in Formatter().parse(entry["say"])]
    for _, name, how in say:
        if name is not None and name not in find.groupindex:
            raise InputError(f"{where}: say names {{{name}}}, which isn't a group of find")
        if how not in {*_WAYS, *data["tables"], "abbreviation"}:
            raise InputError(f"{where}: no way of saying {how!r}; expected one of {', '.join(_WAYS)}, or a table")
    return _Rule(entry["kind"], find, say)


def _any_of(words: dict[str, Any]) -> str:
    """A pattern of the words, the longest first, so that `mg` doesn't win over `mg/dL`."""
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
