"""Whether personas do what they should, over many dialogues: effects of traits with intervals, and a word on each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from triagesim.bootstrap import Array, Interval, draw, percentiles
from triagesim.config import Score
from triagesim.estimates import FEW, WARNING, rounded
from triagesim.language import TRAITS
from triagesim.resources import load_yaml

COLUMNS = (
    *("pairing", "trait", "contrast", "measure", "effect", "low", "high", "n", "expected", "verdict"),
    *("mean_from", "mean_to", "hedges_g", "g_low", "g_high", "note"),
)

Row = Mapping[str, Any]


class Contrast(NamedTuple):
    """One row of `resources/contrasts.yaml` with the dialogues that it is about.

    Attributes:
        groups: 0 (`from`) or 1 (`to`) of each dialogue.
        values: its measure.
    """

    entry: Mapping[str, Any]
    rows: list[Row]
    groups: list[int]
    values: list[float]


def trait_effects(pairing: str, rows: Sequence[Row], options: Score) -> Iterator[list[Any]]:
    """The table's rows of one pairing (`COLUMNS`).

    Args:
        rows: finished dialogues as `triagesim.describing.read_language` gives them.
    """
    contrasts = [_contrast(entry, rows) for entry in load_yaml("contrasts.yaml")["contrasts"]]
    sums = _sums(contrasts, {name: place for place, name in enumerate(sorted({row["cluster"] for row in rows}))})
    draws = draw(sums, options.bootstrap, options.seed)
    for number, contrast in enumerate(contrasts):
        part = slice(6 * number, 6 * number + 6)
        yield [pairing, *_cells(contrast, sums[:, part].sum(axis=0), draws[:, part], options.confidence)]


def _contrast(entry: Mapping[str, Any], rows: Sequence[Row]) -> Contrast:
    measure = load_yaml("contrasts.yaml")["measures"][entry["measure"]]
    sides = {entry["from"]: 0, entry["to"]: 1}
    found = [
        (row, value) for row in rows if row[entry["trait"]] in sides and (value := _value(measure, row)) is not None
    ]
    groups = [sides[row[entry["trait"]]] for row, _ in found]
    return Contrast(entry, [row for row, _ in found], groups, [value for _, value in found])


def _value(measure: Mapping[str, Any], row: Row) -> float | None:
    """A dialogue's value; None if it has none."""
    names = [measure["sum"]] if isinstance(measure["sum"], str) else measure["sum"]
    parts = [row[name] for name in names]
    per = row[measure["per"]] if "per" in measure else 1
    return None if None in parts or not per else measure.get("times", 1) * sum(parts) / per


def _sums(contrasts: Sequence[Contrast], places: Mapping[str, int]) -> Array:
    """Clusters × (number, sum, sum of squares of the first group, then of the second) of each contrast in turn."""
    sums = np.zeros((len(places), 6 * len(contrasts)))
    for number, contrast in enumerate(contrasts):
        for row, group, value in zip(contrast.rows, contrast.groups, contrast.values, strict=True):
            start = 6 * number + 3 * group
            sums[places[row["cluster"]], start : start + 3] += (1, value, value**2)
    return sums


def _cells(contrast: Contrast, totals: Array, draws: Array, confidence: float) -> list[Any]:
    """Trait, contrast and measure, effect and interval, what was expected and what is to be said, then the rest."""
    entry = contrast.entry
    effect, g = float(_difference(totals)), float(hedges_g(totals))
    interval, of_g = (percentiles(draws, value, confidence) for value in (_difference, hedges_g))
    means = [total / count if count else math.nan for count, total in (totals[0:2], totals[3:5])]
    label = f"{entry['to']} against {entry['from']}"
    return [
        *(entry["trait"], label, entry["measure"]),
        *map(_written, (effect, *interval[:2])),
        len(contrast.values),
        entry["expected"],
        _verdict(contrast, interval),
        *map(_written, (*means, g, *(of_g[:2] if math.isfinite(g) else (None, None)))),
        "; ".join(_notes(contrast)),
    ]


def _written(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else rounded(value)


def _difference(sums: Array) -> Array:
    """Second group's mean minus the first's; NaN where a group is empty."""
    with np.errstate(divide="ignore", invalid="ignore"):
        difference: Array = sums[..., 4] / sums[..., 3] - sums[..., 1] / sums[..., 0]
    return np.where((sums[..., 0] > 0) & (sums[..., 3] > 0), difference, np.nan)


def hedges_g(sums: Array) -> Array:
    """Standardised difference of two groups' means, second minus first, corrected for small groups (Hedges 1981).

    Args:
        sums: … × (number, sum, sum of squares of the first group, then of the second).

    Returns:
        One for each leading index; NaN where a group has fewer than two values or nothing varies within the groups.
    """
    n, total, squares = sums[..., 0::3], sums[..., 1::3], sums[..., 2::3]
    with np.errstate(divide="ignore", invalid="ignore"):
        within = (squares - total**2 / n).sum(axis=-1)
        # What rounding leaves of no variance at all isn't one.
        within = np.where(within > 1e-9 * squares.sum(axis=-1), within, np.nan)
        free = n.sum(axis=-1) - 2
        g = _difference(sums) / np.sqrt(within / free) * (1 - 3 / (4 * free - 1))
    return np.where((n >= 2).all(axis=-1), g, np.nan)


def _verdict(contrast: Contrast, interval: Interval) -> str:
    """What the interval says to what was expected.

    For `none` an interval within the margin is as expected; one that merely includes 0 only measured nothing.
    """
    low, high, _ = interval
    if low is None or high is None or _too_few(contrast):
        return "too few"
    expected = contrast.entry["expected"]
    margin = contrast.entry.get("margin", 0)
    if expected == "none" and -margin <= low <= high <= margin:
        return "as expected"
    if low <= 0 <= high:
        return "no measurable effect"
    return "as expected" if expected == ("higher" if low > 0 else "lower") else "opposite to expected"


def _too_few(contrast: Contrast) -> bool:
    least = load_yaml("contrasts.yaml")["too_few"]
    for side in (0, 1):
        cases = [row["cluster"] for row, group in zip(contrast.rows, contrast.groups, strict=True) if group == side]
        if len(cases) < least["dialogues"] or len(set(cases)) < least["cases"]:
            return True
    return False


def _notes(contrast: Contrast) -> Iterator[str]:
    if _too_few(contrast):
        counts = Counter(contrast.groups)
        yield f"{counts[1]} and {counts[0]} dialogues"
        return
    if len({row["cluster"] for row in contrast.rows}) < FEW:
        yield WARNING
    tied = load_yaml("contrasts.yaml")["tied"]
    others = [name for name in TRAITS if name != contrast.entry["trait"]]
    strengths = {name: cramers_v(contrast.groups, [row[name] for row in contrast.rows]) for name in others}
    strong = sorted((name for name in others if strengths[name] >= tied), key=lambda name: (-strengths[name], name))
    if strong:
        yield f"goes with {', '.join(strong[:3])}: whose effect it is can't be told"


def cramers_v(one: Sequence[Any], other: Sequence[Any]) -> float:
    """How closely two groupings of the same things go together, 0 … 1 (Cramér 1946); 0 if either has one group only."""
    total = len(one)
    rows, columns, cells = Counter(one), Counter(other), Counter(zip(one, other, strict=True))
    if min(len(rows), len(columns)) < 2:
        return 0.0
    square = sum(count**2 / (rows[row] * columns[column]) for (row, column), count in cells.items()) - 1
    return math.sqrt(max(0.0, total * square / (total * (min(len(rows), len(columns)) - 1))))
