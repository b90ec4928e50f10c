"""Reads the rows of a case file: JSON Lines, a JSON list, or a table in any usual encoding and delimiter."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

from triagesim.errors import InputError
from triagesim.jsonl import OddValue, loads, object_of
from triagesim.resources import is_there

ID_COLUMNS = ("case_id", "stay_id")
_DELIMITERS = ",;\t|"
# What the items of a JSON list are told apart by: whole texts, brackets and braces, commas.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},]', re.DOTALL)
# The id of a row that isn't read any further.
_ID = re.compile(rf'"(?:{"|".join(ID_COLUMNS)})"\s*:\s*"?([A-Za-z0-9._-]+)')
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class BadRow(NamedTuple):
    """A row that can't be read as a case: a reason code of `resources/quality.yaml`, what is wrong, the id if known."""

    code: str
    text: str
    case_id: str = ""


Values = dict[str, Any]


class Table(NamedTuple):
    """An open CSV table.

    Attributes:
        rows: (line where the row ends, its cells), a row with another number of cells than the header as `BadRow`.
    """

    columns: list[str]
    rows: Iterator[tuple[int, list[str] | BadRow]]


def read_rows(path: Path) -> Iterator[tuple[int, Values | BadRow]]:
    """Yield (line or item number, raw row) of a case file: `.jsonl`, `.json` (a list) or `.csv`, also `.csv.gz`.

    Raises:
        InputError: the file isn't there, isn't of these kinds, or can't be read as what it says it is.
    """
    if not is_there(path):
        raise InputError(
            f"{path}: no such file; data.source (or --cases) names a .jsonl, .json or .csv of cases, or a folder of "
            "MIMIC-IV-ED"
        )
    kind = path.with_suffix("").suffix if path.suffix.lower() == ".gz" else path.suffix
    reader = {".jsonl": _read_lines, ".json": _read_json, ".csv": _read_csv}.get(kind.lower())
    if reader is None or (kind != path.suffix and reader is not _read_csv):
        raise InputError(f"{path}: unknown kind of case file {path.suffix!r}; expected .jsonl, .json or .csv")
    return reader(path)


@contextmanager
def open_table(path: Path, anchors: tuple[str, ...] = ID_COLUMNS) -> Iterator[Table]:
    """Open a CSV table, also a gzipped one: UTF-8 with or without BOM, or UTF-16 with one.

    Args:
        anchors: the header holds one of these; by it the delimiter is told (comma, semicolon, tab or bar).

    Raises:
        InputError: it has no such column, a column twice, or isn't text or CSV (also while the rows are read).
    """
    reader: Any = None
    try:
        with _open_text(path) as file:
            first = file.readline()
            delimiter, columns = _header(path, first, anchors)
            reader = csv.reader(chain([first], file), delimiter=delimiter, strict=True)
            next(reader)
            yield Table(columns, _cells(reader, len(columns)))
    except UnicodeError as error:
        reason = getattr(error, "reason", error)
        raise InputError(
            f"{path}{_bad_line(path)}: not UTF-8 ({reason}); save the file as UTF-8 (table programs: CSV UTF-8)"
        ) from None
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not CSV ({error})") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: not whole gzip data ({error}); fetch it anew") from None


def require_columns(path: Path, columns: Iterable[str], needed: Iterable[str], renamed: dict[str, str]) -> None:
    """Check that a table has its columns.

    Args:
        renamed: names that other copies give a column, with the name that is read here.

    Raises:
        InputError: one is missing; with what is to be renamed.
    """
    found = list(columns)
    missing = [name for name in needed if name not in found]
    if missing:
        changes = [f"{name} to {renamed[name]}" for name in found if renamed.get(name) in missing]
        hint = f"; rename {', '.join(changes)}" if changes else f"; there are {', '.join(found)}"
        raise InputError(f"{path}, line 1: no column {', '.join(missing)}{hint}")


def _open_text(path: Path) -> IO[str]:
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rb") as file:
        encoding = "utf-16" if file.read(2) in _UTF16 else "utf-8-sig"
    text: IO[str] = opened(path, "rt", encoding=encoding, newline="")
    return text


def _bad_line(path: Path) -> str:
    """Which line of a file isn't UTF-8, as ", line 3"; nothing for UTF-16, whose lines aren't told by their bytes."""
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if number == 1 and line[:2] in _UTF16:
                break
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return f", line {number}"
    return ""


def _header(path: Path, line: str, anchors: tuple[str, ...]) -> tuple[str, list[str]]:
    for delimiter in _DELIMITERS:
        try:
            names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter, strict=True), [])]
        except csv.Error:
            continue
        if not set(anchors) & set(names):
            continue
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(f"{path}, line 1: the column {', '.join(twice)} is there more than once")
        return delimiter, names
    found = ", ".join(name.strip() for name in line.strip().split(",")) or "nothing"
    raise InputError(f"{path}, line 1: no column {' or '.join(anchors)} among {found[:300]}")


def _cells(reader: Any, width: int) -> Iterator[tuple[int, list[str] | BadRow]]:
    for cells in reader:
        if len(cells) == width:
            yield reader.line_num, cells
        elif cells:
            yield reader.line_num, BadRow("ragged_row", f"expected {width} cells, as in the header; found {len(cells)}")


def _read_csv(path: Path) -> Iterator[tuple[int, Values | BadRow]]:
    with open_table(path) as table:
        for line, cells in table.rows:
            yield line, cells if isinstance(cells, BadRow) else dict(zip(table.columns, cells, strict=True))


def _read_lines(path: Path) -> Iterator[tuple[int, Values | BadRow]]:
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                row = object_of(path, number, raw, own=True)
            except OddValue as error:
                yield number, _odd(error, raw.decode())
                continue
            if row is not None:
                yield number, row


def _read_json(path: Path) -> Iterator[tuple[int, Values | BadRow]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = _items(text)
    except ValueError as error:
        raise InputError(f"{path}: not JSON in UTF-8 ({error})") from None
    if not isinstance(rows, list):
        raise InputError(f"{path}: expected a list of cases, found {type(rows).__name__}")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict | BadRow):
            raise InputError(f"{path}, item {number}: expected an object in braces, found {type(row).__name__}")
        yield number, row


def _items(text: str) -> Any:
    """The value of a JSON text; of a list, each item that can't be kept as a `BadRow`."""
    try:
        return loads(text, own=True)
    except OddValue:
        return [_item(part) for part in _parts(text)]


def _item(text: str) -> Any:
    try:
        return loads(text, own=True)
    except OddValue as error:
        return _odd(error, text)


def _parts(text: str) -> Iterator[str]:
    """The texts of the items of a JSON list.

    Raises:
        ValueError: it isn't whole.
    """
    if not text.lstrip().startswith("["):
        raise ValueError("no list of cases")
    depth, begin = 0, text.index("[") + 1
    for token in _TOKEN.finditer(text):
        depth += (token[0] in "[{") - (token[0] in "]}")
        if depth == 0 or (depth == 1 and token[0] == ","):
            yield text[begin : token.start()].strip()
            begin = token.end()
        if depth == 0:
            break
    if depth or text[begin:].strip():
        raise ValueError("the list doesn't end where the file does")


def _odd(error: OddValue, text: str) -> BadRow:
    named = _ID.search(text)
    return BadRow("invalid_value", f"holds {error}", named[1] if named else "")
