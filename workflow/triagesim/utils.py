"""Metrics of a finished run: how right, how early, how much was elicited, which warning signs, and why.

Only stored output is read (`trace`, `belief`, `ground_truth` of a run file, or `environment_view` of an episode).
Whatever is missing or malformed gives None, or the empty value, and never an exception.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from triagesim.backends.agenda.knowledge import exchange_of, settle
from triagesim.backends.agenda.understanding import implied, kind_of, read, says
from triagesim.environment_view import environment_view, phrases
from triagesim.lenient import mapping, mappings
from triagesim.resources import load_yaml

#: Actions beside which a level is an estimate, never a stated one.
_UNSTATED = ("check_vital", "log_red_flag")

_QUOTED = re.compile(r"[“\"]([^“”\"]+)[”\"]")
_CLAUSE = re.compile(r"[;:\n()]|[.!?](?=\s|$)|\bbut\b")
_DENIED = re.compile(r"\b(?:no|not|without|denies)\b", re.IGNORECASE)
# A number after a name, with small words between them; a range or a limit ("below 92", "< 92") is no number.
_NUMBER = (
    r"(?:[^\w<>≤≥]|is|was|of|at|to|a|the|reads?|reading|measured|only|low|high|elevated)*?"
    r"(\d{2,3}(?:\.\d+)?)(?!\d|\W*(?:to|-|–)\W*\d)"
)
#: How far a number may be from the measured one and still be the same, rounded.
_ROUNDED = 0.51


def compute_all_metrics(
    *,
    trace: list[dict[str, Any]],
    belief: dict[str, Any],
    ground_truth: dict[str, Any],
    expert_red_flags: set[str] | None = None,
) -> dict[str, Any]:
    """All metrics of a run, under `triage`, `belief_coverage`, `red_flags` and `explanation`.

    Args:
        trace: the nurse's steps, oldest first.
        belief: what the environment knows at the end, by slot.
        ground_truth: the case; its `acuity` is the reference level.
        expert_red_flags: what an expert would have logged, compared as exact text.
    """
    triage = triage_decision_metrics(trace, ground_truth)
    triage["first_correct_turn"] = time_to_first_correct_triage(trace, ground_truth)
    return {
        "triage": triage,
        "belief_coverage": belief_coverage_metrics(belief),
        "red_flags": red_flag_metrics(belief, expert_red_flags),
        "explanation": explanation_support_metrics(trace, belief),
    }


def triage_decision_metrics(trace: list[dict[str, Any]], ground_truth: dict[str, Any]) -> dict[str, Any]:
    """The final level against the reference level.

    A lower number is more urgent, so a prediction below the truth is over-triage and one above it under-triage.
    """
    truth = _level(mapping(ground_truth).get("acuity"))
    levels = [level for _, level in _stated(trace)]
    final = levels[-1] if levels else None
    error = None if truth is None or final is None else final - truth
    return {
        "ground_truth": truth,
        "final_prediction": final,
        "correct": None if error is None else error == 0,
        "absolute_error": None if error is None else abs(error),
        "over_triage": None if error is None else error < 0,
        "under_triage": None if error is None else error > 0,
    }


def time_to_first_correct_triage(trace: list[dict[str, Any]], ground_truth: dict[str, Any]) -> int | None:
    """The turn, from 0, in which the nurse first stated the right level, even if it left it again; else None."""
    truth = _level(mapping(ground_truth).get("acuity"))
    for step, level in _stated(trace):
        if level == truth:
            return _whole(step.get("turn"))
    return None


def belief_coverage_metrics(belief: dict[str, Any]) -> dict[str, Any]:
    """How much was elicited, whatever the truth.

    A slot holds belief items (each with its `value`), plain values, or one of either. A plain 0 is a value; None, NaN
    and blank text are none.
    """
    slots = mapping(belief)
    vitals = list(dict.fromkeys(_texts(slots.get("vitals_known"))))
    return {
        "num_associated_symptoms": len(set(_values(slots.get("associated_symptoms")))),
        "num_red_flags_inferred": len(_values(slots.get("red_flags"))),
        "has_chief_complaint": bool(_values(slots.get("chief_complaint"))),
        "has_pain_location": bool(_values(slots.get("pain_location"))),
        "has_pain_severity": bool(_values(slots.get("pain_severity"))),
        "has_duration": bool(_values(slots.get("duration"))),
        "vitals_known": vitals,
        "num_vitals_known": len(vitals),
    }


def red_flag_metrics(belief: dict[str, Any], expert_red_flags: Iterable[str] | None = None) -> dict[str, Any]:
    """The flags that the nurse logged, and with an expert's set how they compare, as exact text.

    `precision` is None when nothing was logged, `recall` when the expert's set is empty.
    """
    logged = set(_texts(mapping(belief).get("red_flags_logged")))
    metrics = {"num_red_flags_logged": len(logged), "logged_any": bool(logged), "logged_flags": sorted(logged)}
    if expert_red_flags is None:
        return metrics
    expert = set(_texts(expert_red_flags))
    return {**metrics, "expert_red_flags": sorted(expert), **_compared(logged, expert)}


def red_flag_metrics_normalised(
    belief: dict[str, Any], expert_red_flags: Iterable[str] | None = None
) -> dict[str, Any]:
    """Beside `red_flag_metrics`, which it doesn't alter: the same after normalisation and synonyms, as `normalised_…`.

    `resources/red_flags.yaml` says what is taken for the same; a flag that it doesn't know stays as it is.
    """
    logged = {normalise_flag(flag) for flag in _texts(mapping(belief).get("red_flags_logged"))} - {""}
    sets: dict[str, Any] = {"logged_flags": sorted(logged)}
    if expert_red_flags is not None:
        expert = {normalise_flag(flag) for flag in _texts(expert_red_flags)} - {""}
        sets |= {"expert_red_flags": sorted(expert), **_compared(logged, expert)}
    return {f"normalised_{name}": value for name, value in sets.items()}


def normalise_flag(flag: str) -> str:
    """A red flag without case, punctuation, articles and variant spelling, by the name that its synonyms share."""
    return _synonyms().get(_plain_flag(flag), _plain_flag(flag))


def explanation_support_metrics(trace: list[dict[str, Any]], belief: dict[str, Any]) -> dict[str, Any]:
    """Whether the action of the nurse's last step holds an explanation, and its length in words.

    Explanations usually stand beside the action and aren't seen here; `explanation_grounding` reads those.
    """
    last = next(reversed(_actions(trace)), None)
    text = last[1].get("explanation") if last else None
    words = text.split() if isinstance(text, str) else []
    return {"has_explanation": bool(words), "explanation_length": len(words)}


def explanation_grounding(episode: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the nurse's explanations cite what was said or measured by then; of an episode, or of a run file.

    A citation is a quotation, a finding that an explanation states as present, a number of a vital sign, or a word for
    one (`tachycardia`). What a clause only considers ("rule out …") or denies cites nothing. Findings are read by the
    lexicon of the agenda backend: what it doesn't know isn't counted.

    Returns:
        `explanations`: steps that have one; `citing`, `with_unsupported`: those with a citation, and with one that
        nobody said or measured; `citations`, `supported`, `support_rate` over all of them (None without any);
        `unsupported`: each of those with `step` (from 0), `turn`, `kind` and `cited`.
    """
    known = _Known(mapping(episode))
    counts = dict.fromkeys(("explanations", "citing", "with_unsupported", "citations", "supported"), 0)
    unsupported: list[dict[str, Any]] = []
    for number, (step, action) in enumerate(_actions(environment_view(episode)["trace"])):
        turn = _whole(step.get("turn"))
        known.hear_until(turn)
        text = step.get("explanation")
        cited = list(_citations(text)) if isinstance(text, str) else []
        false = [(kind, what) for kind, what in cited if not known.supports(kind, what)]
        counts["explanations"] += isinstance(text, str) and bool(text.strip())
        counts["citing"] += bool(cited)
        counts["with_unsupported"] += bool(false)
        counts["citations"] += len(cited)
        counts["supported"] += len(cited) - len(false)
        unsupported += [{"step": number, "turn": turn, "kind": kind, "cited": _written(what)} for kind, what in false]
        if action.get("type") == "check_vital":
            known.measure(action.get("vital"))
    rate = counts["supported"] / counts["citations"] if counts["citations"] else None
    return {**counts, "support_rate": rate, "unsupported": unsupported}


