"""The tables about language: fidelity, traits and leaks of all pairings, from the tables of the shards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from triagesim import fidelity, traits
from triagesim.config import Score
from triagesim.duplicates import COLUMNS as DUPLICATE_COLUMNS
from triagesim.jsonl import read_table, write_table
from triagesim.language import COLUMNS, FEATURES, LEAK_COLUMNS
from triagesim.score_rows import columns as score_columns


def describe(
    language: Iterable[Path],
    leaks: Iterable[Path],
    duplicates: Path,
    scores: Iterable[Path],
    options: Score,
    out_dir: Path,
) -> None:
    """Write `fidelity.csv`, `traits.csv` and `leaks.csv` into `out_dir`; pairings in the order of their first table.

    Args:
        scores: `results/scores`, which tell the patient of a case; read only with `score.cluster: subject`.

    Raises:
        InputError: a table hasn't the columns that it should have.
    """
    by_pairing = read_language(language, _subjects(scores) if options.cluster == "subject" else {})
    twins: dict[str, set[str]] = defaultdict(set)
    for row in read_table(duplicates, DUPLICATE_COLUMNS):
        twins[row["pairing"]] |= {row["episode_a"], row["episode_b"]}
    found = [list(row.values()) for path in leaks for row in read_table(path, LEAK_COLUMNS)]
    of_fidelity: list[list[Any]] = []
    of_traits: list[list[Any]] = []
    for name, rows in by_pairing.items():
        of_fidelity += fidelity.fidelity(name, rows, twins[name], options)
        of_traits += traits.trait_effects(name, rows, options)
    write_table(out_dir / "fidelity.csv", fidelity.COLUMNS, of_fidelity)
    write_table(out_dir / "traits.csv", traits.COLUMNS, of_traits)
    write_table(out_dir / "leaks.csv", LEAK_COLUMNS, found)


def read_language(paths: Iterable[Path], subjects: dict[tuple[str, str], str]) -> dict[str, list[dict[str, Any]]]:
    """The finished dialogues of each pairing: measures as numbers, and `cluster`, what is drawn together.

    Args:
        subjects: the patient by pairing and episode, where patients are what is drawn.
    """
    by_pairing: dict[str, list[dict[str, Any]]] = defaultdict(list)
    # Most cells say what many others say: each text and each number is held once.
    texts: dict[str, str] = {}
    number = cache(float)
    for path in paths:
        for row in read_table(path, COLUMNS):
            if row["status"] == "ok":
                subject = subjects.get((row["pairing"], row["episode_id"]))
                row = {name: texts.setdefault(cell, cell) for name, cell in row.items()}
                measured = {name: number(row[name]) if row[name] else None for name in FEATURES}
                acuity = int(row["acuity"]) if row["acuity"] else None
                cluster = f"subject {subject}" if subject else row["case_id"]
                by_pairing[row["pairing"]].append({**row, **measured, "acuity": acuity, "cluster": cluster})
    for rows in by_pairing.values():
        # A sum of fractions depends on their order in its last digit.
        rows.sort(key=lambda row: str(row["episode_id"]))
    return by_pairing


def _subjects(scores: Iterable[Path]) -> dict[tuple[str, str], str]:
    rows = (row for path in scores for row in read_table(path, score_columns()))
    return {(row["pairing"], row["episode_id"]): row["subject"] for row in rows}
