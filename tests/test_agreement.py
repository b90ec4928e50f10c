"""Measures of agreement and their intervals against independent computations, and what is said where there is none."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triagesim.agreement import BASELINES, LEVELS, MEASURES, NOBODY, macro_f1, reweighted, weighted_kappa
from triagesim.bootstrap import draw, percentiles, wilson
from triagesim.config import Score
from triagesim.estimates import Estimate, Sample

OPTIONS = Score()
PAIRS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=40)

WIDE = [[8, 3, 1, 0, 0], [2, 15, 6, 1, 0], [0, 5, 21, 4, 1], [0, 1, 6, 12, 2], [0, 0, 2, 3, 7]]
NARROW = [[0] * 5, [3, 40, 9, 0, 0], [0, 22, 30, 0, 0], [0, 1, 4, 0, 0], [0] * 5]


def table(*pairs: tuple[int, int]) -> np.ndarray:
    counts = np.zeros((5, 5))
    for truth, final in pairs:
        counts[truth - 1, final - 1] += 1
    return counts


def value(name: str, counts: np.ndarray) -> float:
    return float({**MEASURES, **BASELINES}[name].value(counts))


def estimate(name: str, cases: list[list[tuple[int, int]]], options: Score = OPTIONS) -> Estimate:
    """A measure of dialogues by case."""
    measure = MEASURES[name]
    sample = Sample(np.stack([table(*pairs).ravel() for pairs in cases]), options)
    return sample.estimate(
        lambda counts: measure.value(counts.reshape(*counts.shape[:-1], 5, 5)),
        lambda counts: measure.number(counts.reshape(*counts.shape[:-1], 5, 5)),
        measure.undefined,
        share=measure.share,
    )


# scikit-learn 1.9.1: cohen_kappa_score(weights="quadratic" and "linear", labels=[1 … 5]), f1_score(average="macro").
@pytest.mark.parametrize(
    ("counts", "quadratic", "linear", "f1"),
    [
        (WIDE, 0.792264693, 0.663852408, 0.640173578),
        (NARROW, 0.420652999, 0.365356623, 0.33180778),
        (table((1, 2), (2, 2), (5, 5), (5, 2), (2, 1)), 0.56, 0.390243902, 0.355555556),
        (table((1, 3), (2, 3), (3, 3), (3, 3), (2, 3)), 0.0, 0.0, 0.19047619),
    ],
)
def test_kappa_and_f1_are_those_of_scikit_learn(
    counts: list[list[int]], quadratic: float, linear: float, f1: float
) -> None:
    found = np.array(counts, dtype=float)
    assert value("qwk", found) == pytest.approx(quadratic, abs=5e-10)
    assert value("lwk", found) == pytest.approx(linear, abs=5e-10)
    assert float(macro_f1(found)) == pytest.approx(f1, abs=5e-10)


@given(PAIRS, st.sampled_from([1, 2]))
def test_kappa_is_one_less_the_weighted_error_by_that_of_all_pairs(pairs: list[tuple[int, int]], power: int) -> None:
    apart = sum(abs(truth - final) ** power for truth, final in pairs) / len(pairs)
    crossed = product((truth for truth, _ in pairs), (final for _, final in pairs))
    by_chance = sum(abs(truth - final) ** power for truth, final in crossed) / len(pairs) ** 2
    found = float(weighted_kappa(table(*pairs), power))
    assert math.isnan(found) if by_chance == 0 else found == pytest.approx(1 - apart / by_chance)


@given(PAIRS)
def test_every_measure_of_a_table_is_that_of_its_dialogues(pairs: list[tuple[int, int]]) -> None:
    counts = table(*pairs)
    errors = [final - truth for truth, final in pairs]
    urgent = [final <= 2 for truth, final in pairs if truth <= 2]
    called = [truth <= 2 for truth, final in pairs if final <= 2]
    other = [final > 2 for truth, final in pairs if truth > 2]
    passed = [truth > 2 for truth, final in pairs if final > 2]
    expected = {
        "accuracy": [error == 0 for error in errors],
        "within_one": [abs(error) <= 1 for error in errors],
        "mae": [abs(error) for error in errors],
        "signed_error": errors,
        "over": [error < 0 for error in errors],
        "under": [error > 0 for error in errors],
        "over_possible": [final < truth for truth, final in pairs if truth != 1],
        "under_possible": [final > truth for truth, final in pairs if truth != 5],
        "severe_under": [truth <= 2 and final >= 4 for truth, final in pairs],
        "critical_miss": [final not in (1, 2) for truth, final in pairs if truth == 1],
        "sensitivity_high": urgent,
        "specificity_high": other,
        "ppv_high": called,
        "npv_high": passed,
        **{f"accuracy_always_{level}": [truth == level for truth, _ in pairs] for level in LEVELS},
    }
    assert {*expected, *(f"qwk_always_{level}" for level in LEVELS)} == {*MEASURES, *BASELINES} - {
        "qwk",
        "lwk",
        "macro_f1",
    }
    for name, parts in expected.items():
        found = value(name, counts)
        assert found == pytest.approx(sum(parts) / len(parts)) if parts else math.isnan(found), name


def test_a_constant_nurse_has_kappa_0_and_its_baseline_s_accuracy() -> None:
    counts = table((1, 3), (2, 3), (3, 3), (3, 3))
    assert value("qwk", counts) == 0
    assert value("qwk_always_3", np.array(WIDE, dtype=float)) == 0
    assert value("accuracy", counts) == value("accuracy_always_3", counts) == 0.5


def test_reweighted_accuracy_is_that_of_a_sample_with_the_given_mix() -> None:
    mix = [0.1, 0.2, 0.4, 0.2, 0.1]
    counts = np.array(WIDE, dtype=float)
    by_level = [8 / 12, 15 / 24, 21 / 31, 12 / 21, 7 / 12]
    assert float(reweighted(mix).value(counts)) == pytest.approx(sum(a * b for a, b in zip(mix, by_level, strict=True)))
    assert math.isnan(reweighted(mix).value(np.array(NARROW, dtype=float)))
    assert float(reweighted([0, 0.5, 0.5, 0, 0]).value(np.array(NARROW, dtype=float))) == pytest.approx(
        (40 / 52 + 30 / 52) / 2
    )
    assert math.isnan(reweighted(None).value(counts))
    assert "score.prevalence" in reweighted(None).undefined


# statsmodels 0.15.0: proportion_confint(count, number, alpha, method="wilson").
@pytest.mark.parametrize(
    ("count", "number", "confidence", "low", "high"),
    [
        (0, 12, 0.95, 0.0, 0.242494007),
        (12, 12, 0.95, 0.757505993, 1.0),
        (3, 40, 0.95, 0.025836026, 0.198642335),
        (17, 29, 0.9, 0.434790466, 0.722910663),
        (1, 1, 0.95, 0.206549314, 1.0),
        (250, 1000, 0.95, 0.224153099, 0.27776028),
    ],
)
def test_wilson_s_interval_is_that_of_statsmodels(
    count: int, number: int, confidence: float, low: float, high: float
) -> None:
    assert wilson(count / number, number, confidence) == pytest.approx((low, high), abs=5e-10)


def binomial_quantile(number: int, share: float, at: float) -> int:
    """The smallest count whose cumulated probability reaches `at`."""
    total = 0.0
    for count in range(number + 1):
        total += math.comb(number, count) * share**count * (1 - share) ** (number - count)
        if total >= at:
            return count
    return number


@pytest.mark.parametrize(("right", "number"), [(14, 20), (3, 40), (45, 60)])
def test_the_bootstrap_of_a_share_has_the_quantiles_of_the_binomial_distribution(right: int, number: int) -> None:
    clusters = np.array([[1.0, 1.0]] * right + [[0.0, 1.0]] * (number - right))
    found = percentiles(draw(clusters, 20_000, 0), lambda sums: sums[:, 0] / sums[:, 1], 0.95)
    expected = [binomial_quantile(number, right / number, at) / number for at in (0.025, 0.975)]
    assert [found.low, found.high] == pytest.approx(expected)
    assert found.undefined == 0


def test_a_draw_has_as_many_clusters_as_there_are_and_knows_no_order() -> None:
    clusters = np.array([[1.0, 0.0, 2.0], [1.0, 3.0, 0.0], [1.0, 0.0, 2.0], [1.0, 1.0, 1.0]])
    drawn = draw(clusters, 500, 7)
    assert (drawn[:, 0] == 4).all()
    assert np.array_equal(drawn, draw(clusters[::-1], 500, 7))
    assert not np.array_equal(drawn, draw(clusters, 500, 8))


def test_more_dialogues_of_the_same_cases_make_no_narrower_interval() -> None:
    cases = [[(level, final)] for level, final in product(LEVELS, LEVELS) for _ in range(3 if level == final else 1)]
    for name in ("accuracy", "mae", "qwk"):
        once, thrice = (estimate(name, [pairs * copies for pairs in cases]) for copies in (1, 3))
        assert once[:3] == thrice[:3]
        assert (once.n, once.cases) == (35, 35)
        assert (thrice.n, thrice.cases) == (105, 35)


def test_a_share_of_few_cases_has_wilson_s_interval_over_the_cases() -> None:
    cases = [[(2, 2)] * 2] * 12
    assert estimate("accuracy", cases) == (1.0, 0.757506, 1.0, 24, 12, "Wilson; fewer than 30 cases")
    rare = [[(2, 2)]] * 37 + [[(2, 3)]] * 3
    assert estimate("under", rare) == (0.075, 0.025836, 0.198642, 40, 40, "Wilson")
    usual = estimate("under", [[(2, 2)]] * 30 + [[(2, 3)]] * 10)
    assert usual.note == ""
    assert usual.low == pytest.approx(binomial_quantile(40, 0.25, 0.025) / 40, abs=0.025)


def test_what_is_undefined_is_none_and_says_why() -> None:
    same = [[(3, 3)]] * 40
    assert estimate("qwk", same) == (None, None, None, 40, 40, "one class on both sides: kappa is undefined")
    assert estimate("critical_miss", same) == (None, None, None, 0, 0, "no true level 1")
    assert estimate("over_possible", [[(1, 1)]]).note == "no true level above 1: over-triage is impossible"
    assert estimate("accuracy", [[]]) == (None, None, None, 0, 0, NOBODY)


def test_an_interval_of_no_width_is_none() -> None:
    assert estimate("mae", [[(3, 3)]] * 40) == (0.0, None, None, 40, 40, "all draws alike: no interval")


def test_undefined_draws_are_left_out_and_counted() -> None:
    found = estimate("qwk", [[(3, 3)], [(1, 2)]], Score(bootstrap=4000))
    lost = int(found.note.split(" of 4000 draws undefined; fewer than 30 cases")[0])
    assert lost / 4000 == pytest.approx(1 / 4, abs=0.03)
    assert found.low is not None


def test_confidence_and_seed_are_those_of_the_configuration() -> None:
    cases = [[(level, final)] for level, final in product(LEVELS, LEVELS)] * 2
    usual, wide, other = (
        estimate("qwk", cases, Score.model_validate(options)) for options in ({}, {"confidence": 0.99}, {"seed": 1})
    )
    assert usual.low is not None
    assert wide.low is not None
    assert wide.low < usual.low
    assert usual.value == other.value
    assert usual.low != other.low
