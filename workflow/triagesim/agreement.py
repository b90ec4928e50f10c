"""Measures of agreement on tables of counts: true level by row, final level by column, both from 1 to 5.

Every function takes one 5 × 5 table or a stack of them (… × 5 × 5), as the bootstrap draws it, and gives a number for
each; NaN where it is undefined. Level 1 is the most urgent, so a final level above the true one is under-triage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from triagesim.bootstrap import Array, divide

Statistic = Callable[[Array], Array]

LEVELS = (1, 2, 3, 4, 5)
#: Why most measures have no value, if they have none.
NOBODY = "no graded dialogue"
_NO_KAPPA = "one class on both sides: kappa is undefined"

_TRUE, _FINAL = np.meshgrid(LEVELS, LEVELS, indexing="ij")
_ERROR = _FINAL - _TRUE
#: Levels 1 and 2: the "high acuity" of the meta-analyses of triage by language models.
_HIGH = 2


class Measure(NamedTuple):
    """A measure of a table.

    Attributes:
        number: how many dialogues it is over.
        undefined: why it can have no value though there are dialogues.
        share: whether it is a share of these dialogues.
    """

    value: Statistic
    number: Statistic
    undefined: str
    share: bool = False


def weighted_kappa(table: Array, power: int) -> Array:
    """Cohen's kappa with weights of disagreement |i - j| ** power on the five levels: 1 linear, 2 quadratic.

    NaN where true and final levels are all one and the same level: then chance alone agrees wholly (0 / 0).
    """
    weights = abs(_ERROR) ** power
    observed = (table * weights).sum((-2, -1)) * table.sum((-2, -1))
    by_chance = (table.sum(-1)[..., :, None] * table.sum(-2)[..., None, :] * weights).sum((-2, -1))
    return 1 - divide(observed, by_chance)


def macro_f1(table: Array) -> Array:
    """The mean F1 of the levels that occur as a true or as a final level."""
    right = np.diagonal(table, axis1=-2, axis2=-1)
    both = table.sum(-1) + table.sum(-2)
    return divide(divide(2 * right, both, empty=0).sum(-1), (both > 0).sum(-1))


def reweighted_accuracy(table: Array, prevalence: Sequence[float]) -> Array:
    """Accuracy as if the levels had these shares; NaN if a level with a share has no dialogue."""
    shares = np.asarray(prevalence)
    by_level = divide(np.diagonal(table, axis1=-2, axis2=-1), table.sum(-1))
    value: Array = np.where(shares > 0, shares * by_level, 0).sum(-1) / shares.sum()
    return value


def reweighted(prevalence: Sequence[float] | None) -> Measure:
    """Accuracy as if the levels had these shares, as a measure; undefined without them."""
    if prevalence is None:
        given = "no reference prevalence is given (score.prevalence)"
        return Measure(lambda table: np.full(table.shape[:-2], np.nan), total, given)
    missing = "a level with a share in score.prevalence has no graded dialogue"
    return Measure(partial(reweighted_accuracy, prevalence=prevalence), total, missing)


def _of_always(value: Statistic, level: int, table: Array) -> Array:
    """A measure of the table of a nurse that gives every case this level."""
    constant = np.zeros_like(table)
    constant[..., level - 1] = table.sum(-1)
    return value(constant)


def total(table: Array) -> Array:
    """How many dialogues a table counts."""
    number: Array = table.sum((-2, -1))
    return number


def _mean(top: NDArray[Any], among: NDArray[Any] | None = None, undefined: str = NOBODY) -> Measure:
    """The mean of what a dialogue of each cell adds, `top`, over the cells `among`, all unless given."""
    cells = np.ones((5, 5)) if among is None else among.astype(float)
    share = set(np.unique(top)) <= {0, 1}
    return Measure(
        lambda table: divide(total(table * (top * cells)), total(table * cells)),
        lambda table: total(table * cells),
        undefined,
        share,
    )


def _kappa(power: int) -> Measure:
    return Measure(partial(weighted_kappa, power=power), total, _NO_KAPPA)


MEASURES: dict[str, Measure] = {
    "accuracy": _mean(_ERROR == 0),
    "within_one": _mean(abs(_ERROR) <= 1),
    "mae": _mean(abs(_ERROR)),
    "signed_error": _mean(_ERROR),
    "qwk": _kappa(2),
    "lwk": _kappa(1),
    "macro_f1": Measure(macro_f1, total, NOBODY),
    "over": _mean(_ERROR < 0),
    "under": _mean(_ERROR > 0),
    "over_possible": _mean(_ERROR < 0, _TRUE > 1, "no true level above 1: over-triage is impossible"),
    "under_possible": _mean(_ERROR > 0, _TRUE < 5, "no true level below 5: under-triage is impossible"),
    "severe_under": _mean((_TRUE <= _HIGH) & (_FINAL >= 4)),
    "critical_miss": _mean(_FINAL > _HIGH, _TRUE == 1, "no true level 1"),
    "sensitivity_high": _mean(_FINAL <= _HIGH, _TRUE <= _HIGH, "no true level 1 or 2"),
    "specificity_high": _mean(_FINAL > _HIGH, _TRUE > _HIGH, "no true level 3, 4 or 5"),
    "ppv_high": _mean(_TRUE <= _HIGH, _FINAL <= _HIGH, "no final level 1 or 2"),
    "npv_high": _mean(_TRUE > _HIGH, _FINAL > _HIGH, "no final level 3, 4 or 5"),
}

#: What a nurse would reach that gives every case one level.
BASELINES: dict[str, Measure] = {
    f"{name}_always_{level}": MEASURES[name]._replace(value=partial(_of_always, MEASURES[name].value, level))
    for name in ("accuracy", "qwk")
    for level in LEVELS
}
