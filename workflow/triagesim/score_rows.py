"""The row of an episode in `results/scores`: its scores and all that the breakdowns need of it."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from itertools import compress
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import msgspec

from triagesim.cases import age_group_of
from triagesim.errors import InputError
from triagesim.jsonl import parse_line, unguarded, write_table
from triagesim.personas import ROLES, Role, registry
from triagesim.scoring import SCORE_KEYS, leaked_label, levels_held, other_scale, outcome, score
from triagesim.stored import Turn, check_episode

HEAD = ("pairing", "episode_id", "case_id", "status", "algorithm", "other_scale", "leaked_label", "labels")
#: After the scores: how it is counted, what it is grouped by, and what was thought on the way.
MORE = ("outcome", "reason", "subject", "gender", "age_group", "arrival", "confidence", "levels")
#: Between two levels in the column `levels`.
STEP = ">"

_FAILED_CALL = re.compile(r"^\S+?/([a-z_]+)[/:]")
_WORDS = {"true": True, "false": False, "": None}
#: Columns that are numbers or truth values as soon as they have a value.
_TYPED = frozenset({*SCORE_KEYS, "other_scale", "leaked_label"} - {"end_reason"})


@cache
def columns() -> tuple[str, ...]:
    """The columns of a row: the head, the scores, the rest, and every trait of the personas as `<role>_<trait>`."""
    return (*HEAD, *SCORE_KEYS, *MORE, *(f"{role}_{trait}" for role, trait in traits()))


@cache
def traits() -> tuple[tuple[Role, str], ...]:
    """Every (role, trait) of the registry, in its order."""
    return tuple((role, trait) for role in ROLES for trait in registry(role).traits)


def write_scores(episodes: Path, out: Path) -> None:
    """Score a shard: one row an episode, with `columns()`."""
    write_table(out, columns(), map(row_of, read_scored(episodes, whole=True)))


def row_of(episode: Mapping[str, Any]) -> list[Any]:
    """The row of an episode; what it doesn't have is None."""
    case = episode["case"]
    labels = sorted(set((episode.get("labels") or {}).values()))
    scores = score(episode)
    steps = episode.get("trace") or []
    arrival = case.get("arrival_transport")
    row = [episode.get("pairing"), episode["episode_id"], case["case_id"], episode["status"]]
    row += [episode.get("algorithm"), other_scale(episode), leaked_label(episode), "; ".join(labels)]
    row += scores.values()
    row += [outcome(episode, scores), _reason(episode), _subject(case.get("subject_id")), case.get("gender")]
    row += [age_group_of(case.get("age")), arrival and " ".join(str(arrival).lower().split())]
    row += [steps[-1].get("confidence") if steps else None, STEP.join(map(str, levels_held(steps))) or None]
    personas = {role: episode.get(f"{role}_persona") or {} for role in ROLES}
    return [*row, *(personas[role].get(trait) for role, trait in traits())]


class _Check(TypedDict, total=False):
    passed: bool | None
    rejected: list[msgspec.Raw]
    edited: Any


class _Line(TypedDict):
    turn: Turn
    actor: Literal["nurse", "patient", "system"]
    event: NotRequired[Any]
    value: NotRequired[Any]
    verification: NotRequired[_Check | None]


class _Step(TypedDict):
    turn: Turn
    action: NotRequired[Any]
    triage: NotRequired[Any]
    confidence: NotRequired[Any]


class _Case(TypedDict):
    case_id: str
    subject_id: NotRequired[Any]
    acuity: NotRequired[Any]
    acuity_scale: NotRequired[Any]
    gender: NotRequired[str | None]
    age: NotRequired[float | None]
    arrival_transport: NotRequired[str | None]


