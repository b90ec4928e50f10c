"""Simulates shards of a pairing (rule simulate): the driver of the command `triagesim`, written whole and sorted.

Several shards run side by side on the same engines; each is written when its last episode is done.

How the work is done (concurrency, slots, budget, time limit) comes from the environment variable TRIAGESIM_RUNTIME, as
JSON.
"""

import argparse
import json
import os
import sys
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.cases import Case, load_cases
from triagesim.console import command
from triagesim.drive import Plan, stoppable, write_shards
from triagesim.environment import RUNTIME, time_limit
from triagesim.jsonl import read_table
from triagesim.limits import Limits
from triagesim.pairing import ResolvedPairing, make_setup
from triagesim.personas import NursePersona, PatientPersona, Pool, load_personas
from triagesim.stored import read_model


def main() -> None:
    """Parse the arguments and simulate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairing", type=Path, required=True, help="results/pairings/<pairing>.json")
    parser.add_argument("--cases", type=Path, nargs="+", required=True, help="one shard of cases, or several")
    parser.add_argument("--selected", type=Path, help="cases.csv: whose order a pairing's limit follows")
    parser.add_argument("--nurse-personas", type=Path, required=True)
    parser.add_argument("--patient-personas", type=Path, required=True)
    parser.add_argument("--journal", type=Path, required=True, help="the folder of this pairing's answers")
    parser.add_argument("--out", type=Path, nargs="+", required=True, help="a file of episodes for each shard")
    parser.add_argument("--usage", type=Path, nargs="+", help="where to write what the answers took, as JSON; likewise")
    args = parser.parse_args()
    runtime = json.loads(os.environ.get(RUNTIME, "{}"))

    pairing = read_model(args.pairing, ResolvedPairing)
    setup = make_setup(
        pairing,
        Pool(load_personas(args.nurse_personas, NursePersona), "nurse"),
        Pool(load_personas(args.patient_personas, PatientPersona), "patient"),
        runtime.get("models", {}),
        runtime.get("speculation", "auto"),
        runtime.get("attestations", ()),
    )
    usages = args.usage or [None] * len(args.out)
    if not len(args.cases) == len(args.out) == len(usages):
        parser.error("--cases, --out and --usage name as many files each")
    limits = Limits(Path(runtime.get("journals") or args.journal.parent), **runtime.get("budget", {}))
    plans = []
    for path, out, usage in zip(args.cases, args.out, usages, strict=True):
        cases = load_cases(path) if path.stat().st_size else []
        if pairing.limit is not None:
            cases = within_limit(cases, args.selected, pairing.limit)
        plans.append(
            Plan(
                [(case, number) for case in cases for number in range(pairing.episodes_per_case)],
                setup,
                out,
                args.journal,
                f"simulate {pairing.name} {out.stem}",
                runtime.get("concurrency", 64),
                pairing.max_error_rate,
                limits,
                usage,
            )
        )
    with stoppable(time_limit(runtime.get("time_limit"))):
        write_shards(plans)


def within_limit(cases: list[Case], selected: Path, limit: int) -> list[Case]:
    """The cases of this shard that are among the first `limit` of the run."""
    first = {row["case_id"] for row in islice(read_table(selected), limit)}
    return [case for case in cases if case.case_id in first]


if __name__ == "__main__":
    command(main)
