"""Personas: the registry of traits, the models made from it, pools of personas and how an episode draws one."""

from __future__ import annotations

import difflib
import itertools
import math
import random
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

from triagesim.cases import explain
from triagesim.errors import InputError
from triagesim.jsonl import digest, read_lines
from triagesim.resources import load_yaml
from triagesim.sampling import Sampling, by_prevalence, covering
from triagesim.yaml_files import read_yaml

Role = Literal["patient", "nurse"]
ROLES: tuple[Role, ...] = get_args(Role)


class Source(BaseModel):
    """A published work. `checked` says that its record and abstract were compared with what is said here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    authors: str
    year: int
    where: str
    checked: bool


class Prevalence(BaseModel):
    """What research has counted.

    Attributes:
        levels: share of emergency patients (0 … 1) by level.
        source: a key of the registry's `sources`.
        given: the level of another trait, as {trait: level}, that the patients have of whom they are shares.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    levels: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(min_length=1)
    source: str
    given: dict[str, str] = Field(default_factory=dict, max_length=1)


class Trait(BaseModel):
    """One way in which people differ.

    Attributes:
        levels: behavioural anchor (what an observer sees or hears) by level.
        per_line: a single spoken line can show the level or contradict it; else only a whole episode can.
        prevalence: how common the levels are, as far as research has counted them.
        sources: keys of the registry's `sources`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    definition: str = Field(min_length=1)
    levels: dict[str, str] = Field(min_length=2)
    per_line: bool
    prevalence: list[Prevalence] = Field(default_factory=list)
    sources: list[str] = Field(min_length=1)

    @property
    def given(self) -> str | None:
        """The trait whose level the prevalences depend on."""
        return next((name for statement in self.prevalence for name in statement.given), None)

    @model_validator(mode="after")
    def _counted_levels_exist(self) -> Self:
        shares: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
        for statement in self.prevalence:
            if unknown := statement.levels.keys() - self.levels.keys():
                raise ValueError(f"prevalence names no level of the trait: {', '.join(sorted(unknown))}")
            found = shares.setdefault(tuple(statement.given.items()), {})
            if twice := found.keys() & statement.levels.keys():
                raise ValueError(f"prevalence has two shares for {', '.join(sorted(twice))}")
            found.update(statement.levels)
        for found in shares.values():
            whole = sum(found.values())
            if whole > 1 + 1e-9 or (found.keys() == self.levels.keys() and whole < 1 - 1e-9):
                raise ValueError("shares in prevalence add up to 1, or to less where levels have none")
        if len({tuple(dict(given)) for given in shares}) > 1:
            raise ValueError("prevalence: give all shares, or none, by the levels of one other trait")
        return self


class Registry(BaseModel):
    """All traits of a role, and every persona that they allow, numbered from 0.

    The numbers follow the traits and levels in the file's order, the last trait changing fastest; combinations that
    hold both halves of an incompatible pair have no number.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Role
    traits: dict[str, Trait]
    incompatible: list[dict[str, str]]
    sources: dict[str, Source]

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        for pair in self.incompatible:
            known = all(name in self.traits and level in self.traits[name].levels for name, level in pair.items())
            if len(pair) != 2 or not known:
                raise ValueError(f"incompatible: expected two traits, each with one of its levels, found {pair}")
        before: dict[str, Trait] = {}
        for trait in self.traits.values():
            for key in [*trait.sources, *(statement.source for statement in trait.prevalence)]:
                if key not in self.sources:
                    raise ValueError(f"traits.{trait.name}: {key!r} is not among the sources")
            if trait.given:
                self._check_given(trait, before)
            before[trait.name] = trait
        return self

    def _check_given(self, trait: Trait, before: Mapping[str, Trait]) -> None:
        """By what shares may be given: one draw after the other has to be possible."""
        other = before.get(trait.given or "")
        levels = {level for statement in trait.prevalence for level in statement.given.values()}
        paired = any(trait.name in pair for pair in self.incompatible)
        if other is None or other.given or not levels <= other.levels.keys() or paired:
            raise ValueError(
                f"traits.{trait.name}: shares are given by a trait that stands before it, has none given itself and "
                f"has the levels {', '.join(sorted(levels))}; and not for a trait in `incompatible`"
            )

    @cached_property
    def _personas(self) -> list[tuple[str, ...]]:
        names = list(self.traits)
        barred = [[(names.index(name), level) for name, level in pair.items()] for pair in self.incompatible]
        product = itertools.product(*(trait.levels for trait in self.traits.values()))
        return [levels for levels in product if not any(levels[i] == a and levels[j] == b for (i, a), (j, b) in barred)]

    @cached_property
    def _numbers(self) -> dict[tuple[str, ...], int]:
        return {levels: number for number, levels in enumerate(self._personas)}

    @property
    def size(self) -> int:
        """How many personas there are."""
        return len(self._personas)

    def at(self, number: int) -> dict[str, str]:
        """The persona with this number, 0 … size - 1, as level by trait."""
        return dict(zip(self.traits, self._personas[number], strict=True))

    def index(self, levels: Mapping[str, str]) -> int:
        """The number of a persona (level by trait; other keys are ignored).

        Raises:
            InputError: no persona of the registry has these levels.
        """
        try:
            return self._numbers[tuple(levels[name] for name in self.traits)]
        except KeyError:
            raise InputError(f"no {self.role} persona of the registry has the levels {dict(levels)}") from None


