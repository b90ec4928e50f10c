"""Time from stored episodes to their summary and to every table, reading included; ours and the peer's summary."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dialogue import cases
from measuring import arguments, check_peer, conditions, measure, spread, table
from triagesim.backends import load_backend
from triagesim.cases import Case
from triagesim.config import check_config
from triagesim.console import command
from triagesim.errors import InputError
from triagesim.jsonl import dumps, write_atomically, write_json, write_table
from triagesim.pairing import as_json, resolve
from triagesim.personas import ROLES, NursePersona, PatientPersona, generate
from triagesim.simulation import simulate

PARTS = {
    "summary": "summary: the shared keys",
    "rows": "a row an episode (rule score)",
    "tables": "summary and every table from the rows (rule summarise)",
}
COLUMNS = ("what", "CPU s", "episodes per CPU second", "wall s", "peer's CPU s over ours")
PAIRINGS = ("first", "second")
PER_CASE = 5
#: Differ by what they count: ours leaves out vital signs that couldn't be measured, and flagged lines that the master
#: wrote anew.
OTHERWISE = ("mean_vitals", "flagged_rate")


def main() -> None:
    """Make the episodes, measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--episodes", type=int, default=20_000, help="a multiple of 10; default: %(default)s")
    parser.add_argument("--runs", type=int, default=5, help="of each, interleaved; default: %(default)s")
    options = parser.parse_args()
    number, runs = (200, 1) if options.quick else (options.episodes, options.runs)
    if number < 10 or number % 10 or runs < 1:
        raise InputError(f"--episodes {number} --runs {runs}: expected a multiple of 10, and 1 run or more")
    if options.peer:
        check_peer(options.peer)
    with tempfile.TemporaryDirectory() as folder:
        store(Path(folder), number)
        report(Path(folder), number, runs, options.peer)


def report(folder: Path, number: int, runs: int, peer: Path | None) -> None:
    """Measure what is stored in `folder` and print the tables."""
    core = max(os.sched_getaffinity(0))
    job = {"folder": str(folder)}
    ours, theirs = [], []
    for _ in range(runs):
        ours.append(measure("summing.py", job, core=core))
        if peer:
            theirs.append(measure("peer/summing.py", job, peer, core))
    size = sum(path.stat().st_size for path in folder.glob("episodes/*/*.jsonl"))
    print(f"{number:,} stored episodes, {size / number / 1000:.1f} kB each; one core\n")
    rows = [_row(number, what, [run[key] for run in ours]) for key, what in PARTS.items()]
    if peer:
        ratio = [run["summary"][1] / mine["summary"][1] for run, mine in zip(theirs, ours, strict=True)]
        rows[0][-1] = spread(ratio, ".2f")
        rows.insert(1, _row(number, "the peer's summary", [run["summary"] for run in theirs]))
    table(COLUMNS, rows)
    drawn = spread([run["measures"][1] for run in ours], ".2f")
    print(f"\nOf the last: {drawn} CPU s for a pairing's measures over all its {number // 2:,} episodes, 2,000 draws.")
    print(f"\n{runs} runs of each, interleaved: median (lowest to highest). {conditions('msgspec', 'numpy')}")
    if peer:
        differing = sorted(
            key for key, value in theirs[0]["shared"].items() if not _same(value, ours[0]["shared"][key])
        )
        if set(differing) - set(OTHERWISE):
            raise InputError(f"the two summaries differ in {', '.join(differing)}")


def store(folder: Path, number: int) -> None:
    """Write a run's files: real episodes of a few cases under new ids, with other final levels and personas."""
    backend = load_backend("agenda")
    played = simulate(
        [Case.model_validate(case) for case in cases(12)],
        nurse_llm=backend,
        patient_llm=backend,
        judge_llm=backend,
        nurse_personas=[NursePersona.model_validate(levels) for levels in generate("nurse", "uniform", 500, 0)],
        patient_personas=[PatientPersona.model_validate(levels) for levels in generate("patient", "uniform", 500, 0)],
    )
    patterns = sorted((e for e in played if e["status"] == "ok"), key=lambda episode: str(episode["episode_id"]))
    for pairing in PAIRINGS:
        lines = (dumps(e) + "\n" for e in varied(patterns, pairing, number // len(PAIRINGS)))
        path = folder / "episodes" / pairing / "1-of-1.jsonl"
        write_atomically(path, lambda file, lines=lines: file.writelines(lines))  # type: ignore[misc]
    config = check_config(
        {
            "data": {"source": "none", "provenance": "synthetic"},
            "models": {"agenda": {"backend": "agenda"}},
            "pairings": [{"nurse": "agenda", "patient": "agenda", "name": name} for name in PAIRINGS],
            "simulation": {"episodes_per_case": PER_CASE},
        }
    )
    for spec in config.expanded():
        write_json(folder / "pairings" / f"{spec.slug}.json", as_json(resolve(config, spec)))
    ids = ([f"case-{case}"] for case in range(number // len(PAIRINGS) // PER_CASE))
    write_table(folder / "cases.csv", ["case_id"], ids)


def varied(patterns: list[dict[str, Any]], pairing: str, number: int) -> Iterator[dict[str, Any]]:
    """So many episodes, five a case, each with a pattern's dialogue."""
    chance = random.Random(pairing)
    pools = {f"{role}_persona": list(generate(role, "uniform", 500, 0)) for role in ROLES}
    for place in range(number):
        case_id, k = f"case-{place // PER_CASE}", place % PER_CASE
        pattern = patterns[place // PER_CASE % len(patterns)]
        final = min(5, max(1, pattern["case"]["acuity"] + chance.choice((-1, 0, 0, 0, 0, 1))))
        personas = {key: {**pattern[key], **chance.choice(pool)} for key, pool in pools.items()}
        last = {**pattern["trace"][-1], "triage": final}
        yield {
            **pattern,
            **personas,
            "episode_id": f"{case_id}-{k}",
            "pairing": pairing,
            "case": {**pattern["case"], "case_id": case_id},
            "final_triage": final,
            "trace": [*pattern["trace"][:-1], last],
        }


def _row(number: int, what: str, times: list[tuple[float, float]]) -> list[str]:
    wall, processor = zip(*times, strict=True)
    speed = spread([number / second for second in processor])
    return [what, spread(processor, ".2f"), speed, spread(wall, ".2f"), "–"]


def _same(theirs: Any, ours: Any) -> bool:
    return theirs == ours or (None not in (theirs, ours) and abs(theirs - ours) < 1e-6)


if __name__ == "__main__":
    command(main)
