"""Compares the agenda nurse's levels with those of the cases, set by set, and prints one Markdown table."""

from __future__ import annotations

import argparse
import platform
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))

from triagesim.agreement import MEASURES
from triagesim.backends import load_backend
from triagesim.bootstrap import Array, draw, percentiles
from triagesim.cases import Case, Scale, load_cases
from triagesim.console import command
from triagesim.errors import InputError
from triagesim.personas import PERSONAS, Persona, Role, generate
from triagesim.resources import RESOURCES
from triagesim.scoring import score
from triagesim.simulation import simulate

#: As five runs of the shipped configuration, with these as `simulation.seed`.
SEEDS = range(5)
PERSONAS_PER_ROLE = 500
#: Beside the nurse stands one that calls every case this.
BASELINES = (2, 3)
CONFIDENCE = 0.95

_COLUMNS = (
    "cases",
    "nurse",
    "n",
    "episodes",
    "exact (95%)",
    "exact by seed",
    "within one",
    "mean abs. error",
    "weighted kappa (95%)",
    "over",
    "under",
    "severe under",
    "questions",
)


class CaseSet(NamedTuple):
    """Cases with a name, and what must be known of them wherever a figure stands."""

    name: str
    label: str
    cases: list[Case]


class Row(NamedTuple):
    """A graded episode.

    Attributes:
        patient: whose case it is; several cases of a source can be of one patient.
        questions: how many the nurse asked; None for a baseline, which asks nothing.
    """

    patient: str
    case_id: str
    seed: int
    scale: str
    truth: int
    called: int
    questions: int | None


