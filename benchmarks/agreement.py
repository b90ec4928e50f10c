"""Compares the agenda nurse's levels with those of the cases, set by set, and prints one Markdown table."""

from __future__ import annotations

import argparse
import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))

from triagesim.backends import load_backend
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

Table = NDArray[np.float64]
Measure = Callable[[Table], Table]

_LEVELS = np.arange(1, 6)
#: Called minus true level, by row (true) and column (called).
_ERROR = _LEVELS[None, :] - _LEVELS[:, None]
#: True level 1 or 2, called 4 or 5.
_SEVERE = (_LEVELS[:, None] <= 2) & (_LEVELS[None, :] >= 4)
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
        label = "complaint only, no script; two rules were added after reading demo dialogues"
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
    total = clusters.sum(0)
    by_seed = [float(exact(counts(row for row in rows if row.seed == seed).sum(0))) for seed in SEEDS]
    asked = [row.questions for row in rows if row.questions is not None]
    severe = int((total * _SEVERE).sum())
    return [
        str(len({row.case_id for row in rows})),
        str(len(rows)),
        f"{exact(total):.1%} ({_interval(clusters, exact, draws, '.1%')})",
        f"{min(by_seed):.1%} to {max(by_seed):.1%}" if asked else "–",
        f"{_share(total, abs(_ERROR) <= 1):.1%}",
        f"{_share(total, abs(_ERROR)):.2f}",
        _kappa_cell(clusters, draws),
        f"{_share(total, _ERROR < 0):.1%}",
        f"{_share(total, _ERROR > 0):.1%}",
        f"{_share(total, _SEVERE):.1%} ({severe})",
        f"{sum(asked) / len(asked):.1f}" if asked else "–",
    ]


def counts(rows: Iterable[Row]) -> Table:
    """How many episodes of each patient have each true (row) and called (column) level; patients × 5 × 5."""
    tables: dict[str, Table] = {}
    for row in rows:
        table = tables.setdefault(row.patient, np.zeros((5, 5)))
        table[row.truth - 1, row.called - 1] += 1
    return np.stack([tables[patient] for patient in sorted(tables)])


def exact(table: Table) -> Table:
    """The share of episodes with the true level, 0 … 1, of each 5 × 5 table."""
    return _share(table, _ERROR == 0)


def kappa(table: Table) -> Table:
    """Cohen's kappa with quadratic weights on the labels 1 … 5, of each 5 × 5 table.

    NaN where it is undefined: true and called levels are one and the same constant, so that chance alone agrees.
    """
    observed = (table * _ERROR**2).sum((-2, -1))
    margins = table.sum(-1)[..., :, None] * table.sum(-2)[..., None, :]
    by_chance = (margins * _ERROR**2).sum((-2, -1)) / table.sum((-2, -1))
    ratio: Table = np.divide(observed, by_chance, out=np.full(np.shape(by_chance), np.nan), where=by_chance > 0)
    return 1 - ratio


def bootstrap(clusters: Table, measure: Measure, draws: int) -> tuple[float, float, int]:
    """The percentile interval of a measure when whole patients are drawn anew, with all their episodes.

    Args:
        clusters: patients × 5 × 5.

    Returns:
        Its ends, and how many draws had no defined value and are left out; NaN if none had one.
    """
    number = len(clusters)
    times = np.random.default_rng(0).multinomial(number, np.full(number, 1 / number), size=draws)
    values = measure(np.tensordot(times, clusters, 1))
    defined = values[~np.isnan(values)]
    if not len(defined):
        return np.nan, np.nan, draws
    low, high = np.quantile(defined, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high), draws - len(defined)


def _share(table: Table, weight: NDArray[Any]) -> Table:
    """The mean weight of an episode, of each 5 × 5 table."""
    mean: Table = (table * weight).sum((-2, -1)) / table.sum((-2, -1))
    return mean


def _kappa_cell(clusters: Table, draws: int) -> str:
    value = kappa(clusters.sum(0))
    if np.isnan(value):
        return "– (undefined: one level only)"
    return f"{value:.2f} ({_interval(clusters, kappa, draws, '.2f')})"


def _interval(clusters: Table, measure: Measure, draws: int, form: str) -> str:
    low, high, undefined = bootstrap(clusters, measure, draws)
    return f"{low:{form}} to {high:{form}}{f'; undefined draws: {undefined}' if undefined else ''}"


if __name__ == "__main__":
    command(main)