class _Scored(TypedDict):
    """What scores, rows and the choice of the pool read of an episode; the rest of a line is passed over."""

    episode_id: str
    status: Literal["ok", "skipped", "error"]
    case: _Case
    algorithm: str
    pairing: NotRequired[Any]
    error: NotRequired[Any]
    skip_reason: NotRequired[Any]
    in_situ: NotRequired[Any]
    models: NotRequired[Any]
    labels: NotRequired[dict[str, str]]
    features: NotRequired[Any]
    nurse_persona: NotRequired[dict[str, str | None]]
    patient_persona: NotRequired[dict[str, str | None]]
    end_reason: NotRequired[str | None]
    final_triage: NotRequired[Any]
    num_turns: NotRequired[Turn]
    history: NotRequired[list[_Line]]
    trace: NotRequired[list[_Step]]
    red_flags: NotRequired[list[msgspec.Raw]]


def read_scored(path: Path, *, whole: bool = False) -> Iterator[Mapping[str, Any]]:
    """Yield the episodes of a file as far as `score` and `row_of` read them, several times as fast as `read_lines`.

    A line of another form than ours is read in full, and is an error if it has to be a `whole` episode.

    Raises:
        InputError: as `read_lines` does; with `whole`, as `read_episodes` does.
    """
    decode = msgspec.json.Decoder(_Scored).decode
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                yield decode(raw)
            except msgspec.MsgspecError:
                row = parse_line(path, number, raw)
                if row is None:
                    continue
                if whole:
                    check_episode(path, number, row)
                yield row


class Scores:
    """Score rows as columns of text, as they stand in their files.

    Attributes:
        columns: the cells by column, one a row.
    """

    def __init__(self, columns: Mapping[str, Sequence[str]]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, column: str) -> Sequence[str]:
        return self.columns[column]

    def where(self, column: str, value: str) -> Scores:
        """The rows that have a value in a column."""
        chosen = [cell == value for cell in self[column]]
        return Scores({name: list(compress(cells, chosen)) for name, cells in self.columns.items()})

    def by(self, column: str) -> dict[str, Scores]:
        """The rows by what they have in a column."""
        places: dict[str, list[int]] = {}
        for place, cell in enumerate(self[column]):
            places.setdefault(cell, []).append(place)
        return {
            value: Scores({name: [cells[place] for place in chosen] for name, cells in self.columns.items()})
            for value, chosen in places.items()
        }

    def rows(self) -> list[dict[str, Any]]:
        """The head and the scores as one mapping a row, numbers and truth values as such."""
        names = (*HEAD, *SCORE_KEYS)
        cells = [map(_value, self[name]) if name in _TYPED else self[name] for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True)]


def read_scores(paths: Iterable[Path]) -> Scores:
    """The rows of all score tables, in the order of the paths.

    Raises:
        InputError: a table isn't as `write_scores` makes it.
    """
    cells: dict[str, list[str]] = {name: [] for name in columns()}
    # Most cells say what many others say: each text is held once.
    known: dict[str, str] = {}
    for path in paths:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            header = tuple(next(rows, ()))
            try:
                body = list(zip(*rows, strict=True))
            except ValueError:
                body = [()]
        if header != columns() or len(body) not in (0, len(header)):
            raise InputError(f"{path}: other columns than this version writes; delete the file and run again")
        for name, column in zip(header, body, strict=False):
            cells[name] += (known.setdefault(cell, cell) for cell in map(unguarded, column))
    return Scores(cells)


@cache
def _value(text: str) -> bool | float | None:
    if text in _WORDS:
        return _WORDS[text]
    return float(text) if "." in text or "e" in text else int(text)


def _reason(episode: Mapping[str, Any]) -> str | None:
    """Why an episode was skipped, or which call failed, in words that several episodes share."""
    if episode.get("status") == "skipped":
        if episode.get("in_situ"):  # the master's own words are in the episode, and no two are alike
            return "the dialogue master expects no conversation"
        return episode.get("skip_reason")
    if episode.get("status") == "error":
        call = _FAILED_CALL.match(str(episode.get("error")))
        return f"{call[1].replace('_', ' ')} call" if call else "other"
    return None


def _subject(subject: Any) -> str | None:
    """A patient's key: tells whose cases are one patient's and isn't the source's id."""
    return None if subject in (None, "") else sha256(f"subject {subject}".encode()).hexdigest()[:12]
