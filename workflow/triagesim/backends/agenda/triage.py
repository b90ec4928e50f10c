"""From what a nurse has learnt to a level: the decision points in `resources/scales`, followed to the letter."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple

from triagesim.answers import Level
from triagesim.backends.agenda.understanding import lexicon, says
from triagesim.cases import Scale, Vital
from triagesim.resources import load_yaml


@dataclass(frozen=True, slots=True)
class Facts:
    """What the level may rest on.

    Attributes:
        present: findings that the patient has affirmed, and `older`, `female`, `ambulance` as seen at the desk.
        numbers: measured vital signs (temperature in °C) and the pain score.
    """

    present: frozenset[str] = frozenset()
    numbers: dict[str, float] = field(default_factory=dict)


class Verdict(NamedTuple):
    """A level with its grounds.

    Attributes:
        point: the decision point or category that decided.
        reason: why, in words.
        flags: warning signs that were found, most telling first.
        settled: whether the level rests on a rule that more answers can't lower.
    """

    level: Level
    point: str
    reason: str
    flags: tuple[str, ...]
    settled: bool


_Condition = Callable[[Facts], bool]


class Rule(NamedTuple):
    """Conditions with a name: all of `every`, one of `some` where there are any, none of `none`."""

    says: str
    names: tuple[str, ...]
    every: tuple[_Condition, ...]
    some: tuple[_Condition, ...]
    none: tuple[_Condition, ...]

    def holds(self, facts: Facts) -> bool:
        return (
            all(condition(facts) for condition in self.every)
            and (not self.some or any(condition(facts) for condition in self.some))
            and not any(condition(facts) for condition in self.none)
        )


def decide(scale: Scale, facts: Facts) -> Verdict:
    """The level of what is known so far; what isn't known counts as not there, save that needs are expected."""
    rules = _rules(scale)
    signs = tuple(text for condition, text in rules.vital_flags if condition(facts))
    for point in rules.points:
        held = [rule for rule in point.rules if rule.holds(facts)]
        if held:
            found = dict.fromkeys(finding for rule in held for finding in rule.names if finding in facts.present)
            flags = [says(finding) for finding in found if finding in lexicon()["findings"]]
            if point.level > 2:
                flags = []
            reasons = dict.fromkeys(rule.says for rule in held)
            reason = f"{point.name}: {' and '.join(list(reasons)[:2])}"
            return Verdict(point.level, point.name, reason, (*signs, *flags), point.level <= 2)
    if rules.need is not None:
        return _by_need(rules.need, facts, signs)
    return Verdict(rules.otherwise, "otherwise", "no descriptor of a more urgent category holds", signs, False)


def resources(facts: Facts) -> list[str]:
    """The kinds of resource that ESI's decision point C expects, in the order of its rules."""
    point = _rules("esi").need
    assert point is not None
    if any(rule.holds(facts) for rule in point.none_needed):
        return []
    return list(dict.fromkeys(rule.says for rule in point.kinds if rule.holds(facts)))


def needs(scale: Scale) -> tuple[Vital, ...]:
    """The vital signs that are measured before a level is given that can wait."""
    return _rules(scale).needs


def rule(entry: dict[str, Any]) -> Rule:
    """Compile a rule of a scale or the conditions of a presentation (`says`, `all`, `any`, `none`).

    Raises:
        ValueError: a condition names nothing that the lexicon or the vital signs know.
    """
    parts = [tuple(entry.get(key, ())) for key in ("all", "any", "none")]
    return Rule(entry["says"], (*parts[0], *parts[1]), *(tuple(map(_condition, part)) for part in parts))


_COMPARISON = re.compile(r"(\w+) (<=|>=|<|>) (\d+(?:\.\d+)?)")
_OPERATORS = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}
_NUMBERS = ("temperature", "heartrate", "resprate", "o2sat", "sbp", "pain")
_SEEN = ("older", "female", "ambulance")


