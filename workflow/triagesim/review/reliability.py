"""How far raters agree: Cohen's kappa, Fleiss' kappa, Krippendorff's alpha and Gwet's AC1, with bootstrap intervals.

Each measure is a function of sums over items, so that items can be drawn anew with all their answers
(`triagesim.bootstrap.draw`); it gives NaN where it is undefined. Answers are categories 1 … k.

Sources: J. Cohen, Educ. Psychol. Meas. 20 (1960) 37–46, with weights Psychol. Bull. 70 (1968) 213–220; J. L. Fleiss,
Psychol. Bull. 76 (1971) 378–382, for unequal numbers of raters K. L. Gwet, Handbook of Inter-Rater Reliability (4th
ed., 2014) ch. 2–3; K. Krippendorff, Content Analysis (2nd ed., 2004) ch. 11; K. L. Gwet, Br. J. Math. Stat. Psychol. 61
(2008) 29–48.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from triagesim.bootstrap import ALIKE, CONFIDENCE, DRAWS, Array, divide, draw, percentiles, ratio
from triagesim.estimates import FEW, rounded

Metric = Literal["nominal", "ordinal"]


class Agreement(NamedTuple):
    """A measure with its interval; None where there is none, and `note` says why.

    Attributes:
        items: items that it is over; `answers`: their answers, or pairs of them.
    """

    value: float | None
    low: float | None
    high: float | None
    items: int
    answers: int
    note: str


def fleiss(counts: Array, k: int, seed: int = 0) -> Agreement:
    """Fleiss' kappa of any number of raters.

    Args:
        counts: items × k: how many raters gave each category; an item with one answer counts for chance alone.
    """
    return _of_raters(counts, k, lambda shares: (shares**2).sum(-1), seed, None)


def ac1(counts: Array, k: int, seed: int = 0, clusters: Sequence[int] | None = None) -> Agreement:
    """Gwet's AC1, which stays meaningful where nearly all answers are alike; arguments as `fleiss`.

    Args:
        clusters: the cluster of each item, 0 …, where what is drawn anew is not items but whole clusters of them.
    """
    return _of_raters(counts, k, lambda shares: (shares * (1 - shares)).sum(-1) / (k - 1), seed, clusters)


def krippendorff(counts: Array, k: int, metric: Metric, seed: int = 0) -> Agreement:
    """Krippendorff's alpha for any number of raters and missing answers; arguments as `fleiss`."""
    paired = counts[counts.sum(-1) >= 2]
    raters = paired.sum(-1)[:, None, None]
    own = paired[:, :, None] * paired[:, None, :] - paired[:, :, None] * np.eye(k)
    coincidences = (own / (raters - 1)).reshape(len(paired), k * k)

    def alpha(sums: Array) -> Array:
        table = sums.reshape(*sums.shape[:-1], k, k)
        totals = table.sum(-1)
        distance = _distance(totals, metric)
        observed = (table * distance).sum((-2, -1))
        expected = (totals[..., :, None] * totals[..., None, :] * distance).sum((-2, -1))
        value: Array = 1 - (totals.sum(-1) - 1) * divide(observed, expected)
        return value

    return _estimate(coincidences, alpha, int(paired.sum()), seed, "all answers are alike: nothing to disagree on")


def cohen(pairs: Sequence[Sequence[tuple[int, int]]], k: int, power: int, seed: int = 0) -> Agreement:
    """Cohen's kappa of pairs of answers, with weights of disagreement |i - j| ** power: 0 none, 1 linear, 2 quadratic.

    Args:
        pairs: by item, the pairs (first, second rater) of answers 1 … k.
    """
    tables = np.zeros((len(pairs), k, k))
    for item, found in enumerate(pairs):
        for first, second in found:
            tables[item, first - 1, second - 1] += 1
    rows, columns = np.meshgrid(np.arange(k), np.arange(k), indexing="ij")
    weights = abs(rows - columns) ** power if power else (rows != columns).astype(float)

    def kappa(sums: Array) -> Array:
        table = sums.reshape(*sums.shape[:-1], k, k)
        observed = (table * weights).sum((-2, -1)) * table.sum((-2, -1))
        by_chance = (table.sum(-1)[..., :, None] * table.sum(-2)[..., None, :] * weights).sum((-2, -1))
        return 1 - divide(observed, by_chance)

    answers = sum(map(len, pairs))
    flat = tables.reshape(len(pairs), k * k)
    return _estimate(flat, kappa, answers, seed, "one answer on both sides: kappa is undefined")


def same(pairs: Sequence[Sequence[tuple[int, int]]], seed: int = 0) -> Agreement:
    """The share of pairs that are the same; arguments as `cohen`."""
    counts = np.array([[sum(a == b for a, b in found), len(found)] for found in pairs], dtype=float).reshape(-1, 2)
    return _estimate(counts, ratio, int(counts[:, 1].sum()), seed, "")


def _of_raters(
    counts: Array, k: int, by_chance: Callable[[Array], Array], seed: int, clusters: Sequence[int] | None
) -> Agreement:
    """A coefficient (pa - pe) / (1 - pe): pa over items with two answers or more, pe from the shares of all items."""
    kept = counts.sum(-1) >= 1
    answered = counts[kept]
    raters = answered.sum(-1)
    pairs = (answered * (answered - 1)).sum(-1)
    agreed = divide(pairs, raters * (raters - 1), empty=0)
    sums_of = np.column_stack([agreed, raters >= 2, np.ones(len(answered)), answered / raters[:, None]])

    def coefficient(sums: Array) -> Array:
        observed = divide(sums[..., 0], sums[..., 1])
        expected = by_chance(divide(sums[..., 3:], sums[..., 2:3]))
        return divide(observed - expected, 1 - expected)

    answers = int(raters[raters >= 2].sum())
    if clusters is not None:
        own = np.asarray(clusters, dtype=int)[kept]
        sums_of = np.array([sums_of[own == cluster].sum(0) for cluster in np.unique(own)]).reshape(-1, 3 + k)
    found = _estimate(sums_of, coefficient, answers, seed, "all answers are alike: chance alone agrees wholly")
    return found if clusters is not None else found._replace(items=int((raters >= 2).sum()))


def _distance(totals: Array, metric: Metric) -> Array:
    """The squared distance of two categories: 1 for different ones, or by how many answers lie between them."""
    k = totals.shape[-1]
    if metric == "nominal":
        return 1 - np.eye(k)
    running = np.cumsum(totals, -1)
    middle = running - totals / 2
    distance: Array = (middle[..., :, None] - middle[..., None, :]) ** 2
    return distance


def _estimate(sums_of: Array, value: Callable[[Array], Array], answers: int, seed: int, undefined: str) -> Agreement:
    items = len(sums_of)
    if not answers:
        return Agreement(None, None, None, items, answers, "no two answers to the same item")
    found = float(value(sums_of.sum(0)))
    if np.isnan(found):
        return Agreement(None, None, None, items, answers, undefined)
    low, high, lost = percentiles(draw(sums_of, DRAWS, seed), value, CONFIDENCE).where_drawn_apart()
    notes = [f"{lost} of {DRAWS} draws undefined"] if lost else []
    if low is None:
        notes = [ALIKE]
    notes += [f"fewer than {FEW} dialogues"] if items < FEW else []
    return Agreement(rounded(found), rounded(low), rounded(high), items, answers, "; ".join(notes))