@cache
def registry(role: Role) -> Registry:
    """The traits of a role, from `resources/personas/<role>.yaml`.

    Raises:
        InputError: the file isn't there, isn't YAML or doesn't describe traits.
    """
    name = f"personas/{role}.yaml"
    try:
        content = load_yaml(name)
        if not isinstance(content, dict) or not isinstance(content.get("traits"), dict):
            raise InputError(f"resources/{name}: expected the keys role, traits, incompatible and sources")
        traits = {key: {"name": key, **entry} for key, entry in content["traits"].items()}
        return Registry.model_validate({**content, "traits": traits})
    except ValidationError as error:
        raise InputError(f"resources/{name}: {explain(error)}") from None
    except (OSError, TypeError) as error:
        raise InputError(f"resources/{name}: can't be read as a registry of traits ({error})") from None


#: The pairs of levels, over both roles, that contradict each other by definition.
INCOMPATIBLE: tuple[dict[str, str], ...] = tuple(pair for role in ROLES for pair in registry(role).incompatible)


class Persona(BaseModel):
    """What every persona has beside its traits.

    Attributes:
        gender: a trait of a nurse; a patient's comes from the case and is filled in when an episode begins.
        ethnicity, instruction: for the choice and direction of a voice; stored, never shown to a model.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: ClassVar[Role]

    gender: str | None = None
    ethnicity: str | None = None
    instruction: str | None = None

    @model_validator(mode="after")
    def _no_contradiction(self) -> Self:
        for pair in registry(self.role).incompatible:
            if all(getattr(self, name) == level for name, level in pair.items()):
                both = " and ".join(f"{name} {level}" for name, level in pair.items())
                raise ValueError(f"{both} contradict each other; change one of them")
        return self


def _model(name: str, role: Role) -> type[Persona]:
    """A pydantic model with a required field a trait, whose type is the literal names of the levels."""
    traits = registry(role).traits.values()
    fields: dict[str, Any] = {
        trait.name: (Literal[tuple(trait.levels)], Field(description=trait.definition)) for trait in traits
    }
    model = create_model(name, __base__=Persona, __module__=__name__, __doc__=f"A {role}'s persona.", **fields)
    model.role = role
    return model


PatientPersona: type[Persona] = _model("PatientPersona", "patient")
NursePersona: type[Persona] = _model("NursePersona", "nurse")
#: The model of each role's personas.
PERSONAS: dict[Role, type[Persona]] = {"patient": PatientPersona, "nurse": NursePersona}


def traits_of(persona: Persona) -> dict[str, str]:
    """Level by trait: all of a persona that a model may be shown."""
    return {name: getattr(persona, name) for name in registry(persona.role).traits}


class Anchored(NamedTuple):
    """A level of a trait and what an observer sees or hears of it."""

    level: str
    anchor: str


def anchors(role: Role, levels: Mapping[str, str]) -> dict[str, Anchored]:
    """Level and behavioural anchor by trait, for the traits in `levels`, in the registry's order."""
    traits = registry(role).traits
    return {name: Anchored(levels[name], traits[name].levels[levels[name]]) for name in traits if name in levels}


