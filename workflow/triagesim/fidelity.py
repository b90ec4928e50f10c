"""How like talk at a triage desk a pairing's dialogues are: measures of language against bands, with intervals."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from triagesim.bootstrap import ALIKE, Array, draw, percentiles, ratio, wilson
from triagesim.config import Score
from triagesim.estimates import FEW, RARE, WARNING, rounded
from triagesim.leaks import KINDS
from triagesim.resources import load_yaml

COLUMNS = ("pairing", "measure", "value", "low", "high", "n", "reference_low", "reference_high", "note")

Row = Mapping[str, Any]


class Measure(NamedTuple):
    """A ratio of two totals over dialogues: `top` / `bottom`, one number each a dialogue.

    Attributes:
        share: whether each dialogue either counts or doesn't, so that 0 and 1 have Wilson's interval.
        band: values to read it against.
        notes: what a reader must know.
    """

    name: str
    top: array[float]
    bottom: array[float]
    share: bool = False
    band: tuple[float | None, float | None] = (None, None)
    notes: tuple[str, ...] = ()


def fidelity(pairing: str, rows: Sequence[Row], duplicates: set[str], options: Score) -> Iterator[list[Any]]:
    """The table's rows of one pairing (`COLUMNS`).

    Args:
        rows: finished dialogues as `triagesim.describing.read_language` gives them.
        duplicates: the episodes that have a near-duplicate.
    """
    measures = [*_of_language(rows), *_by_level(rows), *_of_leaks(rows), _of_duplicates(rows, duplicates)]
    clusters = np.unique([row["cluster"] for row in rows], return_inverse=True)[1]
    draws = draw(_sums(measures, clusters), options.bootstrap, options.seed)
    for number, measure in enumerate(measures):
        yield [pairing, *_cells(measure, clusters, draws[:, 2 * number : 2 * number + 2], options.confidence)]


def _of_language(rows: Sequence[Row]) -> Iterator[Measure]:
    for name, entry in load_yaml("fidelity.yaml")["measures"].items():
        yield _measure(name, entry, rows)
        if "warn" in entry:
            low, high = entry["warn"]
            outside = array("d", [not low <= row[entry["sum"]] <= high for row in rows])
            note = f"dialogues with fewer than {low} or more than {high}"
            yield Measure(f"{name}_outside", outside, _ones(rows), share=True, notes=(note,))


def _measure(name: str, entry: Mapping[str, Any], rows: Sequence[Row]) -> Measure:
    """A measure of `fidelity.yaml` over dialogues; one that has no value counts neither above nor below."""
    times, per = entry.get("times", 1), entry.get("per")
    tops = [row[entry["sum"]] for row in rows]
    bottoms = [row[per] for row in rows] if per else [1.0] * len(rows)
    known = [top is not None and bottom is not None for top, bottom in zip(tops, bottoms, strict=True)]
    band = tuple(entry["reference"]) if "reference" in entry else (None, None)
    return Measure(
        name,
        array("d", [times * top if there else 0.0 for top, there in zip(tops, known, strict=True)]),
        array("d", [bottom if there else 0.0 for bottom, there in zip(bottoms, known, strict=True)]),
        band=band,
        notes=tuple(filter(None, [entry.get("note")])),
    )


def _by_level(rows: Sequence[Row]) -> Iterator[Measure]:
    """Measures of length at each level of the ground truth; the band isn't for the most urgent one."""
    data = load_yaml("fidelity.yaml")
    levels = sorted({row["acuity"] for row in rows if row["acuity"] is not None})
    for name, entry in data["measures"].items():
        if not entry.get("by_level"):
            continue
        means = {level: _mean(row[entry["sum"]] for row in rows if row["acuity"] == level) for level in levels}
        for level in levels:
            tops = array("d", [row[entry["sum"]] if row["acuity"] == level else 0.0 for row in rows])
            first = level == data["shortest_level"]
            notes = [f"only level {level}"]
            if first:
                others = [mean for other, mean in means.items() if other != level]
                shortest = not others or means[level] < min(others)
                notes.append("expected the shortest, and is" if shortest else "expected the shortest, and is not")
            band = (None, None) if first else tuple(entry["reference"])
            bottoms = array("d", [row["acuity"] == level for row in rows])
            yield Measure(f"{name}_level_{level}", tops, bottoms, band=band, notes=tuple(notes))


def _of_leaks(rows: Sequence[Row]) -> Iterator[Measure]:
    for kind in KINDS:
        leaking = array("d", [(row[f"leaks_{kind}"] or 0) > 0 for row in rows])
        note = "dialogues with such a line; the lines are in leaks.csv"
        yield Measure(f"leaks_{kind}", leaking, _ones(rows), share=True, notes=(note,))


def _of_duplicates(rows: Sequence[Row], duplicates: set[str]) -> Measure:
    rule = load_yaml("fidelity.yaml")["duplicates"]
    note = f"dialogues that share {rule['least']:.0%} of their runs of {rule['run']} words with another"
    twins = array("d", [row["episode_id"] in duplicates for row in rows])
    return Measure("near_duplicates", twins, _ones(rows), share=True, notes=(note,))


def _ones(rows: Sequence[Row]) -> array[float]:
    return array("d", [1.0]) * len(rows)


def _sums(measures: Sequence[Measure], clusters: NDArray[np.int64]) -> Array:
    """Clusters × (top, bottom) of each measure in turn."""
    sums = np.zeros((int(clusters.max()) + 1, 2 * len(measures)))
    for number, measure in enumerate(measures):
        np.add.at(sums[:, 2 * number], clusters, measure.top)
        np.add.at(sums[:, 2 * number + 1], clusters, measure.bottom)
    return sums


def _cells(measure: Measure, clusters: NDArray[np.int64], drawn: Array, confidence: float) -> list[Any]:
    """The measure's cells: name, value, interval, n, band, note."""
    counted = np.array(measure.bottom) > 0
    cases = len(np.unique(clusters[counted]))
    notes = list(measure.notes)
    if not cases:
        return [measure.name, None, None, None, 0, *measure.band, "; ".join([*notes, "nothing to measure"])]
    value = sum(measure.top) / sum(measure.bottom)
    low, high, _ = percentiles(drawn, ratio, confidence).where_drawn_apart()
    if measure.share and (cases < FEW or min(value, 1 - value) * cases < RARE):
        # As `triagesim.estimates.Sample` does: counted as one dialogue a case.
        low, high = wilson(value, cases, confidence)
        notes.append("Wilson")
    elif low is None:
        notes.append(ALIKE)
    notes += _against(measure.band, value)
    if cases < FEW:
        notes.append(WARNING)
    return [
        measure.name,
        rounded(value),
        rounded(low),
        rounded(high),
        int(counted.sum()),
        *measure.band,
        "; ".join(notes),
    ]


def _against(band: tuple[float | None, float | None], value: float) -> list[str]:
    low, high = band
    if low is not None and value < low:
        return ["below the band"]
    return ["above the band"] if high is not None and value > high else []


def _mean(values: Iterator[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)
