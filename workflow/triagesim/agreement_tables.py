"""The tables of agreement by pairing and group: agreement, confusion, comparisons, calibration and status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from itertools import combinations
from types import EllipsisType
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from triagesim.agreement import BASELINES, LEVELS, MEASURES, NOBODY, Measure, Statistic, reweighted
from triagesim.answers import Confidence
from triagesim.bootstrap import Array
from triagesim.config import Score
from triagesim.estimates import Estimate, Sample, count_by
from triagesim.personas import registry
from triagesim.score_rows import Scores, traits

AGREEMENT = ("pairing", "group", "level", "measure", "value", "low", "high", "n", "cases", "note")
CONFUSION = ("pairing", "truth", "final", "n")
COMPARISONS = ("a", "b", "measure", "difference", "low", "high", "cases", "note")
CALIBRATION = ("pairing", "confidence", "n", "accuracy", "low", "high", "note")
STATUS = ("pairing", "status", "reason", "n")

#: Where an episode can be counted, in the table's order.
OUTCOMES = ("graded", "no_level", "no_truth", "leaked_label", "other_scale", "skipped", "error")
#: Within one true level kappa and the measures of certain levels say nothing.
BY_TRUTH = ("accuracy", "within_one", "mae", "signed_error", "over", "under", "severe_under")
#: True levels at which a measure can only be 0.
_IMPOSSIBLE = {"over": (1,), "under": (5,), "severe_under": (3, 4, 5)}
COMPARED = (*BY_TRUTH, "sensitivity_high", "qwk", "lwk", "macro_f1")
UNKNOWN = "unknown"

_CELLS = len(LEVELS) ** 2


class Graded:
    """The graded dialogues of a pairing.

    Attributes:
        scores: their rows.
        truth, final: their levels, 1 … 5.
    """

    def __init__(self, scores: Scores, options: Score) -> None:
        self.scores = scores.where("outcome", "graded")
        self.options = options
        self.truth = _numbers(self.scores["ground_truth"])
        self.final = _numbers(self.scores["final_triage"])

    @cached_property
    def keys(self) -> NDArray[np.str_]:
        """What belongs together: the case, or the patient where it is known and asked for."""
        if self.options.cluster == "case":
            return np.array(self.scores["case_id"], dtype=str)
        both = zip(self.scores["subject"], self.scores["case_id"], strict=True)
        return np.array([f"subject {subject}" if subject else case for subject, case in both], dtype=str)

    @cached_property
    def clusters(self) -> NDArray[np.int64]:
        """The number of each dialogue's cluster."""
        return np.unique(self.keys, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """The number of each dialogue's cell in the 5 × 5 table."""
        return (self.truth - 1) * len(LEVELS) + self.final - 1

    def sample(self, chosen: NDArray[np.bool_] | EllipsisType = ...) -> Sample:
        """The chosen dialogues, all unless given, as 25 counts a cluster."""
        return Sample(count_by(self.clusters[chosen], self.cells[chosen], _CELLS), self.options)


def agreement(pairing: str, graded: Graded) -> Iterator[list[Any]]:
    """The rows of `agreement.csv` of a pairing."""
    asked = {**MEASURES, "accuracy_reweighted": reweighted(graded.options.prevalence)}
    everything = graded.sample()
    for name, measure in {**asked, **BASELINES}.items():
        yield [pairing, "all", "all", name, *_estimate(everything, measure)]
    for group, level, chosen in _groups(graded):
        sample = graded.sample(chosen)
        for name, measure in asked.items():
            if group != "truth" or name in BY_TRUTH:
                found = _estimate(sample, measure)
                if group == "truth" and int(level) in _IMPOSSIBLE.get(name, ()):
                    found = found._replace(low=None, high=None, note="impossible at this level")
                yield [pairing, group, level, name, *found]


def confusion(pairing: str, graded: Graded) -> Iterator[list[Any]]:
    """The rows of `confusion.csv` of a pairing: every cell, also the empty ones."""
    counts = np.bincount(graded.cells, minlength=_CELLS)
    for cell, number in enumerate(counts.tolist()):
        yield [pairing, LEVELS[cell // 5], LEVELS[cell % 5], number]


def status(pairing: str, scores: Scores) -> Iterator[list[Any]]:
    """The rows of `status.csv` of a pairing: where each episode is counted, and why."""
    counts = Counter(zip(scores["outcome"], scores["reason"], strict=True))
    for outcome in OUTCOMES:
        reasons = sorted(reason for found, reason in counts if found == outcome)
        for reason in reasons or [""]:
            yield [pairing, outcome, reason or None, counts[outcome, reason]]


def calibration(pairing: str, graded: Graded) -> Iterator[list[Any]]:
    """The rows of `calibration.csv` of a pairing: how often each stated confidence was right."""
    stated = np.array(graded.scores["confidence"], dtype=str)
    for confidence in get_args(Confidence):
        found = _estimate(graded.sample(stated == confidence), MEASURES["accuracy"])
        yield [pairing, confidence, found.n, found.value, found.low, found.high, found.note]


def comparisons(graded: Mapping[str, Graded]) -> Iterator[list[Any]]:
    """The rows of `comparisons.csv`: a minus b, over the cases of which both have a graded dialogue."""
    for a, b in combinations(graded, 2):
        sample = _paired(graded[a], graded[b])
        for name in COMPARED:
            value, _, undefined, _ = MEASURES[name]
            found = sample.estimate(partial(_difference, value), _dialogues, undefined)
            note = found.note if found.n else "no graded case in common"
            yield [a, b, name, found.value, found.low, found.high, found.cases, note]


def _estimate(sample: Sample, measure: Measure) -> Estimate:
    value, number = (partial(_of_tables, statistic) for statistic in (measure.value, measure.number))
    found = sample.estimate(value, number, measure.undefined, share=measure.share)
    return found if len(sample.clusters) else found._replace(note=NOBODY)


def _groups(graded: Graded) -> Iterator[tuple[str, str, NDArray[np.bool_]]]:
    """Every group's levels that occur, with the dialogues at that level."""
    columns = {"truth": "ground_truth", **{name: name for name in ("algorithm", "age_group", "gender", "arrival")}}
    orders = {f"{role}.{trait}": list(registry(role).traits[trait].levels) for role, trait in traits()}
    columns |= {f"{role}.{trait}": f"{role}_{trait}" for role, trait in traits()}
    for group, column in columns.items():
        cells = np.array([cell or UNKNOWN for cell in graded.scores[column]], dtype=str)
        occurring = np.unique(cells).tolist()
        order = [*orders.get(group, []), *(level for level in occurring if level != UNKNOWN), UNKNOWN]
        for level in dict.fromkeys(order):
            if level in occurring:
                yield group, level, cells == level


def _paired(a: Graded, b: Graded) -> Sample:
    """The cases that both have, as 25 counts of `a` and 25 of `b` a cluster."""
    shared = np.intersect1d(np.array(a.scores["case_id"], dtype=str), np.array(b.scores["case_id"], dtype=str))
    sides = [(side, np.isin(np.array(side.scores["case_id"], dtype=str), shared)) for side in (a, b)]
    keys = np.concatenate([side.keys[chosen] for side, chosen in sides])
    cells = np.concatenate([side.cells[chosen] + _CELLS * number for number, (side, chosen) in enumerate(sides)])
    return Sample(count_by(np.unique(keys, return_inverse=True)[1], cells, 2 * _CELLS), a.options)


def _difference(value: Statistic, counts: Array) -> Array:
    difference: Array = _of_tables(value, counts[..., :_CELLS]) - _of_tables(value, counts[..., _CELLS:])
    return difference


def _of_tables(value: Statistic, counts: Array) -> Array:
    return value(counts.reshape(*counts.shape[:-1], len(LEVELS), len(LEVELS)))


def _dialogues(counts: Array) -> Array:
    number: Array = counts.sum(-1)
    return number


def _numbers(cells: Any) -> NDArray[np.int64]:
    return np.array([int(cell) for cell in cells], dtype=np.int64)
