"""Near-duplicate dialogues: found exactly, each once, and written with the one most like it."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from dialogues import episode, stored
from tables import table
from triagesim.duplicates import Pair, nearest, shingles, write_duplicates

LEAST = 0.5
SETS = st.lists(st.frozensets(st.integers(0, 12), max_size=8), max_size=14)


def overlap(one: frozenset[int], other: frozenset[int]) -> float:
    return len(one & other) / len(one | other) if one | other else 0.0


def test_a_text_s_runs_are_all_its_stretches_of_so_many_words() -> None:
    assert shingles(list("abcab"), 3) == {tuple("abc"), tuple("bca"), tuple("cab")}
    assert shingles(["a"], 3) == {("a",)}
    assert shingles([], 3) == set()


@settings(deadline=None)
@given(SETS)
def test_every_set_that_is_like_another_is_found_with_the_one_most_like_it(sets: list[frozenset[int]]) -> None:
    pairs = nearest(sets, LEAST)
    alike = [
        Pair(one, other, overlap(sets[one], sets[other]))
        for one, other in itertools.combinations(range(len(sets)), 2)
        if overlap(sets[one], sets[other]) >= LEAST
    ]
    assert set(pairs) <= set(alike)
    best = {}
    for pair in alike:
        for place in pair[:2]:
            best[place] = max(best.get(place, 0.0), pair.overlap)
    found = {place: max(p.overlap for p in pairs if place in p[:2]) for p in pairs for place in p[:2]}
    assert found == best


def test_every_one_of_a_crowd_is_found_and_no_row_more_than_there_are_dialogues() -> None:
    draw = random.Random(0)
    sets = [frozenset(draw.sample(range(100), 90)) for _ in range(200)]
    pairs = nearest(sets, LEAST)
    assert {place for pair in pairs for place in pair[:2]} == set(range(200))
    assert len(pairs) <= 200


def test_the_table_names_each_pair_once_and_only_within_a_pairing(tmp_path: Path) -> None:
    words = "one two three four five six seven eight nine ten eleven twelve"
    near = words.replace("twelve", "and so on")
    other = "something quite different is said here by somebody else today"
    said = {"c-0": words, "a-0": words, "b-0": near, "d-0": other}
    episodes = [episode([("patient", text)], episode_id=name) for name, text in said.items()]
    episodes += [episode([("patient", other)], episode_id="d-0", pairing="second")]
    episodes += [episode([("patient", words)], episode_id="e-0", status="error")]
    write_duplicates([stored(tmp_path / "in.jsonl", episodes)], tmp_path / "out.csv")
    # Twelve words have 8 runs of five, fourteen have 10; 7 are the same, so 7 of 11.
    assert table(tmp_path / "out.csv") == [
        {"pairing": "made", "episode_a": "a-0", "episode_b": "b-0", "overlap": "0.6364"},
        {"pairing": "made", "episode_a": "a-0", "episode_b": "c-0", "overlap": "1.0"},
    ]
