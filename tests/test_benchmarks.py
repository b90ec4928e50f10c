"""The comparison of levels: its statistics against an independent computation, and the command itself."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import BASELINES, Row, bootstrap, cells, counts, exact, kappa, nurses
from triagesim.resources import RESOURCES

ROOT = RESOURCES.parent
LEVELS = st.integers(1, 5)
INTERVAL = re.compile(r" \(-?[\d.]+%? to [^)]*\)")


def rows(*levels: tuple[int, int], copies: int = 1) -> list[Row]:
    """One patient a pair of (true, called), each with so many equal episodes."""
    pairs = [(f"p{number:03}", *pair) for number, pair in enumerate(levels)]
    return [Row(who, who, seed % 5, "esi", truth, called, 6) for who, truth, called in pairs for seed in range(copies)]


def kappa_of(*levels: tuple[int, int]) -> float:
    return float(kappa(counts(rows(*levels)).sum(0)))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/agreement.py", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)


def test_kappa_counts_with_the_labels_1_to_5_whichever_occur() -> None:
    assert kappa_of((1, 2), (2, 2), (5, 5), (5, 2), (2, 1)) == pytest.approx(0.56, abs=5e-4)


@given(st.lists(st.tuples(LEVELS, LEVELS), min_size=1, max_size=40))
def test_kappa_is_one_less_the_squared_error_by_that_of_all_pairs(levels: list[tuple[int, int]]) -> None:
    apart = sum((truth - called) ** 2 for truth, called in levels) / len(levels)
    by_chance = sum((truth - called) ** 2 for truth, _ in levels for _, called in levels) / len(levels) ** 2
    if by_chance:
        assert kappa_of(*levels) == pytest.approx(1 - apart / by_chance)
    else:
        assert math.isnan(kappa_of(*levels))


def test_a_nurse_that_calls_one_level_has_kappa_0_and_is_undefined_only_where_that_is_every_label() -> None:
    assert kappa_of((1, 2), (2, 2), (4, 2)) == 0
    assert kappa_of((1, 2), (1, 2)) == 0
    assert math.isnan(kappa_of((2, 2), (2, 2)))


def binomial_quantile(number: int, share: float, at: float) -> int:
    """The smallest count whose cumulated probability reaches `at`."""
    total = 0.0
    for count in range(number + 1):
        total += math.comb(number, count) * share**count * (1 - share) ** (number - count)
        if total >= at:
            return count
    return number


@pytest.mark.parametrize(("right", "number"), [(14, 20), (3, 40), (45, 60)])
def test_the_interval_of_a_share_has_the_quantiles_of_the_binomial_distribution(right: int, number: int) -> None:
    levels = [(2, 2)] * right + [(2, 3)] * (number - right)
    low, high, undefined = bootstrap(counts(rows(*levels)), exact, 20_000)
    expected = [binomial_quantile(number, right / number, at) / number for at in (0.025, 0.975)]
    assert [low, high] == pytest.approx(expected)
    assert undefined == 0


def test_more_episodes_of_the_same_cases_make_no_narrower_interval() -> None:
    levels = [(1, 1), (2, 2), (3, 2), (4, 4), (5, 3), (2, 3), (3, 3)]
    for measure in (exact, kappa):
        once, often = (bootstrap(counts(rows(*levels, copies=copies)), measure, 500) for copies in (1, 5))
        assert once == pytest.approx(often)


def test_draws_without_a_defined_kappa_are_left_out_and_counted() -> None:
    low, high, undefined = bootstrap(counts(rows((3, 3), (1, 2))), kappa, 4000)
    assert undefined / 4000 == pytest.approx(1 / 4, abs=0.03)
    assert not np.isnan([low, high]).any()
    assert bootstrap(counts(rows((3, 3), (3, 3))), kappa, 50)[2] == 50


def test_the_cells_of_a_row_are_its_measures() -> None:
    levels = [(1, 4), (2, 5), (2, 2), (2, 3), (3, 2), (4, 4), (5, 5), (3, 3)]
    found = [INTERVAL.sub("", cell) for cell in cells(rows(*levels, copies=5), 10)]
    shares = ["50.0%", "50.0% to 50.0%", "75.0%", "1.00"]
    assert found == ["8", "40", *shares, f"{kappa_of(*levels):.2f}", "12.5%", "37.5%", "25.0% (10)", "6.0"]


def test_an_undefined_kappa_is_no_number_and_says_why() -> None:
    assert cells(rows((2, 2), (2, 2), copies=5), 10)[6] == "– (undefined: one level only)"


def test_the_baselines_call_one_level_on_the_same_episodes() -> None:
    given_rows = rows((1, 4), (3, 3), copies=5)
    compared = dict(nurses(given_rows))
    assert list(compared) == ["agenda", *(f"always {level}" for level in BASELINES)]
    for level in BASELINES:
        expected = [(row.case_id, row.truth, level, None) for row in given_rows]
        assert [(r.case_id, r.truth, r.called, r.questions) for r in compared[f"always {level}"]] == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--draws", "0"], "--draws is 0"), (["--demo", "benchmarks"], "holds the demo's triage.csv")],
)
def test_a_wrong_argument_is_one_clear_error(arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_the_command_prints_labelled_rows_and_the_page_shows_the_same(tmp_path: Path) -> None:
    head = "subject_id,stay_id,temperature,heartrate,resprate,o2sat,sbp,dbp,pain,acuity,chiefcomplaint"
    stays = ["1,11,98.6,80,16,99,120,80,3,3,Abd pain", "1,12,98.6,80,16,99,120,80,0,2,Chest pain", "2,13,,,,,,,,,SOB"]
    (tmp_path / "triage.csv").write_text("\n".join([head, *stays]), encoding="utf-8")
    done = run("--demo", str(tmp_path), "--draws", "20")
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed if line.startswith("|")]
    sizes = {row[0]: row[2:4] for row in table if row[1] == "agenda"}
    assert sizes == {
        "shipped (circular: the rules were written with these at hand)": ["48", "240"],
        "held-out (never opened while the rules were written)": ["14", "70"],
        "MIMIC-IV-ED demo (complaint only, no script; two rules were added after reading demo dialogues)": ["2", "10"],
    }
    for name in ("shipped", "held-out", "MIMIC-IV-ED demo"):
        assert [row[1] for row in table if row[0] == name][-2:] == ["always 2", "always 3"]
    assert "MIMIC-IV-ED demo: 1 of 3 cases left out, no ground-truth acuity." in printed
    page = INTERVAL.sub("", (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")).splitlines()
    ours = [INTERVAL.sub("", line) for line in printed if line.startswith(("| shipped", "| held-out"))]
    assert [line for line in ours if line not in page] == [], "run benchmarks/agreement.py and paste its table"