def generate(role: Role, sampling: Sampling = "all", n: int | None = None, seed: int = 0) -> Iterator[dict[str, str]]:
    """Personas as level by trait, in the registry's order.

    Args:
        sampling: `all` there are; `uniform`: `n` different ones, each as likely as any other; `prevalence`: `n` as
            common as the registry says, some maybe twice; `covering`: a few that have every pair of levels.
        n: how many, for `uniform` and `prevalence`. A larger `n` with the same seed holds all of a smaller one's.

    Raises:
        InputError: `n` isn't there where it has to be, or isn't from 1 to the number of personas there are.
    """
    known = registry(role)
    numbers: Iterable[int] = range(known.size)
    if sampling == "covering":
        numbers = covering(known, seed)
    elif sampling != "all" and (n is None or not 1 <= n <= known.size):
        raise InputError(f"{sampling} sampling of {role} personas: n is {n}; expected 1 to {known.size:,}")
    elif sampling == "prevalence":
        numbers = by_prevalence(known, n or 0, seed)
    elif sampling == "uniform":
        # Of a seeded generator only random() is promised to stay the same in later versions of Python.
        generator = random.Random(f"{seed}|{role}")
        order = [generator.random() for _ in numbers]
        numbers = sorted(sorted(numbers, key=order.__getitem__)[:n])
    return map(known.at, numbers)


class Pool:
    """The personas that the episodes of a run draw from.

    A seed and an episode's id put the whole registry in an order; the member that comes first is drawn. So a draw
    depends on nothing else, every member is as likely as any other, and a persona added to the pool takes over the
    episodes in whose order it comes first and changes no other draw. Members with the same traits count as a second,
    third … layer, each with an order of its own.

    Raises:
        InputError: there are no personas, or one is of the other role.
    """

    def __init__(self, personas: Iterable[Persona], role: Role) -> None:
        self.role = role
        self._members: list[Persona] = []
        self._layers: dict[tuple[str | None, str | None], list[dict[int, Persona]]] = {}
        for persona in personas:
            if persona.role != role:
                raise InputError(
                    f"a {persona.role} persona is in a pool of {role} personas; swap the two files or lists"
                )
            self._members.append(persona)
        if not self._members:
            raise InputError(f"the pool of {role} personas is empty; give at least one")

    @cached_property
    def digest(self) -> str:
        """A hash of the personas and of the registry's wording for them."""
        members = sorted(persona.model_dump_json() for persona in self._members)
        return digest([members, load_yaml(f"personas/{self.role}.yaml")])

    def draw(self, seed: int, episode_id: str, gender: str | None = None, age_group: str | None = None) -> Persona:
        """The persona of an episode.

        Args:
            gender, age_group: of the case. Where they are known and the pool has members of that age group, and of that
                gender or of none, one of these is drawn: what goes with an age in the pool goes with it in the run.
        """
        firsts = []
        layers = self._layers_of(gender, age_group)
        for depth, layer in enumerate(layers):
            order = _Order(f"{seed}|{self.role}|{depth}|{episode_id}", _prime_from(registry(self.role).size))
            number = order.first(layer)
            firsts.append((order.rank(number), depth, number))
        _, depth, number = min(firsts)
        return layers[depth][number]

    def _layers_of(self, gender: str | None, age_group: str | None) -> list[dict[int, Persona]]:
        """The members that a case's gender and age group leave, by number; those with one number in several layers."""
        if (gender, age_group) not in self._layers:
            fitting = [
                persona
                for persona in self._members
                if gender is None or persona.gender in (None, gender)
                if age_group is None or getattr(persona, "age_group", age_group) == age_group
            ]
            layers: list[dict[int, Persona]] = []
            for persona in fitting or self._members:
                number = registry(self.role).index(traits_of(persona))
                layer = next((layer for layer in layers if number not in layer), None)
                if layer is None:
                    layers.append(layer := {})
                layer[number] = persona
            self._layers[gender, age_group] = layers
        return self._layers[gender, age_group]


class _Order:
    """A permutation of 0 … p - 1 for a prime p, chosen by a key: x -> a / (x + b) + c modulo p, with 1 / 0 = 0.

    It can be computed both ways, so the first of a small set is found by ranking the set, and that of a large one by
    walking through the order: in about the square root of p steps at most, either way.
    """

    def __init__(self, key: str, prime: int) -> None:
        digest = sha256(key.encode()).digest()
        a, b, c = (int.from_bytes(digest[i : i + 8], "big") for i in (0, 8, 16))
        self._a, self._b, self._c, self._prime = 1 + a % (prime - 1), b % prime, c % prime, prime
        self._inverse = _inverses(prime)

    def rank(self, number: int) -> int:
        """At which place `number` comes."""
        return (self._a * self._inverse((number + self._b) % self._prime) + self._c) % self._prime

    def at(self, rank: int) -> int:
        """Which number comes at place `rank`."""
        return (self._a * self._inverse((rank - self._c) % self._prime) - self._b) % self._prime

    def first(self, numbers: Collection[int]) -> int:
        """Which of `numbers` comes first."""
        if len(numbers) ** 2 < self._prime:
            return min(numbers, key=self.rank)
        return next(number for number in map(self.at, range(self._prime)) if number in numbers)