class _Point(NamedTuple):
    name: str
    level: Level
    rules: tuple[Rule, ...]


class _Need(NamedTuple):
    """ESI's points C and D."""

    levels: dict[int, Level]
    unknown: int
    kinds: tuple[Rule, ...]
    none_needed: tuple[Rule, ...]
    danger: tuple[tuple[str, _Condition], ...]
    danger_level: Level
    danger_says: str
    explained: tuple[tuple[str, Rule], ...]


class _Rules(NamedTuple):
    points: tuple[_Point, ...]
    need: _Need | None
    otherwise: Level
    vital_flags: tuple[tuple[_Condition, str], ...]
    needs: tuple[Vital, ...]


def _by_need(need: _Need, facts: Facts, signs: tuple[str, ...]) -> Verdict:
    """Points C and D of ESI: count the kinds of resource, then look at the danger zone."""
    minor = any(rule.holds(facts) for rule in need.none_needed)
    kinds = resources(facts)
    known = bool(facts.present - set(_SEEN))
    count = len(kinds) if known or minor else need.unknown
    listed = ", ".join(kinds) if kinds else ("none" if known or minor else "not known yet")
    if count in need.levels:
        return Verdict(need.levels[count], "C", f"point C: resources expected: {listed}", signs, False)
    excused = {sign: rule.says for sign, rule in need.explained if rule.holds(facts)}
    breached = [sign for sign, condition in need.danger if condition(facts)]
    if [sign for sign in breached if sign not in excused]:
        reason = f"point D: {need.danger_says} with two or more resources expected ({listed})"
        return Verdict(need.danger_level, "D", reason, signs, True)
    reason = f"point C: two or more resources expected ({listed})"
    if breached:
        reason += "; point D: " + " and ".join(excused[sign] for sign in breached)
    return Verdict(3, "C", reason, signs, False)


@cache
def _rules(scale: Literal["esi", "ats"]) -> _Rules:
    """A scale's rules with their conditions compiled.

    Raises:
        ValueError: a condition names nothing that the lexicon or the vital signs know.
    """
    data = load_yaml(f"scales/{scale}.yaml")
    points = tuple(
        _Point(f"point {name}" if len(name) == 1 else name, entry["level"], tuple(map(rule, entry["rules"])))
        for name, entry in data["decision_points"].items()
        if name not in ("C", "D")
    )
    flags = tuple((_condition(entry["when"]), entry["says"]) for entry in data["vital_flags"])
    need = _need(data) if "danger_zone" in data else None
    return _Rules(points, need, data.get("otherwise", 3), flags, tuple(data["needs"]))


def _need(data: dict[str, Any]) -> _Need:
    count, danger = data["decision_points"]["C"], data["decision_points"]["D"]
    limits = data["danger_zone"]["adult"]
    return _Need(
        levels=count["levels"],
        unknown=count["unknown"],
        kinds=tuple(rule({**entry, "says": entry["kind"]}) for entry in count["rules"]),
        none_needed=tuple(rule({**entry, "says": "a small matter"}) for entry in count["none_needed"]),
        danger=tuple((sign, _condition(f"{sign} {'<' if sign == 'o2sat' else '>'} {limits[sign]}")) for sign in limits),
        danger_level=danger["level"],
        danger_says=danger["says"],
        explained=tuple((entry["sign"], rule(entry)) for entry in data["explained"]),
    )


def _condition(text: str) -> _Condition:
    comparison = _COMPARISON.fullmatch(text)
    if comparison and comparison[1] in _NUMBERS:
        name, compare, limit = comparison[1], _OPERATORS[comparison[2]], float(comparison[3])
        return lambda facts: name in facts.numbers and compare(facts.numbers[name], limit)
    if text in _SEEN or text in lexicon()["findings"]:
        return lambda facts: text in facts.present
    raise ValueError(f"condition {text!r}: neither a finding, a vital sign's comparison, nor one of {', '.join(_SEEN)}")
