"""The dataset card: what is in it, what it must not be taken for, and the block that `datasets` reads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined

from triagesim.dataset.columns import TABLES, TableName, columns
from triagesim.dataset.files import paths
from triagesim.dataset.licences import Licence, licences
from triagesim.jsonl import write_text
from triagesim.resources import RESOURCES, load_yaml

TITLE = "Simulated emergency-department triage dialogues"
_MARKUP = re.compile(r"[\\`*_\[\]<>#|&~]")
#: Where a dataset of so many rows belongs, as Hugging Face counts.
_SIZES = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M"}


class Contents:
    """What a dataset holds, counted as it is written.

    Attributes:
        pool: whether the dialogues were chosen for their right level.
        origins: provenance of the cases.
        rows: rows by table and split.
    """

    def __init__(self, splits: list[str], *, pool: bool) -> None:
        self.splits = splits
        self.pool = pool
        self.origins: set[str] = set()
        self.rows: Mapping[tuple[TableName, str], int] = {}
        self.labels: Counter[str] = Counter()
        self.models: dict[str, Counter[str]] = {role: Counter() for role in ("nurse", "patient", "judge")}
        self.levels: Counter[tuple[str, int | None]] = Counter()
        self.pairings: Counter[tuple[str, str]] = Counter()
        self._patients: dict[str, set[str]] = {split: set() for split in splits}
        self._cases: dict[str, set[str]] = {split: set() for split in splits}

    def count(self, dialogue: Mapping[str, Any]) -> None:
        """Count a row of `dialogues`."""
        split = dialogue["split"]
        self.origins.add(dialogue["provenance"])
        self.labels.update(dialogue["labels"])
        self.levels[split, dialogue["acuity"]] += 1
        self.pairings[dialogue["pairing"], split] += 1
        self._patients[split].add(dialogue["patient_id"])
        self._cases[split].add(dialogue["case_id"])
        for role, models in self.models.items():
            if model := dialogue[f"{role}_model"]:
                models[model] += 1

    @property
    def dialogues(self) -> int:
        """How many there are."""
        return sum(self.pairings.values())

    @property
    def used(self) -> dict[TableName, list[str]]:
        """The splits of each table that have a row."""
        return {table: [split for split in self.splits if self.rows[table, split]] for table in TABLES}

    @property
    def licences(self) -> list[Licence]:
        """What follows from each provenance, the strictest first."""
        return licences(self.origins)

    def by_split(self) -> list[list[Any]]:
        """split, patients, cases, dialogues, and rows of the other two tables."""
        return [
            [split, len(self._patients[split]), len(self._cases[split]), *(self.rows[table, split] for table in TABLES)]
            for split in self.splits
        ]


def write_card(path: Path, contents: Contents) -> None:
    """Write the README.md of a dataset."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)
    environment.filters["plain"] = _plain
    template = environment.from_string((RESOURCES / "dataset_card.md.j2").read_text(encoding="utf-8"))
    text = template.render(
        title=TITLE,
        metadata=yaml.safe_dump(_metadata(contents), sort_keys=False, allow_unicode=True),
        contents=contents,
        columns={table: columns(table) for table in TABLES},
        about={table: load_yaml("dataset.yaml")["tables"][table]["about"] for table in TABLES},
        levels=sorted({level for _, level in contents.levels}, key=lambda level: level or 9),
        pairings=sorted({pairing for pairing, _ in contents.pairings}),
    )
    write_text(path, text)


def _metadata(contents: Contents) -> dict[str, Any]:
    """The block that Hugging Face reads. A split without rows can't be loaded, so it isn't named."""
    licence = {}
    if contents.licences:
        strictest = contents.licences[0]
        licence = {"license": strictest.id}
        licence |= {"license_name": strictest.name.lower().replace(" ", "-")} if strictest.id == "other" else {}
        licence |= {"license_link": strictest.url} if strictest.url else {}
    here = Path()
    configs = [
        {
            "config_name": table,
            **({"default": True} if table == "dialogues" else {}),
            "data_files": [
                {"split": split, "path": str(paths(here, table, split)["parquet"])} for split in contents.used[table]
            ],
        }
        for table in TABLES
        if contents.used[table]
    ]
    size = next((name for limit, name in _SIZES.items() if contents.dialogues < limit), "n>1M")
    return {
        "pretty_name": TITLE,
        "language": ["en"],
        **licence,
        "task_categories": ["text-classification", "text-generation"],
        "size_categories": [size],
        "tags": ["medical", "triage", "emergency-department", "dialogue", "synthetic"],
        **({"configs": configs} if configs else {}),
    }


def _plain(text: Any) -> str:
    """A name in a line or a cell of Markdown, in which none of its characters means anything."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(str(text).split()))
