"""Pools by prevalence and pools that cover pairs, and the weights that are written beside a pool."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from triagesim.errors import InputError
from triagesim.personas import ROLES, Registry, Role, generate, registry
from triagesim.resources import RESOURCES
from triagesim.sampling import DESIGN_CHOICE, WEIGHTS_HEADER, Mix, by_prevalence, covering, declared, uncovered

each_role = pytest.mark.parametrize("role", ROLES)
MANY = 6_000


def made(sizes: list[int], incompatible: list[dict[str, str]], prevalence: Any = None) -> Registry:
    """A small registry: traits a, b, … with levels 0, 1, …."""
    source = {"title": "T", "authors": "A", "year": 2000, "where": "J", "checked": True}
    traits = {
        name: {
            "name": name,
            "definition": "a trait",
            "levels": {str(level): "seen" for level in range(size)},
            "per_line": False,
            "sources": ["s"],
            "prevalence": (prevalence or {}).get(name, []),
        }
        for name, size in zip("abcdef", sizes, strict=False)
    }
    return Registry.model_validate(
        {"role": "nurse", "traits": traits, "incompatible": incompatible, "sources": {"s": source}}
    )


def pairs_of(rows: list[dict[str, str]]) -> set[frozenset[tuple[str, str]]]:
    """Every pair of levels of two traits in these personas."""
    return {frozenset(pair) for row in rows for pair in itertools.combinations(row.items(), 2)}


def close(count: int, among: int, share: float) -> bool:
    """Whether a count is within five standard deviations of what a share gives."""
    return abs(count - among * share) <= 5 * (among * share * (1 - share)) ** 0.5


# -- prevalence


@each_role
def test_the_weights_of_a_trait_add_up_and_name_a_source_or_a_design_choice(role: Role) -> None:
    known = registry(role)
    totals: Counter[Any] = Counter()
    for weight in declared(known):
        totals[weight.trait, weight.given] += weight.weight
        assert weight.source == DESIGN_CHOICE or set(weight.source.split(", ")) <= known.sources.keys()
    assert all(total == pytest.approx(1) for total in totals.values())
    assert {trait for trait, _ in totals} == known.traits.keys()


def test_what_research_has_counted_is_declared_and_the_rest_is_even() -> None:
    weights = {(w.trait, w.level, w.given): (round(w.weight or 0, 6), w.source) for w in declared(registry("patient"))}
    assert weights["age_group", "older", None] == (0.24, "aihw2026")
    assert weights["age_group", "adult", None] == (0.76, "aihw2026")
    assert weights["english_proficiency", "limited", None] == (0.034, "abs2022")
    assert weights["health_literacy", "marginal", None] == (0.3, DESIGN_CHOICE)
    assert weights["recall_reliability", "reliable", ("age_group", "adult")] == (0.6, "mazer2011")
    assert weights["recall_reliability", "reliable", ("age_group", "older")] == (0.4, "chung2002")
    assert weights["recall_reliability", "patchy", ("age_group", "older")] == (0.3, DESIGN_CHOICE)
    assert weights["demeanour", "hostile", None] == (0.075, DESIGN_CHOICE)
    assert weights["disfluency", "high", None] == (0.333333, DESIGN_CHOICE)


@each_role
def test_a_pool_by_prevalence_has_the_declared_shares_also_within_an_age_group(role: Role) -> None:
    rows = list(generate(role, "prevalence", 3_000, 7))
    for trait, level, within, weight, _ in declared(registry(role)):
        members = [row for row in rows if within is None or row[within[0]] == within[1]]
        assert close(sum(row[trait] == level for row in members), len(members), weight or 0), (trait, level, within)


def test_traits_that_research_does_not_join_are_drawn_independently() -> None:
    rows = list(generate("patient", "prevalence", MANY, 1))
    both = sum(row["health_literacy"] == "limited" and row["distress"] == "highly_distressed" for row in rows)
    assert close(both, MANY, 0.4 * 0.24)


def test_an_incompatible_pair_keeps_the_shares_of_its_levels() -> None:
    """By hand: terse takes a third and can't be beside frequent tangents, so each other focus has a sixth with it; what
    is left of a third of each focus goes evenly to the two other lengths.
    """
    rows = list(generate("patient", "prevalence", MANY, 2))
    counts = Counter((row["verbosity"], row["focus"]) for row in rows)
    assert counts["terse", "frequent_tangents"] == 0
    for verbosity, focus in itertools.product(("typical", "expansive"), ("on_target", "occasional_tangents")):
        assert close(counts[verbosity, focus], MANY, 1 / 12)
    for verbosity in ("typical", "expansive"):
        assert close(counts[verbosity, "frequent_tangents"], MANY, 1 / 6)
    for focus in ("on_target", "occasional_tangents"):
        assert close(counts["terse", focus], MANY, 1 / 6)


@given(
    first=st.fractions(Fraction(1, 20), Fraction(9, 20), max_denominator=20),
    second=st.fractions(Fraction(1, 20), Fraction(9, 20), max_denominator=20),
)
def test_two_traits_of_two_levels_have_the_one_table_that_their_shares_allow(first: Fraction, second: Fraction) -> None:
    """With (0, 0) barred the rest follows: (0, 1) has the first share, (1, 0) the second, (1, 1) what is left."""
    shares = {name: [{"levels": {"0": float(share)}, "source": "s"}] for name, share in (("a", first), ("b", second))}
    known = made([2, 2], [{"a": "0", "b": "0"}], shares)
    counts = Counter(known.at(number)["a"] + known.at(number)["b"] for number in by_prevalence(known, 2_000, 3))
    assert counts.keys() <= {"01", "10", "11"}
    assert close(counts["01"], 2_000, float(first))
    assert close(counts["10"], 2_000, float(second))


def test_shares_that_an_incompatible_pair_makes_impossible_are_an_error() -> None:
    shares = {name: [{"levels": {"0": 0.7}, "source": "s"}] for name in "ab"}
    known = made([2, 2], [{"a": "0", "b": "0"}], shares)
    with pytest.raises(InputError, match=r"resources/personas/nurse\.yaml: the prevalences of a, b can't all hold"):
        by_prevalence(known, 1, 0)


@each_role
def test_a_larger_pool_by_prevalence_holds_a_smaller_one(role: Role) -> None:
    known = registry(role)
    small, large, other = (by_prevalence(known, n, seed) for n, seed in ((60, 1), (500, 1), (60, 2)))
    assert Counter(small) <= Counter(large)
    assert small != other
    assert large == sorted(large)
    assert (len(small), len(large)) == (60, 500)


@pytest.mark.parametrize("n", [None, 0, 3_889])
def test_a_pool_by_prevalence_needs_its_size(n: int | None) -> None:
    with pytest.raises(InputError, match="prevalence sampling of nurse personas: n is"):
        generate("nurse", "prevalence", n)


# -- covering


@each_role
@pytest.mark.parametrize("seed", [0, 5])
def test_a_covering_pool_is_small_and_has_every_compatible_pair_of_levels(role: Role, seed: int) -> None:
    rows = list(generate(role, "covering", seed=seed))
    levels = [[(name, level) for level in trait.levels] for name, trait in registry(role).traits.items()]
    wanted = {frozenset(pair) for two in itertools.combinations(levels, 2) for pair in itertools.product(*two)}
    barred = {frozenset(pair.items()) for pair in registry(role).incompatible}
    assert len(barred) == 1
    assert pairs_of(rows) == wanted - barred
    # Two traits of three levels alone need nine; more than twice that would be no small pool.
    assert 9 <= len(rows) <= 18
    assert rows == list(generate(role, "covering", seed=seed))


def test_the_documented_sizes_of_covering_pools() -> None:
    sizes = {role: len(list(generate(role, "covering", seed=0))) for role in ROLES}
    assert sizes == {"patient": 16, "nurse": 15}
    page = (RESOURCES.parent / "docs" / "personas.md").read_text(encoding="utf-8")
    assert "16 patients or 15 nurses with seed 0" in page


def test_the_page_states_every_counted_share() -> None:
    page = (RESOURCES.parent / "docs" / "personas.md").read_text(encoding="utf-8")
    stated = dict(re.findall(r"^\| (`\w+` \w+[^|]*) \| ([\d.]+) \| `", page, re.MULTILINE))
    counted = {
        (trait.name, level, share): statement.source
        for trait in registry("patient").traits.values()
        for statement in trait.prevalence
        for level, share in statement.levels.items()
    }
    found = {(*name.replace("`", "").split(",")[0].split(), float(share)) for name, share in stated.items()}
    assert found == counted.keys()
    assert not any(trait.prevalence for trait in registry("nurse").traits.values())


def test_the_seed_chooses_another_covering_pool() -> None:
    assert list(generate("nurse", "covering", seed=1)) != list(generate("nurse", "covering", seed=2))


def test_what_a_pool_does_not_cover_is_named() -> None:
    known = made([2, 2, 2], [{"a": "0", "b": "0"}])
    numbers = [known.index({"a": "0", "b": "1", "c": "0"}), known.index({"a": "1", "b": "0", "c": "0"})]
    assert uncovered(known, numbers) == [
        {"a": "0", "c": "1"},
        {"a": "1", "b": "1"},
        {"a": "1", "c": "1"},
        {"b": "0", "c": "1"},
        {"b": "1", "c": "1"},
    ]
    assert uncovered(known, range(known.size)) == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(sizes=st.lists(st.integers(2, 4), min_size=2, max_size=5), data=st.data())
def test_any_registry_is_covered_or_has_a_pair_without_a_persona(sizes: list[int], data: st.DataObject) -> None:
    places = st.integers(0, len(sizes) - 1)
    barred = []
    for first, second in data.draw(st.lists(st.tuples(places, places), max_size=2)):
        assume(first != second)
        levels = [str(data.draw(st.integers(0, sizes[place] - 1))) for place in (first, second)]
        barred.append({"abcdef"[first]: levels[0], "abcdef"[second]: levels[1]})
    known = made(sizes, barred)
    everything = [known.at(number) for number in range(known.size)]
    pairs = {frozenset(pair) for row in everything for pair in itertools.combinations(row.items(), 2)}
    items = [[(name, level) for level in trait.levels] for name, trait in known.traits.items()]
    wanted = {frozenset(pair) for two in itertools.combinations(items, 2) for pair in itertools.product(*two)}
    if pairs == wanted - {frozenset(pair.items()) for pair in barred}:
        rows = [known.at(number) for number in covering(known, 0)]
        assert pairs_of(rows) == pairs
        assert len(rows) <= max(1, len(pairs))
    else:
        with pytest.raises(InputError, match="no nurse persona has"):
            covering(known, 0)


# -- the mix


def test_the_mix_of_all_personas_is_its_weights() -> None:
    for role in ROLES:
        mix = Mix(registry(role), "all")
        total = sum(1 for _ in mix.watch(generate(role)))
        rows = [dict(zip(WEIGHTS_HEADER, row, strict=True)) for row in mix.table()]
        assert total == mix.personas == registry(role).size
        assert all(row["weight"] == row["share"] for row in rows)
        assert sum(row["personas"] for row in rows) == total * len(registry(role).traits)


def test_a_mix_shows_shares_within_the_age_group_that_the_weight_is_for() -> None:
    rows = [registry("patient").at(number) for number in (0, 1, 2, registry("patient").size - 1)]
    rows[1] = rows[1] | {"recall_reliability": "patchy", "ethnicity": "unheard of"}
    mix = Mix(registry("patient"), "prevalence")
    assert list(mix.watch(iter(rows))) == rows
    shown = {tuple(row[:3]): row[3:] for row in mix.table()}
    assert shown["age_group", "older", ""] == [0.24, "aihw2026", 1, 0.25]
    assert shown["recall_reliability", "reliable", "age_group adult"] == [0.6, "mazer2011", 2, 0.6667]
    assert shown["recall_reliability", "unreliable", "age_group older"] == [0.3, DESIGN_CHOICE, 1, 1.0]
    assert not any("ethnicity" in row for row in shown)


@pytest.mark.parametrize(("sampling", "said"), [(None, "own personas"), ("covering", "every pair of levels")])
def test_where_a_sampling_aims_at_no_share_none_is_stated(sampling: Any, said: str) -> None:
    mix = Mix(registry("nurse"), sampling)
    list(mix.watch([registry("nurse").at(0)]))
    for _, _, within, weight, source, count, share in mix.table():
        assert (within, weight, source) == ("", None, said)
        assert share == count
