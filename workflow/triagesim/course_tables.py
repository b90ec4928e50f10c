"""The tables of a dialogue's course: what each further question gained, and how the level moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triagesim.agreement import LEVELS, NOBODY
from triagesim.agreement_tables import Graded
from triagesim.bootstrap import Array, ratio
from triagesim.estimates import Estimate, Sample, count_by, rounded
from triagesim.score_rows import STEP

ECONOMY = ("pairing", "turn", "undecided", "accuracy", "mean_abs_error", "n")
BEHAVIOUR = ("pairing", "measure", "value", "low", "high", "n", "note")

Numbers = NDArray[np.int64]


def economy(pairing: str, graded: Graded) -> Iterator[list[Any]]:
    """The rows of `economy.csv` of a pairing: a row for every number of replies, up to the longest dialogue's."""
    held, lengths = _held(graded), _lengths(graded)
    for turn in range(held.shape[1]):
        known = held[:, turn] > 0
        error = abs(held[:, turn] - graded.truth)[known]
        if known.any():
            undecided = float((lengths[known] > turn).mean())
            figures = [undecided, float((error == 0).mean()), float(error.mean())]
            yield [pairing, turn, *map(rounded, figures), int(known.sum())]


def behaviour(pairing: str, graded: Graded) -> Iterator[list[Any]]:
    """The rows of `behaviour.csv` of a pairing; what each measure is stands in `docs/metrics.md`."""
    held = _held(graded)
    before, after, truth = held[:, :-1], held[:, 1:], graded.truth[:, None]
    flips = (before != after) & (before > 0)
    changes, one = flips.sum(axis=1), np.ones_like(graded.truth)
    wrong = (graded.final != graded.truth).astype(np.int64)
    ever = (held == truth).any(axis=1)
    ended = np.array([reason == "nurse_end" for reason in graded.scores["end_reason"]], dtype=np.int64)
    no_change, unended = "no level was changed", "no graded dialogue that the nurse ended"
    shares: dict[str, tuple[Numbers, Numbers, str]] = {
        "flip_to_right_rate": ((flips & (after == truth)).sum(axis=1), changes, no_change),
        "flip_to_wrong_rate": ((flips & (before == truth)).sum(axis=1), changes, no_change),
        "unchanged_rate": ((changes == 0).astype(np.int64), one, NOBODY),
        "never_right_rate": ((~ever).astype(np.int64), one, NOBODY),
        "lost_right_rate": ((ever & (wrong == 1)).astype(np.int64), one, NOBODY),
        "premature_closure_rate": (wrong * ended, ended, unended),
    }
    shares["repeat_agreement"] = (*_repeats(graded), "one dialogue a case")
    yield _row(pairing, "flips_mean", _mean(graded, changes, one, NOBODY, share=False))
    for name, (part, whole, undefined) in shares.items():
        yield _row(pairing, name, _mean(graded, part, whole, undefined, share=True))
    yield _row(pairing, "first_correct_turn_median", _median(graded))


def _repeats(graded: Graded) -> tuple[Numbers, Numbers]:
    """Pairs of dialogues of one case with the same final level, and all its pairs, at the first dialogue of each."""
    _, first, case = np.unique(np.array(graded.scores["case_id"], dtype=str), return_index=True, return_inverse=True)
    levels = count_by(case, graded.final, max(LEVELS) + 1).astype(np.int64)
    alike, every = (counts * (counts - 1) // 2 for counts in (levels, levels.sum(axis=1, keepdims=True)))
    same, pairs = np.zeros_like(graded.truth), np.zeros_like(graded.truth)
    same[first], pairs[first] = alike.sum(axis=1), every.sum(axis=1)
    return same, pairs


def _mean(graded: Graded, part: Numbers, whole: Numbers, undefined: str, *, share: bool) -> Estimate:
    """The ratio of two sums over the dialogues."""
    number = int(graded.clusters.max(initial=-1)) + 1
    columns = [np.bincount(graded.clusters, weights=values, minlength=number) for values in (part, whole)]
    sample = Sample(np.stack(columns, axis=1), graded.options)
    return sample.estimate(ratio, lambda c: c[..., 1], undefined, share=share)


def _median(graded: Graded) -> Estimate:
    """The median turn in which the nurse first stated the right level, over the dialogues in which it did."""
    cells = graded.scores["first_correct_turn"]
    stated = np.array([cell != "" for cell in cells], dtype=bool)
    turns = np.array([int(cell) for cell in cells if cell != ""], dtype=np.int64)
    counts = count_by(graded.clusters[stated], turns, int(turns.max(initial=0)) + 1)
    sample = Sample(counts, graded.options)
    return sample.estimate(_median_of_counts, lambda c: c.sum(-1), "the right level was never stated")


def _median_of_counts(counts: Array) -> Array:
    """The median of the values 0, 1, 2 … that occur so often; NaN if none does."""
    below, number = counts.cumsum(axis=-1), counts.sum(axis=-1)
    lower, upper = ((below >= part[..., None]).argmax(axis=-1) for part in (number / 2, number / 2 + 0.5))
    return np.where(number > 0, (lower + upper) / 2, np.nan)


def _held(graded: Graded) -> Numbers:
    """The level held after each number of replies, dialogues × turns, kept to the end once a dialogue is over.

    0 where none was held yet.
    """
    paths = [[int(level) for level in cell.split(STEP)] if cell else [] for cell in graded.scores["levels"]]
    longest = max(map(len, paths), default=0)
    rows = [path + [path[-1] if path else 0] * (longest - len(path)) for path in paths]
    return np.array(rows, dtype=np.int64).reshape(len(paths), longest)


def _lengths(graded: Graded) -> Numbers:
    """The number of replies in each dialogue."""
    return np.array([int(cell) if cell else 0 for cell in graded.scores["num_turns"]], dtype=np.int64)


def _row(pairing: str, measure: str, found: Estimate) -> list[Any]:
    return [pairing, measure, found.value, found.low, found.high, found.n, found.note]