#: The largest prime whose inverses are kept (8 MB). A draw asks for some hundred; to compute one takes twice as long.
_LARGEST_TABLE = 2**20


@cache
def _inverses(prime: int) -> Callable[[int], int]:
    """What gives the inverse of a number below a prime modulo it; 0 for 0."""
    if prime > _LARGEST_TABLE:
        return lambda number: pow(number, -1, prime) if number else 0
    found = array("L", [0, 1])
    for number in range(2, prime):
        found.append(prime - prime // number * found[prime % number] % prime)
    return found.__getitem__


@cache
def _prime_from(least: int) -> int:
    """The smallest prime that is at least `least` and at least 2."""
    return next(n for n in itertools.count(max(least, 2)) if all(n % d for d in range(2, math.isqrt(n) + 1)))


def for_case(persona: Persona, gender: str | None, age_group: str | None, *, seed: int, episode_id: str) -> Persona:
    """A patient's persona with the case's gender and age group.

    Where the case has no gender the persona keeps its own; where neither has one, the seed and the episode's id choose
    female or male, each as likely. Where the case has no age group the persona keeps its own.
    """
    drawn = ("female", "male")[sha256(f"{seed}|gender|{episode_id}".encode()).digest()[0] % 2]
    update = {"gender": gender or persona.gender or drawn}
    return persona.model_copy(update=update | ({"age_group": age_group} if age_group else {}))


#: So many of a file's faulty personas are named.
_MOST_FAULTS = 20


def load_personas(path: str | Path, cls: type[Persona]) -> list[Persona]:
    """Load personas from a `.jsonl` pool (one object a line) or a `.yaml` list, in the file's order.

    Raises:
        InputError: the file isn't there, isn't of these kinds, is empty, or an entry isn't such a persona.
    """
    path, personas, faults = Path(path), [], []
    for place, row in _read_rows(path, cls.role):
        try:
            personas.append(cls.model_validate(row))
        except ValidationError as error:
            faults.append(f"{place}: {_problems(error, cls)}")
    if len(faults) == 1:
        raise InputError(f"{path}, {faults[0]}")
    if faults:
        more = [f"and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
        lines = "\n  ".join(faults[:_MOST_FAULTS] + more)
        raise InputError(f"{path}: {len(faults)} personas are faulty\n  {lines}")
    if not personas:
        raise InputError(f"{path}: holds no personas; give at least one, or leave the file out")
    return personas


def _read_rows(path: Path, role: Role) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (where it stands in the file, raw persona)."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a .jsonl pool or a .yaml list of {role} personas")
    if path.suffix.lower() == ".jsonl":
        yield from ((f"line {number}", row) for number, row in read_lines(path, own=True))
    elif path.suffix.lower() in {".yaml", ".yml"}:
        yield from _read_yaml(path)
    else:
        raise InputError(f"{path}: unknown kind of persona file {path.suffix!r}; expected .jsonl, .yaml or .yml")


def _read_yaml(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    items = read_yaml(path)
    if not isinstance(items, list | None):
        raise InputError(f"{path}: expected a list (each persona begins with a dash), found {type(items).__name__}")
    for number, item in enumerate(items or [], 1):
        if not isinstance(item, dict):
            raise InputError(f"{path}, item {number}: expected traits and levels, found {type(item).__name__}")
        yield f"item {number}", item


def _problems(error: ValidationError, cls: type[Persona]) -> str:
    """What is wrong with one persona, each problem with its key, what was expected and a likely correction."""
    traits, problems, meant = registry(cls.role).traits, [], set()
    for item in sorted(error.errors(), key=lambda item: item["type"] != "extra_forbidden"):
        key = ".".join(map(str, item["loc"]))
        if item["type"] == "extra_forbidden":
            close = difflib.get_close_matches(key, cls.model_fields, n=1)
            meant.update(close)
            problems.append(f"{key!r} is no key of a {cls.role} persona{_did_you_mean(close)}")
        elif key not in traits:
            problems.append(f"{key}: {item['msg']}".removeprefix(": ").removeprefix("Value error, "))
        elif item["type"] != "missing":
            found, levels = str(item["input"]), traits[key].levels
            close = difflib.get_close_matches(found, levels, n=1)
            problems.append(f"{key} is {found!r:.60}; expected {' or '.join(levels)}{_did_you_mean(close)}")
        elif key not in meant:
            problems.append(f"{key!r} is missing; expected {' or '.join(traits[key].levels)}")
    return "; ".join(problems)


def _did_you_mean(close: list[str]) -> str:
    return f" (did you mean {close[0]!r}?)" if close else ""
