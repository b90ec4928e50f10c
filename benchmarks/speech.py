"""How fast each embedded engine speaks, and what rendering dialogues costs over a plain loop over the engine."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from measuring import arguments, conditions, measure, spread, table
from triagesim import load_backend, simulate
from triagesim.cases import Case
from triagesim.console import command
from triagesim.fetch import fetch
from triagesim.jsonl import write_jsonl
from triagesim.personas import PERSONAS, generate
from triagesim.resources import RESOURCES
from triagesim.speech.engine import files_of

#: Worker processes of each way; 0 is the engine alone.
WAYS = {"engine alone, a plain loop": 0, "rendering, 1 worker": 1, "rendering, 2 workers": 2}
COLUMNS = (
    "engine",
    "way",
    "speech s",
    "loading s",
    "speaking s",
    "real-time factor",
    "throughput over the plain loop",
    "CPU s a second of speech",
)


def make_pool(path: Path) -> None:
    """Dialogues of the agenda with itself on the shipped cases, one each."""
    agenda = load_backend("agenda")
    cases = [Case.model_validate(json.loads(line)) for line in (RESOURCES / "cases/vignettes.jsonl").open("rb")]
    nurses, patients = (
        [PERSONAS[role].model_validate(row) for row in generate(role, "uniform", 500, 0)]
        for role in ("nurse", "patient")
    )
    episodes = simulate(cases, nurse_llm=agenda, patient_llm=agenda, nurse_personas=nurses, patient_personas=patients)
    write_jsonl(path, ({**row, "pairing": "agenda"} for row in episodes if row["status"] == "ok"))


def compare(engine: str, pool: Path, dialogues: int, runs: int) -> list[list[Any]]:
    """Each way so often, in turns, so that all meet the same load of the machine; a row each."""
    done: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(runs):
        for way, workers in WAYS.items():
            with TemporaryDirectory(prefix="triagesim-speech-") as store:
                job = {"engine": engine, "pool": str(pool), "store": store, "workers": workers, "dialogues": dialogues}
                done[way].append(measure("speaking.py", job))
    plain = done[next(iter(WAYS))]
    rows = []
    for way, results in done.items():
        speaking = [each["wall"] - each["ready"] for each in results]
        over = [(first["wall"] - first["ready"]) / took for first, took in zip(plain, speaking, strict=True)]
        rows.append(
            [
                engine,
                way,
                f"{results[0]['speech']:.0f}",
                spread([each["ready"] for each in results], ".1f"),
                spread(speaking, ".1f"),
                spread([took / each["speech"] for took, each in zip(speaking, results, strict=True)], ".3f"),
                spread(over, ".2f"),
                spread([each["cpu"] / each["speech"] for each in results], ".3f"),
            ]
        )
    return rows


def main() -> None:
    """Measure and print."""
    parser: argparse.ArgumentParser = arguments(__doc__, peer=False)
    parser.add_argument("--engines", nargs="+", default=["espeak", "kokoro"], help="of these (default: both)")
    parser.add_argument("--dialogues", type=int, default=3, metavar="N", help="the N shortest (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="of each way (default: %(default)s)")
    options = parser.parse_args()
    engines, dialogues, runs = options.engines, options.dialogues, options.runs
    if options.quick:
        engines, dialogues, runs = ["espeak"], 2, 1
    for name in (file for engine in engines for file in files_of(engine)):
        fetch(name)
    with TemporaryDirectory(prefix="triagesim-speech-") as folder:
        pool = Path(folder) / "pool.jsonl"
        make_pool(pool)
        table(COLUMNS, (row for engine in engines for row in compare(engine, pool, dialogues, runs)))
    said = conditions("espeakng-loader", "kokoro-onnx", "onnxruntime", "numpy").rpartition("; peer")[0]
    print(f"\n{runs} runs of each, in turns: median (lowest to highest). {said}.")


if __name__ == "__main__":
    command(main)
