"""How pools of personas are chosen from the registry, by prevalence or to cover pairs; the weights of a pool's mix."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from triagesim.errors import InputError

if TYPE_CHECKING:
    from triagesim.personas import Registry

Sampling = Literal["all", "uniform", "prevalence", "covering"]
#: What stands as the source of a weight that no research gives: two or more levels share evenly what is left.
DESIGN_CHOICE = "design choice"
#: The columns of `<role>.weights.csv`.
WEIGHTS_HEADER = ["trait", "level", "given", "weight", "source", "personas", "share"]

_EVEN = "every persona alike"
#: A covering array is the smallest of so many, each grown row by row, a row being the best of so many.
_TRIES, _CANDIDATES = 20, 20
#: Rounds of fitting at most, and how far a share may then be off.
_ROUNDS, _TOLERANCE = 500, 1e-9

Levels = tuple[str, ...]
#: A trait and its level.
Item = tuple[str, str]
#: Levels by level: the second of each pair by the first, both ways round.
Pairs = dict[Item, set[Item]]
T = TypeVar("T")


class Weight(NamedTuple):
    """The share of a level that a sampling aims at.

    Attributes:
        given: the level of another trait among whose personas it holds.
        weight: 0 … 1; None where the sampling aims at none.
        source: a key of the registry's sources, or what decides in its place.
    """

    trait: str
    level: str
    given: Item | None
    weight: float | None
    source: str


# -- prevalence


def by_prevalence(known: Registry, n: int, seed: int) -> list[int]:
    """The numbers of `n` personas, drawn independently and in order of number; the same one may come twice.

    A trait is drawn by the weights of `declared`, alone or given the level of another. The traits of incompatible pairs
    are drawn together, with the weights of each as declared. A larger `n` with the same seed holds all of a smaller.

    Raises:
        InputError: the weights of an incompatible pair can't all hold.
    """
    tables = _tables(known)
    names, together = _together(known, tables)
    # Of a seeded generator only random() is promised to stay the same in later versions of Python.
    generator = random.Random(f"{seed}|{known.role}|prevalence")
    numbers = []
    for _ in range(n):
        drawn: Levels = _drawn(together, generator.random())
        levels = dict(zip(names, drawn, strict=True))
        for name, trait in known.traits.items():
            if name not in levels:
                given = trait.given
                levels[name] = _drawn(tables[name][(given, levels[given]) if given else None], generator.random())
        numbers.append(known.index(levels))
    return sorted(numbers)


def declared(known: Registry) -> list[Weight]:
    """The weight of every level under `prevalence`: what research counted, and even parts of what it leaves."""
    weights = []
    for name, trait in known.traits.items():
        for given in [(trait.given, level) for level in known.traits[trait.given].levels] if trait.given else [None]:
            counted = {
                level: (share, statement.source)
                for statement in trait.prevalence
                if statement.given == (dict([given]) if given else {})
                for level, share in statement.levels.items()
            }
            others = len(trait.levels) - len(counted)
            left = 1 - sum(share for share, _ in counted.values())
            # The share of the one level that is left follows from the others.
            basis = ", ".join(dict.fromkeys(source for _, source in counted.values())) if others == 1 else DESIGN_CHOICE
            for level in trait.levels:
                share, source = counted.get(level) or (left / others, basis)
                weights.append(Weight(name, level, given, share, source))
    return weights


def _tables(known: Registry) -> dict[str, dict[Item | None, dict[str, float]]]:
    """The declared weights: by trait, by what they are given, by level."""
    tables: dict[str, dict[Item | None, dict[str, float]]] = {}
    for trait, level, given, weight, _ in declared(known):
        tables.setdefault(trait, {}).setdefault(given, {})[level] = weight or 0.0
    return tables


def _together(known: Registry, tables: Mapping[str, Any]) -> tuple[list[str], dict[Levels, float]]:
    """The traits of incompatible pairs, and the weights of their combinations without the incompatible ones.

    Iterative proportional fitting: of all weights by which each level has its declared share, those that are nearest to
    drawing the traits independently.

    Raises:
        InputError: there are none.
    """
    names = [name for name in known.traits if any(name in pair for pair in known.incompatible)]
    shares = [tables[name][None] for name in names]
    cells = {
        levels: math.prod(share[level] for share, level in zip(shares, levels, strict=True))
        for levels in itertools.product(*shares)
        if not _barred(known, dict(zip(names, levels, strict=True)))
    }
    for _ in range(_ROUNDS):
        worst = 0.0
        for place, share in enumerate(shares):
            totals = dict.fromkeys(share, 0.0)
            for levels, weight in cells.items():
                totals[levels[place]] += weight
            worst = max([worst, *(abs(totals[level] - wanted) for level, wanted in share.items())])
            cells = {
                levels: weight * share[levels[place]] / totals[levels[place]] if weight else 0.0
                for levels, weight in cells.items()
            }
        if worst < _TOLERANCE:
            return names, cells
    raise InputError(
        f"resources/personas/{known.role}.yaml: the prevalences of {', '.join(names)} can't all hold, because "
        "`incompatible` bars some of their combinations; lower those of the levels that it names"
    )


def _barred(known: Registry, levels: Mapping[str, str]) -> bool:
    return any(all(levels.get(name) == level for name, level in pair.items()) for pair in known.incompatible)


def _drawn(weights: Mapping[T, float], at: float) -> T:
    """The key at a place from 0 to 1 of the weights, one behind the other."""
    for key, upto in zip(weights, itertools.accumulate(weights.values()), strict=True):
        if at < upto:
            return key
    return next(key for key in reversed(list(weights)) if weights[key])


# -- covering


def covering(known: Registry, seed: int) -> list[int]:
    """The numbers of a few personas in which every compatible pair of levels of two traits occurs.

    Rows are added greedily, each the best of some that begin with a pair that is still to be covered (as AETG does:
    D. M. Cohen and others, IEEE Transactions on Software Engineering 23(7), 1997), over several tries. It is small, not
    proven to be the smallest.

    Raises:
        InputError: a pair that isn't barred has no persona.
    """
    tries = [_cover(known, random.Random(f"{seed}|{known.role}|covering|{number}")) for number in range(_TRIES)]
    smallest = min(tries, key=len)
    numbers = sorted(smallest)
    assert not uncovered(known, numbers), "a pair of levels is in none of the personas"
    return numbers


def uncovered(known: Registry, numbers: Iterable[int]) -> list[dict[str, str]]:
    """The compatible pairs of levels, each as level by trait, that none of these personas has."""
    left = _compatible(known)
    for number in numbers:
        row = set(known.at(number).items())
        for item in row:
            left[item] -= row
    return [dict((item, other)) for item, others in left.items() for other in sorted(others) if item < other]


def _cover(known: Registry, generator: random.Random) -> list[int]:
    compatible = _compatible(known)
    left = {item: set(others) for item, others in compatible.items()}
    numbers = []
    while waiting := [(item, other) for item, others in left.items() for other in sorted(others) if item < other]:
        begins = [waiting[int(generator.random() * len(waiting))] for _ in range(_CANDIDATES)]
        rows = [row for pair in begins if (row := _row(known, pair, left, compatible, generator)) is not None]
        if not rows:
            raise InputError(f"no {known.role} persona has {dict(begins[0])}, which `incompatible` doesn't bar")
        best = max(rows, key=lambda row: sum(len(left[item] & row) for item in row))
        for item in best:
            left[item] -= best
        numbers.append(known.index(dict(best)))
    return numbers


def _row(
    known: Registry, begin: tuple[Item, Item], left: Pairs, compatible: Pairs, generator: random.Random
) -> set[Item] | None:
    """A persona that has a pair, its other traits in random order each at the level that covers most; None if stuck."""
    row = set(begin)
    others = [name for name in known.traits if name not in dict(begin)]
    for name in sorted(others, key=lambda _: generator.random()):
        items = [(name, level) for level in known.traits[name].levels]
        choices = [(len(left[item] & row), generator.random(), item) for item in items if row <= compatible[item]]
        if not choices:
            return None
        row.add(max(choices)[2])
    return row


def _compatible(known: Registry) -> Pairs:
    """The levels of other traits that each level may stand beside."""
    items = [(name, level) for name, trait in known.traits.items() for level in trait.levels]
    barred = [set(pair.items()) for pair in known.incompatible]
    return {item: {other for other in items if other[0] != item[0] and {item, other} not in barred} for item in items}


# -- the mix


class Mix:
    """The levels of a pool's personas beside the weights that its sampling aims at.

    Args:
        sampling: None for a user's own personas.

    Attributes:
        personas: how many there were.
    """

    def __init__(self, known: Registry, sampling: Sampling | None) -> None:
        self._weights = list(_aims(known, sampling))
        self._givens = [(name, trait.given) for name, trait in known.traits.items() if trait.given]
        self._counts: Counter[Any] = Counter()
        self.personas = 0

    def watch(self, personas: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Pass personas (level by trait) through and count them."""
        for persona in personas:
            self.personas += 1
            self._counts.update(persona.items())
            self._counts.update((name, persona[name], given, persona[given]) for name, given in self._givens)
            yield persona

    def table(self) -> Iterator[list[Any]]:
        """The rows of `WEIGHTS_HEADER`: the weight of each level, how many personas have it, and their share.

        A weight that is given another trait's level is for the personas with that level, and so is the share.
        """
        for trait, level, given, weight, source in self._weights:
            count = self._counts[trait, level, *(given or ())]
            among = self._counts[given] if given else self.personas
            share = round(count / among, 4) if among else None
            shown = None if weight is None else round(weight, 4)
            yield [trait, level, " ".join(given) if given else "", shown, source, count, share]


def _aims(known: Registry, sampling: Sampling | None) -> Iterator[Weight]:
    if sampling == "prevalence":
        yield from declared(known)
        return
    aim = {"covering": "every pair of levels", None: "own personas"}.get(sampling, _EVEN)
    shares = _shares_of_all(known) if aim == _EVEN else {}
    for name, trait in known.traits.items():
        for level in trait.levels:
            yield Weight(name, level, None, shares.get((name, level)), aim)


def _shares_of_all(known: Registry) -> dict[Item, float]:
    """The share of each level among all personas of the registry."""
    names = [name for name in known.traits if any(name in pair for pair in known.incompatible)]
    rows = [
        dict(zip(names, levels, strict=True)) for levels in itertools.product(*(known.traits[n].levels for n in names))
    ]
    allowed = [row for row in rows if not _barred(known, row)]
    shares = {(n, level): 1 / len(trait.levels) for n, trait in known.traits.items() for level in trait.levels}
    counts = Counter(item for row in allowed for item in row.items())
    return shares | {item: count / len(allowed) for item, count in counts.items()}
