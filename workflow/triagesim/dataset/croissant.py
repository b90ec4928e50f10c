"""The dataset's Croissant description (JSON-LD): every file with its hash, every column with its meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from triagesim.dataset.card import TITLE, Contents
from triagesim.dataset.columns import TABLES, Column, TableName, columns
from triagesim.dataset.files import paths
from triagesim.jsonl import sha256_of, write_json
from triagesim.resources import load_yaml

_TYPES = {
    "string": "sc:Text",
    "strings": "sc:Text",
    "integer": "sc:Integer",
    "number": "sc:Float",
    "boolean": "sc:Boolean",
}
_FORMATS = {"csv": "text/csv", "jsonl": "application/jsonlines", "parquet": "application/x-parquet"}


def write_croissant(path: Path, contents: Contents) -> None:
    """Write `croissant.json` beside the tables that it describes, after them.

    It has no date of publication: whoever publishes the dataset adds it.
    """
    notices = [licence.notice for licence in contents.licences]
    chosen = "chosen because the nurse reached the label" if contents.pool else "all that finished"
    write_json(
        path,
        {
            "@context": load_yaml("dataset.yaml")["croissant_context"],
            "@type": "sc:Dataset",
            "conformsTo": "http://mlcommons.org/croissant/1.0",
            "name": "triagesim-dialogues",
            "description": " ".join(
                [f"{TITLE}: {contents.dialogues} dialogues, {chosen}. No person said a word of them.", *notices]
            ),
            "license": [licence.url or licence.name for licence in contents.licences],
            "url": "https://arxiv.org/abs/2603.10035",
            "version": "1.0.0",
            "citeAs": "https://arxiv.org/abs/2603.10035",
            "creator": {"@type": "sc:Organization", "name": "the TriageSim workflow authors"},
            "keywords": ["triage", "emergency department", "dialogue", "simulated"],
            "distribution": _distribution(path.parent, contents),
            "recordSet": [_record_set(table) for table in TABLES if contents.used[table]],
        },
    )


def _distribution(folder: Path, contents: Contents) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for table in TABLES:
        for split in contents.splits:
            for kind, file in paths(folder, table, split).items():
                name = file.relative_to(folder).as_posix()
                found.append(
                    {
                        "@type": "cr:FileObject",
                        "@id": name,
                        "name": name,
                        "contentUrl": name,
                        "contentSize": f"{file.stat().st_size} B",
                        "encodingFormat": _FORMATS[kind],
                        "sha256": sha256_of(file),
                    }
                )
        if contents.used[table]:
            includes = [str(paths(Path(), table, split)["parquet"]) for split in contents.used[table]]
            found.append(
                {
                    "@type": "cr:FileSet",
                    "@id": f"{table}-files",
                    "name": f"{table}-files",
                    "encodingFormat": _FORMATS["parquet"],
                    "includes": includes,
                }
            )
    return found


def _record_set(table: TableName) -> dict[str, Any]:
    described = load_yaml("dataset.yaml")["tables"][table]
    return {
        "@type": "cr:RecordSet",
        "@id": table,
        "name": table,
        "description": described["about"],
        "key": [{"@id": f"{table}/{name}"} for name in described["key"]],
        "field": [_field(table, column) for column in columns(table)],
    }


def _field(table: TableName, column: Column) -> dict[str, Any]:
    field: dict[str, Any] = {
        "@type": "cr:Field",
        "@id": f"{table}/{column.name}",
        "name": column.name,
        "description": column.about,
        "dataType": _TYPES[column.kind],
        "source": {"fileSet": {"@id": f"{table}-files"}, "extract": {"column": column.name}},
    }
    if column.kind == "strings":
        field["repeated"] = True
    if column.name == "dialogue_id" and table != "dialogues":
        field["references"] = {"field": {"@id": "dialogues/dialogue_id"}}
    return field