class _Known:
    """What was said and measured so far, as a run is read from its beginning."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        history = mappings(run.get("history"))
        self._lines = [line for line in history if isinstance(line.get("utterance"), str)]
        events = [line for line in history if line.get("event") == "vital"]
        self._values = {str(line.get("name")): line.get("value") for line in events}
        seen = [text for text in mapping(run.get("appearance")).values() if isinstance(text, str)]
        self._said = [_plain(text) for text in seen]
        self._findings = {name for text in seen for name in read(text).present}
        self._measured: dict[str, float] = {}
        self._asked = ""

    def hear_until(self, turn: int | None) -> None:
        """Take in what was said before a turn's steps."""
        while self._lines and turn is not None and (_whole(self._lines[0].get("turn")) or 0) < turn:
            line = self._lines.pop(0)
            text = str(line["utterance"])
            self._said.append(_plain(text))
            if line.get("actor") != "patient":
                self._asked = text
                continue
            exchange = exchange_of(self._asked, text)
            present, absent = settle(exchange, frozenset(self._findings))
            self._findings |= present | implied(present) | (exchange.learnt.mentioned - absent)

    def measure(self, vital: Any) -> None:
        """A vital sign is taken; the nurse knows its value from the next step on."""
        value = self._values.get(vital) if isinstance(vital, str) else None
        if isinstance(value, int | float) and _is_number(value):
            self._measured[str(vital)] = value

    def supports(self, kind: str, what: Any) -> bool:
        """Whether a citation holds."""
        if kind == "quotation":
            return any(what in line for line in self._said)
        if kind == "finding":
            shown_by = {what, *_data()["includes"].get(what, ())}
            return bool(shown_by & self._findings) or _data()["measurable"].get(what) in self._measured
        vital, number = what
        value = self._measured.get(vital)
        return value is not None and (number is None or _same(vital, value, number))


