"""What a selection does to the mix of personas, and weights that undo it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from triagesim.jsonl import write_table
from triagesim.language import TRAITS
from triagesim.personas import ROLES, registry

COLUMNS = (
    *("pairing", "trait", "level", "run", "pool", "keep_rate", "low", "high"),
    *("standardised_difference", "weighted_difference", "note"),
)
#: No weight is larger than so many times the mean, nor smaller than the mean by so much.
CAP = 5.0
#: Raking ends when no share is further off than this, or after so many rounds; what is then off by more is said.
_CLOSE = 1e-6
_ROUNDS = 200
_OFF = 0.01


class Member(NamedTuple):
    """An episode that a selection decides on.

    Attributes:
        graded: whether it could be in the pool at all, had its nurse been right.
        traits: the level of each trait of both personas, by `TRAITS`.
    """

    pairing: str
    episode_id: str
    case_id: str
    level: int | None
    graded: bool
    traits: Mapping[str, Any]


def weigh(members: Sequence[Member], kept: Sequence[bool]) -> tuple[dict[int, float], dict[str, str]]:
    """Weights of the kept episodes by position, mean 1 in each pairing, and what must be said of them by pairing.

    They are raked (Deming and Stephan 1940): with them every trait has the same mix of levels in a pairing's pool as
    in its graded episodes. That is the inverse of the chance of being kept, if that chance is a product of one factor
    a trait. They are capped at `CAP`.
    """
    weights: dict[int, float] = {}
    notes = {}
    by_pairing: dict[str, list[int]] = defaultdict(list)
    # In an order that is the same however the episodes were cut into files.
    for place in sorted(range(len(members)), key=lambda place: members[place][:3]):
        by_pairing[members[place].pairing].append(place)
    for pairing, places in by_pairing.items():
        run = [members[place] for place in places if members[place].graded]
        chosen = [place for place in places if kept[place]]
        if chosen:
            found, furthest = rake(run, [members[place] for place in chosen])
            weights |= dict(zip(chosen, found, strict=True))
            notes[pairing] = _of_weights(found, furthest)
    return weights, notes


def rake(run: Sequence[Member], pool: Sequence[Member]) -> tuple[list[float], float]:
    """The weights of one pairing's pool, and by how much the share of a level is off with them, at most.

    A level that the pool lacks can't be weighted: it is left out of the mix.
    """
    margins = []
    for trait in TRAITS:
        levels: dict[Any, list[int]] = defaultdict(list)
        for place, member in enumerate(pool):
            levels[member.traits[trait]].append(place)
        wanted = Counter(member.traits[trait] for member in run if member.traits[trait] in levels)
        if len(levels) > 1:
            margins.append([(places, wanted[level] / wanted.total()) for level, places in levels.items()])
    weights = [1.0] * len(pool)
    for _ in range(_ROUNDS):
        for margin in margins:
            for places, factor in [(places, share / _now(places, weights)) for places, share in margin]:
                for place in places:
                    weights[place] *= factor
        weights = _capped(weights)
        furthest = max(
            (abs(_now(places, weights) - share) for margin in margins for places, share in margin), default=0
        )
        if furthest < _CLOSE:
            break
    return [round(weight, 6) for weight in weights], furthest


def _capped(weights: list[float]) -> list[float]:
    """The weights with mean 1 and none beyond the cap."""
    for _ in range(_ROUNDS):
        mean = math.fsum(weights) / len(weights)
        if abs(mean - 1) < _CLOSE and min(weights) >= 1 / CAP and max(weights) <= CAP:
            break
        weights = [min(CAP, max(1 / CAP, weight / mean)) for weight in weights]
    return weights


def _now(places: Sequence[int], weights: Sequence[float]) -> float:
    return math.fsum(weights[place] for place in places) / math.fsum(weights)


def _of_weights(weights: Sequence[float], furthest: float) -> str:
    """How much the weights cost (Kish's effective size), how many were capped, and whether they do what they should."""
    size = sum(weights) ** 2 / sum(weight**2 for weight in weights)
    notes = [f"weighted: worth {size:.0f} of {len(weights)} episodes"]
    capped = sum(not 1.01 / CAP < weight < CAP / 1.01 for weight in weights)
    notes += [f"{capped} weights capped"] if capped else []
    notes += [f"the mix isn't reached, a share is off by {furthest:.2f}"] if furthest > _OFF else []
    return ", ".join(notes)


def audit(members: Sequence[Member], kept: Sequence[bool], weights: Mapping[int, float]) -> Iterator[list[Any]]:
    """The rows of `COLUMNS`: each level of each trait, by pairing, and over all of several pairings.

    The run is the graded episodes: the others can't be in the pool, whoever their personas are.
    """
    names = list(dict.fromkeys(member.pairing for member in members))
    for name in [*names, *(["all"] if len(names) > 1 else [])]:
        places = [
            place for place, member in enumerate(members) if member.graded and (name == "all" or member.pairing == name)
        ]
        chosen = [place for place in places if kept[place]]
        for trait in TRAITS:
            run = Counter(members[place].traits[trait] for place in places)
            pool = Counter(members[place].traits[trait] for place in chosen)
            weighed: Counter[Any] = Counter()
            for place in chosen:
                weighed[members[place].traits[trait]] += weights.get(place, 0)  # type: ignore[assignment]
            for level in _levels(trait, run):
                shares = [_share(count, level) for count in (run, pool, weighed)]
                yield [name, trait, level, *_cells(run, pool, level, shares)]


def write_audit(members: Sequence[Member], kept: Sequence[bool], weights: Mapping[int, float], path: Path) -> None:
    """Write the audit as a table."""
    write_table(path, COLUMNS, audit(members, kept, weights))


def _levels(trait: str, run: Counter[Any]) -> list[Any]:
    """The levels that occur, in the registry's order; an episode without the trait has the level None, last."""
    role, name = trait.split("_", 1)
    traits = registry(next(one for one in ROLES if one == role)).traits
    known = list(traits[name].levels) if name in traits else []
    others = sorted((level for level in run if level is not None and level not in known), key=str)
    return [level for level in (*known, *others, None) if run[level]]


def _share(counts: Counter[Any], level: Any) -> float | None:
    return counts[level] / counts.total() if counts.total() else None


def _cells(run: Counter[Any], pool: Counter[Any], level: Any, shares: Sequence[float | None]) -> list[Any]:
    """run, pool, keep_rate, low, high, standardised_difference, weighted_difference, note."""
    from triagesim.bootstrap import CONFIDENCE, wilson
    from triagesim.estimates import FEW, rounded

    rate = pool[level] / run[level]
    low, high = wilson(rate, run[level], CONFIDENCE)
    differences = [standardised(shares[0], share) for share in shares[1:]]
    overall = pool.total() / run.total()
    notes = [f"fewer than {FEW} dialogues"] if run[level] < FEW else []
    if not pool[level]:
        notes.append("none kept")
    elif high < overall:
        notes.append("kept less often than the run as a whole")
    elif low > overall:
        notes.append("kept more often than the run as a whole")
    written = map(rounded, (rate, low, high, *differences))
    return [run[level], pool[level], *written, "; ".join(notes)]


def standardised(run: float | None, pool: float | None) -> float | None:
    """Standardised difference of two shares, pool minus run (Austin 2009); None where neither share varies."""
    if run is None or pool is None:
        return None
    spread = math.sqrt((run * (1 - run) + pool * (1 - pool)) / 2)
    return (pool - run) / spread if spread else None
