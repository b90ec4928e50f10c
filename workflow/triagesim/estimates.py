"""An estimate: a value with its interval, how much it rests on, and what must be said of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from triagesim.bootstrap import ALIKE, Array, draw, percentiles, wilson
from triagesim.config import Score

#: Below so many cases an interval from drawn cases is too narrow.
FEW = 30
WARNING = f"fewer than {FEW} cases"
#: A share with fewer than so many cases on one of its sides isn't left to the bootstrap either.
RARE = 5


class Estimate(NamedTuple):
    """A row's figures; None where there is none, and `note` says why.

    Attributes:
        n: dialogues; `cases`: clusters that they are of (patients, with `score.cluster: subject`).
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    cases: int
    note: str


class Sample:
    """Dialogues as counts by cluster: what belongs together when it is drawn anew.

    Attributes:
        clusters: clusters × counts; a cluster without any count is left out.
    """

    def __init__(self, clusters: Array, options: Score) -> None:
        self.clusters = clusters[clusters.any(axis=1)]
        self._options = options

    @cached_property
    def _drawn(self) -> Array:
        return draw(self.clusters, self._options.bootstrap, self._options.seed)

    def estimate(
        self,
        value: Callable[[Array], Array],
        number: Callable[[Array], Array],
        undefined: str,
        *,
        share: bool = False,
    ) -> Estimate:
        """Estimate a measure.

        A share of few cases, or with few on one of its sides, has Wilson's interval, counted as one dialogue a case;
        all else has percentiles of the bootstrap.

        Args:
            value: of counts (… × counts), NaN where it is undefined.
            number: how many dialogues it is over, of counts.
            undefined: why it can be undefined.
        """
        total = self.clusters.sum(axis=0)
        found, n = float(value(total)), int(number(total))
        cases = int((number(self.clusters) > 0).sum())
        if np.isnan(found):
            return Estimate(None, None, None, n, cases, undefined)
        few = [WARNING] if cases < FEW else []
        if share and (few or min(found, 1 - found) * cases < RARE):
            lower, upper = wilson(found, cases, self._options.confidence)
            return Estimate(rounded(found), rounded(lower), rounded(upper), n, cases, "; ".join(["Wilson", *few]))
        low, high, lost = percentiles(self._drawn, value, self._options.confidence).where_drawn_apart()
        notes = [f"{lost} of {self._options.bootstrap} draws undefined"] if lost else []
        if low is None:
            notes = [ALIKE]
        return Estimate(rounded(found), rounded(low), rounded(high), n, cases, "; ".join([*notes, *few]))


def count_by(clusters: NDArray[np.int64], columns: NDArray[np.int64], width: int) -> Array:
    """Clusters × `width`: how often each column occurs in each cluster (numbers from 0)."""
    number = int(clusters.max(initial=-1)) + 1
    counts = np.bincount(clusters * width + columns, minlength=number * width)
    return counts.reshape(number, width).astype(np.float64)


def rounded(value: float | None) -> float | None:
    """As it is written in a table, None as nothing; never a negative nought."""
    return None if value is None else round(float(value), 6) + 0.0
