"""Near-duplicate dialogues: which share most of their runs of words, exactly, without comparing each with each."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from triagesim.jsonl import write_table
from triagesim.language import pairing_of, spoken_lines
from triagesim.phrasing import tokens
from triagesim.resources import load_yaml
from triagesim.stored import read_episodes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    #: Different numbers from 0, ascending.
    Members = NDArray[np.int32]

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
    shingled: dict[str, list[array[int]]] = defaultdict(list)
    # Numbers instead of words and of runs: a hundred thousand dialogues have millions of different runs.
    vocabulary: dict[str, int] = {}
    numbers: dict[tuple[Hashable, ...], int] = {}
    for path in runs:
        for _, episode in read_episodes(path):
            if episode.get("status") == "ok":
                words = tokens(" ".join(text for _, _, text in spoken_lines(episode)))
                runs_of = shingles([vocabulary.setdefault(word, len(vocabulary)) for word in words], rule["run"])
                pairing = pairing_of(episode)
                ids[pairing].append(str(episode["episode_id"]))
                shingled[pairing].append(array("i", {numbers.setdefault(run, len(numbers)) for run in runs_of}))
    rows = []
    for pairing, names in ids.items():
        order = sorted(range(len(names)), key=names.__getitem__)
        for pair in nearest([shingled[pairing][place] for place in order], rule["least"]):
            rows.append([pairing, names[order[pair.first]], names[order[pair.second]], round(pair.overlap, 4)])
    write_table(out, COLUMNS, rows)


def shingles(words: Sequence[Hashable], run: int) -> set[tuple[Hashable, ...]]:
    """All runs of so many words; of a shorter text the whole of it."""
    if len(words) < run:
        return {tuple(words)} if words else set()
    return {tuple(words[place : place + run]) for place in range(len(words) - run + 1)}


def nearest(sets: Sequence[Iterable[int]], least: float) -> list[Pair]:
    """Each set that is like another, with the one most like it; two sets are alike if they overlap by `least` or more.

    Which sets are like another is exact: with the rarest members first, two sets that are alike share one of the first
    few of each (prefix filtering: Chaudhuri, Ganti and Kaushik 2006), so only those few are looked up, and so many of
    them that the rest can make up what is missing. The most like one is chosen among at least the `_ENOUGH` that share
    the most of these. Equal sets are compared once for all.

    Args:
        sets: numbers from 0.
    """
    import numpy as np

    groups: dict[bytes, list[int]] = {}
    for place, members in enumerate(sets):
        held = np.unique(np.fromiter(members, dtype=np.int32))
        if len(held):
            groups.setdefault(held.tobytes(), []).append(place)
    found = {Pair(first, second, 1.0) for same in groups.values() for first, second in pairwise(same)}
    best = _best({places[0]: np.frombuffer(held, dtype=np.int32) for held, places in groups.items()}, least)
    for places in groups.values():
        if len(places) == 1 and places[0] in best:
            overlap, other = best[places[0]]
            found.add(Pair(min(places[0], other), max(places[0], other), overlap))
    return sorted(found)


def _best(sets: dict[int, Members], least: float) -> dict[int, tuple[float, int]]:
    """Overlap with the most similar other set, and its position, of each set that has one; of several the first."""
    best: dict[int, tuple[float, int]] = {}
    for one, near in _candidates(sets, least):
        own, mine = set(sets[one].tolist()), False
        for rank, other in near:
            if mine and rank >= _ENOUGH and other in best:
                continue
            both = len(own.intersection(sets[other].tolist()))
            overlap = both / (len(own) + len(sets[other]) - both)
            if overlap >= least:
                mine = True
                for this, that in ((one, other), (other, one)):
                    known = best.get(this)
                    if known is None or (-overlap, that) < (-known[0], known[1]):
                        best[this] = (overlap, that)
    return best


def _candidates(sets: dict[int, Members], least: float) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Each set with the smaller ones that may be like it, those first that share the most rare members.

    Each comes with its rank among all that share any and aren't too small.
    """
    import numpy as np

    order = np.array(sorted(sets, key=lambda place: (len(sets[place]), place)), dtype=np.int64)
    frequency = np.zeros(max((int(members[-1]) for members in sets.values()), default=0) + 1, dtype=np.int64)
    for members in sets.values():
        frequency[members] += 1
    sizes = np.array([len(sets[place]) for place in order.tolist()], dtype=np.int64)
    looked_up = np.array([_prefix(size, least) for size in sizes.tolist()], dtype=np.int64)
    shared = np.zeros_like(frequency)
    for place, count in zip(order.tolist(), looked_up.tolist(), strict=True):
        shared[_rarest(sets[place], frequency, count)] += 1
    posted: dict[int, array[int]] = {}
    for rank, place in enumerate(order.tolist()):
        prefix = _rarest(sets[place], frequency, int(looked_up[rank]))
        prefix = prefix[shared[prefix] > 1].tolist()
        found = [np.frombuffer(posted[member], dtype=np.intc) for member in prefix if member in posted]
        if found:
            near, counts = np.unique(np.concatenate(found), return_counts=True)
            start = np.searchsorted(sizes[near], least * sizes[rank])
            near, counts = near[start:], counts[start:]
            # What is shared beyond the looked-up members of both lies beyond those of one of them.
            rest = np.maximum((sizes - looked_up)[near], sizes[rank] - looked_up[rank])
            enough = counts + rest >= least / (1 + least) * (sizes[near] + sizes[rank]) - 1e-9
            if enough.any():
                by_count = np.argsort(-counts, kind="stable")
                chosen = np.flatnonzero(enough[by_count])
                yield place, list(zip(chosen.tolist(), order[near[by_count[chosen]]].tolist(), strict=True))
        # An array that is looked at can't grow.
        del found
        for member in prefix:
            posted.setdefault(member, array("i")).append(rank)


def _rarest(members: Members, frequency: NDArray[np.int64], count: int) -> Members:
    """So many of a set's members, the rarest first."""
    import numpy as np

    return members[np.argsort(frequency[members], kind="stable")[:count]]


def _prefix(size: int, least: float) -> int:
    """How many of its rarest members a set must look up."""
    return size - math.ceil(least * size - 1e-9) + 1
