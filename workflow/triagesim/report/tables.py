"""Tables as a page shows them: cells of text from a CSV's rows, or a long table turned over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from triagesim.resources import load_yaml

Row = Mapping[str, str]
Tables = Mapping[str, list[Row]]

#: Rows of one table that stand on the page; all of them are in its file.
MOST_ROWS = 400
#: Columns that name something, whatever they look like.
_NAMES = frozenset({"pairing", "a", "b", "name", "episode_id", "case_id"})
#: Columns that hold words of our own.
_WORDS = frozenset({"trait", "group", "level", "measure", "reason", "status", "verdict", "expected", "by"})


class Cell(NamedTuple):
    """A shown text, and whether it stands at the right like a number."""

    text: str
    number: bool


class View(NamedTuple):
    """A table of the page.

    Attributes:
        more: rows that are in the file alone.
    """

    title: str
    file: str
    header: list[str]
    rows: list[list[Cell]]
    more: int


def view(spec: Mapping[str, Any], tables: Tables) -> View | None:
    """A table as `resources/report/sections.yaml` describes it; None if the run doesn't have it or nothing is in it."""
    found = [row for row in tables.get(spec["file"], []) if fits(row, spec.get("where", {}))]
    if "measures" in spec:
        header, rows = _turned(found, spec["rows"], spec["measures"])
    else:
        columns = {name: head for name, head in spec.get("columns", {}).items() if found and name in found[0]}
        columns = columns or {name: name.replace("_", " ") for name in (found[0] if found else ())}
        header = list(columns.values())
        rows = [[shown(row[name], name) for name in columns] for row in found[:MOST_ROWS]]
        return View(spec["title"], spec["file"], header, rows, len(found) - len(rows)) if rows else None
    return View(spec["title"], spec["file"], header, rows[:MOST_ROWS], max(0, len(rows) - MOST_ROWS)) if rows else None


def fits(row: Row, where: Mapping[str, str | list[str]]) -> bool:
    """Whether each named column has the value, or one of the values; `*` stands for anything."""
    return all(
        any(fnmatchcase(row.get(name, ""), one) for one in ([wanted] if isinstance(wanted, str) else wanted))
        for name, wanted in where.items()
    )


def number(text: str | None) -> float | None:
    """A cell as a number; None if it holds none."""
    for kind in (int, float):
        try:
            return kind(text or "")
        except ValueError:
            continue
    return None


def shown(text: str, column: str = "") -> Cell:
    """A cell as a person reads it: whole numbers grouped, others with three decimals, nothing as a dash."""
    value = None if column in _NAMES | _WORDS else number(text)
    if value is None:
        words = measure_name(text) if column == "measure" else text.replace("_", " ")
        return Cell((words if column in _WORDS else text) or "–", False)
    if value != value or value in (float("inf"), float("-inf")):
        return Cell("–", True)
    if isinstance(value, int):
        return Cell(f"{value:,}", True)
    return Cell(decimals(value), True)


def measure_name(measure: str) -> str:
    """What the page calls a measure."""
    return str(load_yaml("report/measures.yaml").get(measure) or measure.replace("_", " "))


def decimals(value: float) -> str:
    """A number with three decimals, with fewer where it is large."""
    text = f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3f}"
    return text.lstrip("-") if not float(text.replace(",", "")) else text


def _turned(rows: Iterable[Row], keys: Mapping[str, str], measures: list[str]) -> tuple[list[str], list[list[Cell]]]:
    """One row for each combination of `keys`, one column for each measure that occurs, as `value (low–high)`."""
    found: dict[tuple[str, ...], dict[str, Cell]] = {}
    for row in rows:
        if row["measure"] in measures:
            cells = found.setdefault(tuple(row.get(key, "") for key in keys), {})
            cells[row["measure"]] = _with_interval(row)
    present = [measure for measure in measures if any(measure in cells for cells in found.values())]
    header = [*keys.values(), *(_capital(measure_name(measure)) for measure in present)]
    empty = Cell("–", True)
    return header, [
        [
            *(shown(part, name) for name, part in zip(keys, key, strict=True)),
            *(cells.get(measure, empty) for measure in present),
        ]
        for key, cells in found.items()
    ]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _with_interval(row: Row) -> Cell:
    value, low, high = (number(row.get(name)) for name in ("value", "low", "high"))
    if value is None:
        note = row.get("note")
        return Cell(f"– {note}" if note else "–", not note)
    if low is None or high is None:
        return Cell(decimals(value), True)
    dash = " to " if low < 0 or high < 0 else "–"
    interval = f" ({decimals(low)}{dash}{decimals(high)})"
    return Cell(decimals(value) + interval, True)
