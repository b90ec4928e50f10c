"""Intervals: whole cases drawn anew with all their dialogues (percentiles), and Wilson's for small shares."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Draws for an interval, and its share, where the configuration (`score`) has no say.
DRAWS, CONFIDENCE = 2000, 0.95
#: What a table notes where `Interval.where_drawn_apart` left no ends.
ALIKE = "all draws alike: no interval"
#: At most so many numbers are drawn at once: 32 MB.
_BLOCK = 4_000_000


class Interval(NamedTuple):
    """The ends of an interval, None where there is none; `undefined`: draws without a defined value, left out."""

    low: float | None
    high: float | None
    undefined: int = 0

    def where_drawn_apart(self) -> Interval:
        """This one, without ends where both are the same: draws that are all alike don't say how sure a figure is."""
        return Interval(None, None, self.undefined) if self.low == self.high else self


def draw(clusters: Array, draws: int, seed: int) -> Array:
    """What clusters that are drawn with replacement, as many as there are, add up to: draws × counts.

    Clusters with the same counts are drawn together, from a multinomial distribution: the same in distribution, and a
    thousand dialogues cost what their few different rows cost. The order of the clusters doesn't matter.

    Args:
        clusters: clusters × counts.
    """
    kinds, copies = np.unique(clusters, axis=0, return_counts=True)
    number = len(clusters)
    random = np.random.default_rng(seed)
    step = max(1, _BLOCK // len(kinds))
    sums = [
        random.multinomial(number, copies / number, size=min(step, draws - start)) @ kinds
        for start in range(0, draws, step)
    ]
    return np.concatenate(sums)


def percentiles(drawn: Array, value: Callable[[Array], Array], confidence: float) -> Interval:
    """The percentile interval of a measure over what `draw` gave; undefined draws are left out and counted."""
    values = value(drawn)
    defined = values[~np.isnan(values)]
    undefined = len(values) - len(defined)
    if not len(defined):
        return Interval(None, None, undefined)
    low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high), undefined)


def divide(top: NDArray[Any], bottom: NDArray[Any], empty: float = np.nan) -> Array:
    """The ratio; `empty` where there is nothing to divide by."""
    shape = np.broadcast_shapes(np.shape(top), np.shape(bottom))
    divided: Array = np.divide(top, bottom, out=np.full(shape, empty, dtype=float), where=np.asarray(bottom) > 0)
    return divided


def ratio(sums: Array) -> Array:
    """Of sums (… × (top, bottom)) the one over the other, NaN where nothing is below."""
    return divide(sums[..., 0], sums[..., 1])


def wilson(share: float, number: int, confidence: float) -> tuple[float, float]:
    """Wilson's score interval of a share of `number` (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927, 209–212)."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    spread = 1 + z * z / number
    middle = (share + z * z / (2 * number)) / spread
    half = z / spread * math.sqrt(share * (1 - share) / number + z * z / (4 * number * number))
    return max(0.0, middle - half), min(1.0, middle + half)
