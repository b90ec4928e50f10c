"""Review files as they come back: read with care, every row or none."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from triagesim.errors import InputError
from triagesim.jsonl import unguarded
from triagesim.review.questions import LEVEL, asked, columns

_RATER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_NEEDED = ("rater", "item", "line", "edit")
# A table program makes 4.0 of 4.
_WHOLE = re.compile(r"(\d{1,9})(\.0)?", re.ASCII)


class Reviewed(NamedTuple):
    """What one rater said of one item: answers 1 … 5 by question, and lines anew by their place in `history`."""

    answers: dict[str, int]
    edits: dict[int, str]
    comment: str


def read_returned(paths: Iterable[Path], lines: Mapping[str, Mapping[int, str]]) -> dict[tuple[str, str], Reviewed]:
    """The reviews of all files, by rater and item.

    Args:
        lines: the spoken lines of each item, by place.

    Raises:
        InputError: a file or a row isn't what the kit asked for.
    """
    found: dict[tuple[str, str], Reviewed] = {}
    told: dict[tuple[str, str, str], str] = {}
    for path in paths:
        for number, row in _rows(path):
            where = f"{path}, line {number}"
            rater, item = row["rater"].strip(), row["item"].strip()
            if not any(cell.strip() for name, cell in row.items() if name not in ("item", "line", "speaker", "text")):
                continue
            _check_names(rater, item, lines, where)
            place = _place(row["line"].strip(), lines[item], where)
            line = "" if place is None else str(place)
            if first := told.get((rater, item, line)):
                what = f"line {line} of {item}" if line else item
                raise InputError(f"{where}: rater {rater} answered {what} already, at {first}; keep one of them")
            told[rater, item, line] = where
            review = found.setdefault((rater, item), Reviewed({}, {}, ""))
            if place is not None:
                if (text := unguarded(row["edit"]).strip()) and text != lines[item][place]:
                    review.edits[place] = text
            else:
                review.answers.update(_answers(row, where))
                found[rater, item] = review._replace(comment=unguarded(row.get("comment", "")).strip())
    return found


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a file, each with the line that it begins at; table programs may have put `;` between the cells."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}); save it as CSV UTF-8") from None
    head = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=";" if head.count(";") > head.count(",") else ",")
    try:
        yield from _named(path, reader)
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not CSV ({error}); save it as CSV UTF-8") from None


def _named(path: Path, reader: Any) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows by the names of the header; empty columns that a table program put at the end count for nothing."""
    names = _without_empty_end([name.strip() for name in next(reader, [])], 0)
    known = set(columns())
    missing, odd = [name for name in _NEEDED if name not in names], [name for name in names if name not in known]
    if missing or odd or len(set(names)) < len(names):
        problem = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(odd) or 'a column twice'}"
        raise InputError(f"{path}, line 1: the header {problem}; expected {', '.join(columns())}, as in form.csv")
    begin = reader.line_num + 1
    for row in reader:
        cells = _without_empty_end(row, len(names))
        if len(cells) > len(names):
            raise InputError(f"{path}, line {begin}: {len(cells)} cells, but the header has {len(names)}")
        if cells:
            yield begin, dict.fromkeys(columns(), "") | dict(zip(names, cells, strict=False))
        begin = reader.line_num + 1


def _without_empty_end(cells: list[str], least: int) -> list[str]:
    end = len(cells)
    while end > least and not cells[end - 1].strip():
        end -= 1
    return cells[:end]


def _check_names(rater: str, item: str, lines: Mapping[str, object], where: str) -> None:
    if not _RATER.fullmatch(rater):
        raise InputError(f"{where}: rater {rater!r}; expected an id of 1 to 32 letters, digits, . _ -, in every row")
    if item not in lines:
        raise InputError(f"{where}: item {item!r} isn't in this kit's key.csv; it may be of another kit, or mistyped")


def _place(line: str, lines: Mapping[int, str], where: str) -> int | None:
    """The line that a row is about; None for the row that answers the questions."""
    if not line:
        return None
    match = _WHOLE.fullmatch(line)
    if not match or int(match[1]) not in lines:
        raise InputError(
            f"{where}: line {line!r} is none of the dialogue's; expected one of {', '.join(map(str, lines))}"
        )
    return int(match[1])


def _answers(row: Mapping[str, str], where: str) -> dict[str, int]:
    answers = {}
    for name in (*asked().questions, LEVEL):
        cell = row.get(name, "").strip()
        if (match := _WHOLE.fullmatch(cell)) and 1 <= int(match[1]) <= 5:
            answers[name] = int(match[1])
        elif cell:
            raise InputError(f"{where}: {name} is {cell!r}; expected 1, 2, 3, 4, 5 or nothing")
    return answers
