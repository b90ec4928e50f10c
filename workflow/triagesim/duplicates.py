"""Near-duplicate dialogues: which share most of their runs of words, exactly, without comparing each with each."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from triagesim.jsonl import write_table
from triagesim.language import pairing_of, spoken_lines
from triagesim.phrasing import tokens
from triagesim.resources import load_yaml
from triagesim.stored import read_episodes

COLUMNS = ("pairing", "episode_a", "episode_b", "overlap")
# Sets that are compared in full with each, once one that is like it is found.
_ENOUGH = 50


class Pair(NamedTuple):
    """Two dialogues by their position, and the share of runs that both have (Jaccard's index, 0 … 1)."""

    first: int
    second: int
    overlap: float


def write_duplicates(runs: Iterable[Path], out: Path) -> None:
    """Compare the finished dialogues of each pairing and write `COLUMNS`.

    A dialogue that has near-duplicates stands with the nearest of them only, so the table isn't longer than the run.
    """
    rule = load_yaml("fidelity.yaml")["duplicates"]
    ids: dict[str, list[str]] = defaultdict(list)
    shingled: dict[str, list[frozenset[int]]] = defaultdict(list)
    numbers: dict[tuple[str, ...], int] = {}
    for path in runs:
        for _, episode in read_episodes(path):
            if episode.get("status") == "ok":
                words = tokens(" ".join(text for _, _, text in spoken_lines(episode)))
                runs_of = shingles(words, rule["run"])
                pairing = pairing_of(episode)
                ids[pairing].append(str(episode["episode_id"]))
                shingled[pairing].append(frozenset(numbers.setdefault(run, len(numbers)) for run in runs_of))
    rows = []
    for pairing, names in ids.items():
        order = sorted(range(len(names)), key=names.__getitem__)
        for pair in nearest([shingled[pairing][place] for place in order], rule["least"]):
            rows.append([pairing, names[order[pair.first]], names[order[pair.second]], round(pair.overlap, 4)])
    write_table(out, COLUMNS, rows)


def shingles(words: Sequence[str], run: int) -> set[tuple[str, ...]]:
    """All runs of so many words; of a shorter text the whole of it."""
    if len(words) < run:
        return {tuple(words)} if words else set()
    return {tuple(words[place : place + run]) for place in range(len(words) - run + 1)}


def nearest(sets: Sequence[frozenset[int]], least: float) -> list[Pair]:
    """Each set that is like another, with the one most like it; two sets are alike if they overlap by `least` or more.

    Which sets are like another is exact: with the rarest members first, two sets that are alike share one of the first
    few of each (prefix filtering: Chaudhuri, Ganti and Kaushik 2006), so only those few are looked up. The most like
    one is chosen among at least the `_ENOUGH` that share the most of these. Equal sets are compared once for all.
    """
    groups: dict[frozenset[int], list[int]] = {}
    for place, members in enumerate(sets):
        if members:
            groups.setdefault(members, []).append(place)
    found = {Pair(first, second, 1.0) for same in groups.values() for first, second in pairwise(same)}
    best = _best({places[0]: members for members, places in groups.items()}, least)
    for places in groups.values():
        if len(places) == 1 and places[0] in best:
            overlap, other = best[places[0]]
            found.add(Pair(min(places[0], other), max(places[0], other), overlap))
    return sorted(found)


def _best(sets: dict[int, frozenset[int]], least: float) -> dict[int, tuple[float, int]]:
    """Overlap with the most similar other set, and its position, of each set that has one; of several the first."""
    best: dict[int, tuple[float, int]] = {}
    for one, near in _candidates(sets, least):
        mine, tried = False, 0
        for other in near:
            if mine and tried >= _ENOUGH and other in best:
                continue
            tried += 1
            both = len(sets[one] & sets[other])
            overlap = both / (len(sets[one]) + len(sets[other]) - both)
            if overlap >= least:
                mine = True
                for this, that in ((one, other), (other, one)):
                    known = best.get(this)
                    if known is None or (-overlap, that) < (-known[0], known[1]):
                        best[this] = (overlap, that)
    return best


def _candidates(sets: dict[int, frozenset[int]], least: float) -> Iterator[tuple[int, list[int]]]:
    """Each set with the smaller ones that may be like it, those first that share the most rare members."""
    import numpy as np

    frequency = Counter(member for members in sets.values() for member in members)
    order = sorted(sets, key=lambda place: (len(sets[place]), place))
    prefixes = [
        sorted(sets[place], key=lambda member: (frequency[member], member))[: _prefix(len(sets[place]), least)]
        for place in order
    ]
    shared = Counter(member for prefix in prefixes for member in prefix)
    posted = {member: array("q") for member, count in shared.items() if count > 1}
    for rank, place in enumerate(order):
        looked_up = [np.frombuffer(found, dtype=np.int64) for m in prefixes[rank] if (found := posted.get(m))]
        if looked_up:
            counts = np.bincount(np.concatenate(looked_up), minlength=rank)
            near = [order[other] for other in np.argsort(-counts, kind="stable").tolist() if counts[other]]
            yield place, [other for other in near if len(sets[other]) >= least * len(sets[place])]
        del looked_up
        for member in prefixes[rank]:
            if member in posted:
                posted[member].append(rank)


def _prefix(size: int, least: float) -> int:
    """How many of its rarest members a set must look up."""
    return size - math.ceil(least * size - 1e-9) + 1