def _citations(text: str) -> Iterator[tuple[str, Any]]:
    """What an explanation cites, as (kind, what): quotation, finding, vital (name, number) or sign (name, None)."""
    for match in _QUOTED.finditer(text):
        if len(match[1].split()) > 1:
            yield "quotation", _plain(match[1])
    for clause in _CLAUSE.split(_QUOTED.sub(" ", text)):
        if _hedged().search(clause):
            continue
        findings = {name for name in read(clause).present if kind_of(name) in ("symptom", "history")}
        yield from (("finding", name) for name in sorted(findings - implied(findings) - set(_data()["manner"])))
        for vital, (numbered, sign) in _vital_words().items():
            yield from (("vital", (vital, float(found[1]))) for found in numbered.finditer(clause))
            word = sign.search(clause)
            if word and not _DENIED.search(clause[: word.start()]):
                yield "sign", (vital, None)


def _compared(logged: set[str], expert: set[str]) -> dict[str, Any]:
    hits = logged & expert
    return {
        "true_positives": sorted(hits),
        "false_positives": sorted(logged - expert),
        "false_negatives": sorted(expert - logged),
        "precision": len(hits) / len(logged) if logged else None,
        "recall": len(hits) / len(expert) if expert else None,
    }


def _plain_flag(flag: str) -> str:
    data = load_yaml("red_flags.yaml")
    text = flag.casefold()
    for letters, others in data["spelling"].items():
        text = text.replace(letters, others)
    return " ".join(word for word in re.findall(r"\w+", text) if word not in data["drop"])


@cache
def _synonyms() -> dict[str, str]:
    groups = load_yaml("red_flags.yaml")["same"]
    return {_plain_flag(word): name for name, others in groups.items() for word in (name, *others)}


@cache
def _hedged() -> re.Pattern[str]:
    return phrases(tuple(_data()["hedges"]))


@cache
def _vital_words() -> dict[str, tuple[re.Pattern[str], re.Pattern[str]]]:
    """By vital sign: its name with a number after it, and the words for how it is."""
    data = _data()
    return {
        vital: (
            re.compile(phrases(tuple(names)).pattern + _NUMBER, re.IGNORECASE),
            phrases(tuple(data["signs"][vital])),
        )
        for vital, names in data["vitals"].items()
    }


def _data() -> dict[str, Any]:
    data: dict[str, Any] = load_yaml("metrics.yaml")["explanation"]
    return data


def _same(vital: str, value: float, number: float) -> bool:
    """Whether a number is a measured one, rounded, and for a temperature on either scale."""
    values = [value, (value - 32) / 1.8, value * 1.8 + 32] if vital == "temperature" else [value]
    return any(abs(number - one) <= _ROUNDED for one in values)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _written(what: Any) -> str:
    if isinstance(what, tuple):
        return what[0] if what[1] is None else f"{what[0]} {what[1]:g}"
    return says(what) if what in load_yaml("agenda/lexicon.yaml")["findings"] else str(what)


def _actions(trace: Any) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The nurse's steps that hold an action, each with it."""
    mine = [(step, step.get("action")) for step in mappings(trace) if step.get("actor") in (None, "nurse")]
    return [(step, action) for step, action in mine if isinstance(action, Mapping)]


def _stated(trace: Any) -> Iterator[tuple[Mapping[str, Any], int]]:
    """The steps in which the nurse stated a level (with what it said, or at the end), with the level."""
    for step, action in _actions(trace):
        level = _level(action.get("triage"))
        if level is not None and action.get("type") not in _UNSTATED:
            yield step, level


def _values(slot: Any) -> list[str | float]:
    """What a slot of the belief holds; a value that isn't a text or a number is none."""
    found: list[str | float] = []
    for item in slot if isinstance(slot, list | tuple | set | frozenset) else [slot]:
        value: Any = item.get("value") if isinstance(item, Mapping) else item
        if value is True or _is_number(value) or (isinstance(value, str) and value.strip()):
            found.append(value)
    return found


def _texts(values: Any) -> list[str]:
    """The texts among `values`: one text, or any iterable of texts or belief items."""
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
        values = list(values)
    return [value for value in _values(values) if isinstance(value, str)]


def _level(value: Any) -> int | None:
    level = _whole(value)
    return level if level is not None and 1 <= level <= 5 else None


def _whole(value: Any) -> int | None:
    return int(value) if _is_number(value) and value == int(value) else None


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)
