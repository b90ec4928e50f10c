"""JSON, JSON Lines, tables and hashes of them as files: read with care, written whole or not at all."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import file_digest, sha256
from pathlib import Path
from typing import IO, Any

from triagesim.errors import InputError
from triagesim.temporaries import replacing

# Python's own limit of a cell, 131,072 characters, is less than a long complaint; without any, a stray quotation mark
# would swallow a whole table.
csv.field_size_limit(1 << 24)

# What a table program may take for a formula, by OWASP's page on CSV injection; apostrophes before it too, so that
# taking one away gives the text back.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII)

# Level 9 takes several times as long for a few hundredths.
_GZIP_LEVEL = 6

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


# How half of a surrogate pair is written; a whole pair and an escaped backslash look the same.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class OddValue(ValueError):
    """JSON that is written as it should be and holds what can't be kept; the text says what."""


def loads(text: str, *, own: bool = False) -> Any:
    """The value of a JSON text; NaN, as Python writes it, is null.

    Args:
        own: somebody wrote it by hand or another program did: a key that stands twice in an object is an error, where
            the last would count, and infinity isn't.

    Raises:
        json.JSONDecodeError: it is none.
        OddValue: it holds a whole number of thousands of digits, lists in lists without end, half a surrogate pair, a
            key twice or an infinite number.
    """
    try:
        value = (_OWN if own else _OURS).decode(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except (json.JSONDecodeError, OddValue):
        raise
    except UnicodeEncodeError:
        raise OddValue("half a surrogate pair; write the character out") from None
    except RecursionError:
        raise OddValue("lists or objects nested without end") from None
    except ValueError:
        raise OddValue(f"a number of more than {sys.get_int_max_str_digits()} digits") from None
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise OddValue(f"the key {next(name for name in names if names.count(name) > 1)!r:.60} twice")
    return found


def _finite(name: str) -> None:
    if name != "NaN":
        raise OddValue("an infinite number")


_OURS = json.JSONDecoder(parse_constant=_finite)
_OWN = json.JSONDecoder(parse_constant=lambda name: None if name == "NaN" else float(name), object_pairs_hook=_once)


def read_json(path: Path) -> Any:
    """The value of a JSON file.

    Raises:
        InputError: it isn't UTF-8 or isn't JSON that can be read.
    """
    try:
        return loads(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason})") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg} at column {error.colno})") from None
    except OddValue as error:
        raise InputError(f"{path}: holds {error}") from None


def dumps(value: Any) -> str:
    """One compact JSON line without its newline; keys keep their order."""
    return _compact.encode(value)


def digest(value: Any) -> str:
    """A hash (64 hex digits) of a JSON value that doesn't depend on the order of keys."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


def gzipped(data: bytes) -> bytes:
    """Data packed by gzip: the same bytes for the same data, without a time, a file's name or Python's version in it.

    (`gzip.compress` names the system from Python 3.11 on, and no longer from 3.13 on.)
    """
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", _GZIP_LEVEL, packed, mtime=0) as file:
        file.write(data)
    return packed.getvalue()


def sha256_of(path: Path) -> str:
    """The hash (64 hex digits) of a file's bytes."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def read_lines(path: Path, *, own: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    r"""Yield (line number, object) of a JSON Lines file.

    Lines end at `\n` alone: U+2028 and its like are data. A byte-order mark and blank lines are passed over. `own` as
    for `loads`.

    Raises:
        InputError: a line isn't UTF-8, isn't JSON or isn't an object.
    """
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            value = parse_line(path, number, raw, own=own)
            if value is not None:
                yield number, value


def parse_line(path: Path, number: int, raw: bytes, *, own: bool = False) -> dict[str, Any] | None:
    """The object that a line of `path` holds, None for a blank line; raises as `read_lines` does."""
    try:
        return object_of(path, number, raw, own=own)
    except OddValue as error:
        raise InputError(f"{path}, line {number}: holds {error}") from None


def object_of(path: Path, number: int, raw: bytes, *, own: bool = False) -> dict[str, Any] | None:
    """As `parse_line`, but what can't be kept is left to the caller; `own` as for `loads`.

    Raises:
        InputError: the line isn't UTF-8, isn't JSON or isn't an object.
        OddValue: as `loads` does.
    """
    try:
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip(" \t\r\n")
        if not text:
            return None
        value = loads(text, own=own)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}, line {number}: not UTF-8 ({error.reason}); save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {number}: not JSON ({error.msg} at column {error.colno})") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}, line {number}: expected an object in braces, found {type(value).__name__}")
    return value


def read_table(path: Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV table that this package wrote, every cell as text.

    Args:
        columns: what its header has to be; None for any.

    Raises:
        InputError: the header is another one, or a row isn't whole.
    """
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        try:
            if columns is not None and list(reader.fieldnames or ()) != list(columns):
                raise InputError(f"{path}: other columns than this version writes; delete the file and run again")
            for row in reader:
                if None in row or None in row.values():
                    raise InputError(
                        f"{path}, line {reader.line_num}: not as many cells as columns; delete the file and run again"
                    )
                yield {name: unguarded(cell) for name, cell in row.items()}
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path}: no table ({error}); delete the file and run again") from None


def write_atomically(path: Path, write: Callable[[IO[str]], None]) -> None:
    """Let `write` fill a temporary file beside `path`, which then takes its place; errors as in `replacing`."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        write(file)


def write_text(path: Path, text: str) -> None:
    """Write a text, whole or not at all."""
    write_atomically(path, lambda file: file.writelines([text]))


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    """Write one JSON line a row, whole or not at all."""
    write_atomically(path, lambda file: file.writelines(dumps(row) + "\n" for row in rows))


def write_json(path: Path, value: Any) -> None:
    """Write one indented JSON document, whole or not at all."""
    write_atomically(path, lambda file: file.writelines([json.dumps(value, ensure_ascii=False, indent=2), "\n"]))


def write_table(path: Path, header: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV table, whole or not at all.

    Truth values are `true` and `false`, None is nothing, a text is `guarded` unless it is a number.
    """
    cells = ([_cell(cell) for cell in row] for row in rows)
    write_atomically(path, lambda file: csv.writer(file, lineterminator="\n").writerows([header, *cells]))


def _cell(cell: Any) -> Any:
    if isinstance(cell, str):
        return cell if _NUMBER.fullmatch(cell) else guarded(cell)
    return {True: "true", False: "false"}[cell] if isinstance(cell, bool) else cell


def guarded(text: str) -> str:
    """A text as a CSV cell holds it: with an apostrophe before what would be run as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def unguarded(cell: str) -> str:
    """The text that `guarded` made a cell of."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
