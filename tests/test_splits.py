"""Splits by patient."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triagesim.errors import InputError
from triagesim.splits import patient_key, split_of

SPLITS = {"train": 0.8, "dev": 0.1, "test": 0.1}
NAMES = st.text("abcdef_", min_size=1, max_size=6)
SHARES = st.dictionaries(NAMES, st.floats(0, 1), min_size=1, max_size=5).filter(lambda s: sum(s.values()) > 1e-6)
CASES = st.lists(
    st.fixed_dictionaries({"case_id": st.uuids().map(str), "subject_id": st.sampled_from([None, "1", 1, "22", "3"])}),
    max_size=40,
)


@given(CASES, SHARES, st.integers(0, 9))
def test_all_cases_of_a_patient_are_in_one_split(
    cases: list[dict[str, str | int | None]], splits: dict[str, float], seed: int
) -> None:
    found: dict[str, set[str]] = {}
    for case in cases:
        split = split_of(patient_key(case), splits, seed)
        assert splits[split] > 0
        if case["subject_id"] is not None:
            found.setdefault(str(case["subject_id"]), set()).add(split)
    assert all(len(names) == 1 for names in found.values())


def test_a_split_follows_from_the_seed_and_the_key_alone() -> None:
    # By `printf 0:esi3-upper-belly-pain | sha256sum`: d7cf9ff7…, 0.843 of the way; the others 0.322 and 0.716.
    keys = ("esi3-upper-belly-pain", "10000032", "10000084")
    assert [split_of(key, SPLITS, 0) for key in keys] == ["dev", "train", "train"]


def test_the_shares_are_met_and_another_seed_draws_anew() -> None:
    counts = Counter(split_of(str(number), SPLITS, 0) for number in range(20_000))
    assert {name: count / 20_000 for name, count in counts.items()} == pytest.approx(SPLITS, abs=0.01)
    same = sum(split_of(str(n), SPLITS, 0) == split_of(str(n), SPLITS, 1) for n in range(20_000)) / 20_000
    assert same == pytest.approx(0.8**2 + 2 * 0.1**2, abs=0.015)


def test_a_patient_is_known_by_the_subject_id_and_else_by_the_case_id() -> None:
    assert patient_key({"case_id": "a", "subject_id": 7}) == "7"
    assert patient_key({"case_id": "a", "subject_id": ""}) == patient_key({"case_id": "a"}) == "a"


@pytest.mark.parametrize("splits", [{}, {"train": 0.0}, {"train": 1.0, "test": -0.1}])
def test_shares_that_split_nothing_are_an_error(splits: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"dataset\.splits"):
        split_of("a", splits, 0)
