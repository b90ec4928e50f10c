"""Writes the tables of a run's agreement into `results/metrics`, from its score rows alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from triagesim import agreement_tables as agree
from triagesim import course_tables as course
from triagesim.config import Score
from triagesim.jsonl import write_json, write_table
from triagesim.resources import load_yaml
from triagesim.score_rows import Scores
from triagesim.summary import TABLES

REFERENCES = ("name", "who", "population", "n", "measure", "value", "low", "high", "scale", "source")

#: The columns of every table, by its name.
COLUMNS: dict[str, Sequence[str]] = {
    "agreement": agree.AGREEMENT,
    "confusion": agree.CONFUSION,
    "comparisons": agree.COMPARISONS,
    "economy": course.ECONOMY,
    "calibration": agree.CALIBRATION,
    "behaviour": course.BEHAVIOUR,
    "status": agree.STATUS,
    "references": REFERENCES,
}


def write_tables(pairings: dict[str, Scores], options: Score, out_dir: Path) -> None:
    """Write every table as CSV, and all of them as `metrics.json`.

    Args:
        pairings: the score rows by pairing, in the order of the tables.
    """
    graded = {name: agree.Graded(scores, options) for name, scores in pairings.items()}
    rows: dict[str, list[list[Any]]] = {
        "agreement": [row for item in graded.items() for row in agree.agreement(*item)],
        "confusion": [row for item in graded.items() for row in agree.confusion(*item)],
        "comparisons": list(agree.comparisons(graded)),
        "economy": [row for item in graded.items() for row in course.economy(*item)],
        "calibration": [row for item in graded.items() for row in agree.calibration(*item)],
        "behaviour": [row for item in graded.items() for row in course.behaviour(*item)],
        "status": [row for item in pairings.items() for row in agree.status(*item)],
        "references": list(_references()),
    }
    for name in TABLES:
        write_table(out_dir / f"{name}.csv", COLUMNS[name], rows[name])
    tidy = {name: [dict(zip(COLUMNS[name], row, strict=True)) for row in rows[name]] for name in TABLES}
    write_json(out_dir / "metrics.json", {"score": options.model_dump(), "tables": tidy})


def _references() -> Iterator[list[Any]]:
    """The rows of `references.csv`: a row a published figure, from `resources/references.yaml`."""
    for study in load_yaml("references.yaml"):
        for measure, figure in study["figures"].items():
            value, low, high = figure if isinstance(figure, list) else (figure, None, None)
            found = {**study, "measure": measure, "value": value, "low": low, "high": high}
            yield [found[column] for column in REFERENCES]