def main() -> None:
    """Parse the arguments, play the sets and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, metavar="FOLDER", help="of the MIMIC-IV-ED demo, with its triage.csv")
    parser.add_argument("--draws", type=int, default=2000, help="of the bootstrap; default: %(default)s")
    options = parser.parse_args()
    if options.draws < 1:
        raise InputError(f"--draws is {options.draws}; expected 1 or more")
    versions = f"Python {platform.python_version()}, numpy {np.__version__}"
    notes = [f"{len(SEEDS)} seeds of personas, {options.draws} draws; {versions}."]
    sets = case_sets(options.demo)
    print(f"| {' | '.join(_COLUMNS)} |", f"|{'---|' * len(_COLUMNS)}", sep="\n")
    for name, label, cases in sets:
        rows, left_out = play(cases)
        notes += [f"{name}: {count} of {len(cases)} cases left out, {why}." for why, count in left_out.items()]
        for number, (nurse, part) in enumerate(nurses(rows)):
            shown = name if number else f"{name} ({label})"
            print(f"| {' | '.join([shown, nurse, *cells(part, options.draws)])} |", flush=True)
    print("", *notes, sep="\n")


def case_sets(demo: Path | None) -> list[CaseSet]:
    """The sets to compare; the demo's too if its folder is given.

    Raises:
        InputError: the folder holds no triage.csv, or a set can't be read.
    """
    cases = RESOURCES / "cases"
    at_hand, unseen = load_cases(cases / "vignettes.jsonl"), load_cases(cases / "heldout.jsonl")
    sets = [
        CaseSet("shipped", "circular: the rules were written with these at hand", at_hand),
        CaseSet("held-out", "never opened while the rules were written", unseen),
    ]
    if demo is not None:
        table = demo / "triage.csv"
        if not table.is_file():
            raise InputError(f"{table}: no such file; --demo names the folder that holds the demo's triage.csv")
        label = "complaint only, no script; some rules and words were mended after reading demo dialogues"
        sets.append(CaseSet("MIMIC-IV-ED demo", label, load_cases(table)))
    return sets


def play(cases: list[Case]) -> tuple[list[Row], Counter[str]]:
    """Simulate every case once with each seed; return the graded episodes, and why cases were left out, with counts.

    Raises:
        InputError: no episode could be graded.
    """
    agenda = load_backend("agenda")
    rows: list[Row] = []
    left_out: dict[str, str] = {}
    for seed in SEEDS:
        for episode in simulate(
            cases,
            nurse_llm=agenda,
            patient_llm=agenda,
            nurse_personas=personas("nurse", seed),
            patient_personas=personas("patient", seed),
            seed=seed,
        ):
            case, scored = episode["case"], score(episode)
            if episode["status"] != "ok":
                left_out[case["case_id"]] = episode["skip_reason"] or episode["error"]
                continue
            patient = str(case.get("subject_id", case["case_id"]))
            levels = scored["ground_truth"], scored["final_triage"]
            rows.append(Row(patient, case["case_id"], seed, episode["algorithm"], *levels, scored["num_turns"]))
    if not rows:
        raise InputError(f"none of {len(cases)} cases can be graded: {dict(Counter(left_out.values()))}")
    return rows, Counter(left_out.values())


def personas(role: Role, seed: int) -> list[Persona]:
    """The pool of a run with this seed."""
    return [PERSONAS[role].model_validate(levels) for levels in generate(role, "uniform", PERSONAS_PER_ROLE, seed)]


def nurses(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    """Name and episodes of every nurse to compare: the agenda, in all and by scale, and the baselines."""
    parts = [("agenda", rows)]
    by_scale = {scale: [row for row in rows if row.scale == scale] for scale in get_args(Scale)}
    if all(by_scale.values()):
        parts += [(f"agenda, {scale.upper()} alone", part) for scale, part in by_scale.items()]
    for level in BASELINES:
        parts.append((f"always {level}", [row._replace(called=level, questions=None) for row in rows]))
    return parts


def cells(rows: list[Row], draws: int) -> list[str]:
    """The table's cells of one nurse, from the number of cases on."""
    clusters = counts(rows)
    found = {name: float(measure.value(clusters.sum(0))) for name, measure in MEASURES.items()}
    accuracy = MEASURES["accuracy"].value
    by_seed = [float(accuracy(counts(row for row in rows if row.seed == seed).sum(0))) for seed in SEEDS]
    asked = [row.questions for row in rows if row.questions is not None]
    return [
        str(len({row.case_id for row in rows})),
        str(len(rows)),
        f"{found['accuracy']:.1%} ({_interval(clusters, 'accuracy', draws, '.1%')})",
        f"{min(by_seed):.1%} to {max(by_seed):.1%}" if asked else "–",
        f"{found['within_one']:.1%}",
        f"{found['mae']:.2f}",
        _kappa_cell(clusters, draws),
        f"{found['over']:.1%}",
        f"{found['under']:.1%}",
        f"{found['severe_under']:.1%} ({round(found['severe_under'] * len(rows))})",
        f"{sum(asked) / len(asked):.1f}" if asked else "–",
    ]


def counts(rows: Iterable[Row]) -> Array:
    """How many episodes of each patient have each true (row) and called (column) level; patients × 5 × 5."""
    tables: dict[str, Array] = {}
    for row in rows:
        table = tables.setdefault(row.patient, np.zeros((5, 5)))
        table[row.truth - 1, row.called - 1] += 1
    return np.stack([tables[patient] for patient in sorted(tables)])


def _kappa_cell(clusters: Array, draws: int) -> str:
    value = MEASURES["qwk"].value(clusters.sum(0))
    if np.isnan(value):
        return "– (undefined: one level only)"
    return f"{value:.2f} ({_interval(clusters, 'qwk', draws, '.2f')})"


def _interval(clusters: Array, measure: str, draws: int, form: str) -> str:
    """Percentiles when whole patients are drawn anew with all their episodes."""
    drawn = draw(clusters.reshape(len(clusters), -1), draws, 0).reshape(-1, 5, 5)
    low, high, undefined = percentiles(drawn, MEASURES[measure].value, CONFIDENCE)
    return f"{low:{form}} to {high:{form}}{f'; undefined draws: {undefined}' if undefined else ''}"


if __name__ == "__main__":
    command(main)
