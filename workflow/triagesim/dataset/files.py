"""The files of the dataset's tables: CSV, JSON Lines and Parquet, a row at a time."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from triagesim.dataset.columns import Column, TableName, columns
from triagesim.jsonl import dumps, guarded

#: Rows that a row group of a Parquet file has, the last one excepted.
GROUP = 20_000


def paths(folder: Path, table: TableName, split: str) -> dict[str, Path]:
    """Where a table of a split lies, by format. The CSV files stand at the top, in the layout of published corpora."""
    return {
        "csv": folder / f"{table}_{split}.csv",
        "jsonl": folder / "jsonl" / f"{table}_{split}.jsonl",
        "parquet": folder / "parquet" / f"{table}_{split}.parquet",
    }


class TableFiles:
    """The files of one table of one split, open for rows; rows have the keys of its columns."""

    def __init__(self, folder: Path, table: TableName, split: str) -> None:
        import pyarrow.parquet as pq

        self._columns = columns(table)
        self._schema = _schema(self._columns)
        self.paths = paths(folder, table, split)
        self.rows = 0
        for path in self.paths.values():
            path.parent.mkdir(parents=True, exist_ok=True)
        self._csv_file = self.paths["csv"].open("w", encoding="utf-8", newline="")
        self._csv = csv.writer(self._csv_file, lineterminator="\n")
        self._jsonl = self.paths["jsonl"].open("w", encoding="utf-8", newline="")
        self._parquet = pq.ParquetWriter(self.paths["parquet"], self._schema, compression="zstd")
        self._group: list[Mapping[str, Any]] = []
        self._csv.writerow([column.name for column in self._columns])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        # What went wrong before is what is told, not what an unfinished group would say.
        if error is None:
            self._write_group()
        self._parquet.close()
        self._jsonl.close()
        self._csv_file.close()

    def write(self, row: Mapping[str, Any]) -> None:
        """Add a row to all files."""
        ordered = {column.name: row[column.name] for column in self._columns}
        self._csv.writerow([_cell(ordered[column.name], column) for column in self._columns])
        self._jsonl.write(dumps(ordered) + "\n")
        self._group.append(ordered)
        self.rows += 1
        if len(self._group) == GROUP:
            self._write_group()

    def _write_group(self) -> None:
        import pyarrow as pa

        # A group without rows can't be read by `datasets`.
        if self._group:
            self._parquet.write_table(pa.Table.from_pylist(self._group, schema=self._schema))
            self._group = []


def _schema(listed: tuple[Column, ...]) -> Any:
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "integer": pa.int64(),
        "number": pa.float64(),
        "boolean": pa.bool_(),
        "strings": pa.list_(pa.string()),
    }
    return pa.schema([pa.field(column.name, kinds[column.kind]) for column in listed])


def _cell(value: Any, column: Column) -> Any:
    if column.kind == "strings":
        return guarded("; ".join(value))
    if isinstance(value, str):
        return guarded(value)
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else value
