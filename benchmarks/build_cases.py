"""Builds cases from a made-up set of MIMIC-IV-ED's full size, and says how long it took and how much memory.

The set is random and holds nobody's data; only its size, its columns and its share of odd values are those of version
2.2. It takes about 330 MB in the scratch folder.
"""

import argparse
import csv
import json
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow"))

from triagesim.console import command
from triagesim.errors import InputError
from triagesim.mimic import TABLES

#: Rows of version 2.2, as its documentation counts them; patients are about half as many as stays.
STAYS, DIAGNOSES, MEDICINES = 425_087, 899_050, 2_987_342
#: What the builder may take. It works on one core: on a busy machine its seconds there say what an idle one would need.
SECONDS, MEGABYTES = 180, 2000

Row = tuple[Any, ...]


def main() -> None:
    """Parse the arguments, make the set, build from it and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the full size; default: %(default)s")
    parser.add_argument("--shards", type=int, default=400)
    parser.add_argument("--scratch", type=Path, help="where to make the set; a temporary folder unless given")
    args = parser.parse_args()
    if not 0 < args.share <= 1:
        raise InputError(f"--share is {args.share}; expected a share up to 1")
    with tempfile.TemporaryDirectory(dir=args.scratch) as name:
        folder = Path(name)
        make_set(folder / "ed", args.share)
        seconds, processor, peak, flow = build(folder, args.shards)
    print(f"| stays | medicines | cases | rejected | shards | seconds | of these on a core | peak |\n|{'---|' * 8}")
    cells = [flow["read"], flow["tables"]["medrecon"]["rows"], flow["selected"], flow["rejected"], args.shards]
    print(f"| {' | '.join(f'{cell:,}' for cell in cells)} | {seconds:.0f} | {processor:.0f} | {peak:.0f} MB |")
    print(f"\nPython {platform.python_version()}. At most {SECONDS} s on a core and {MEGABYTES} MB are allowed.")
    if processor > SECONDS or peak > MEGABYTES:
        raise InputError("the builder takes more than it may")


def build(folder: Path, shards: int) -> tuple[float, float, float, dict[str, Any]]:
    """Run the builder of the workflow in a process of its own: seconds, those on a core, peak MB, its flow."""
    script = ROOT / "workflow" / "scripts" / "build_cases.py"
    arguments = [
        "--source",
        folder / "ed",
        "--provenance",
        "mimic_iv_ed",
        "--shards",
        shards,
        "--out-dir",
        folder / "out",
    ]
    begin = time.perf_counter()
    subprocess.run([sys.executable, str(script), *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begin
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = used.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e6 / 1024)
    return (
        seconds,
        used.ru_utime + used.ru_stime,
        peak,
        json.loads((folder / "out" / "flow.json").read_text(encoding="utf-8")),
    )


def make_set(folder: Path, share: float) -> None:
    """Write the four tables; the same ones each time."""
    folder.mkdir()
    draw = random.Random(0)
    stays = [(10_000_000 + draw.randrange(10**6), 30_000_000 + number * 23) for number in range(int(STAYS * share))]
    table(folder, "edstays", _edstays(stays, draw))
    shuffled = draw.sample(stays, len(stays))
    table(folder, "triage", _triage(shuffled, draw))
    table(folder, "diagnosis", _diagnoses(stays, int(DIAGNOSES * share), draw))
    table(folder, "medrecon", _medicines(stays, int(MEDICINES * share), draw))


def table(folder: Path, name: str, rows: Iterable[Row]) -> None:
    """Write a table with the columns that the builder reads."""
    with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([TABLES[name]])
        csv.writer(file).writerows(rows)


def _edstays(stays: list[tuple[int, int]], draw: random.Random) -> Iterator[Row]:
    for subject, stay in stays:
        begin = datetime(2110, 1, 1) + timedelta(minutes=draw.randrange(60 * 24 * 365 * 90))
        end = begin + timedelta(minutes=draw.randrange(30, 1200))
        arrival = draw.choices(["WALK IN", "AMBULANCE", "UNKNOWN"], [59, 37, 4])[0]
        yield subject, stay, begin, end, draw.choice("FM"), f"GROUP {draw.randrange(33)}", arrival, "HOME"


def _triage(stays: list[tuple[int, int]], draw: random.Random) -> Iterator[Row]:
    """Vital signs, of which one in twenty is missing and some can't be true; pain partly in words."""
    complaints = [f"Complaint {number}{', Transfer' if number % 9 == 0 else ''}" for number in range(40_000)]
    for subject, stay in stays:
        vitals: list[Any] = [
            round(draw.gauss(98.1, 1.0), 1) if draw.random() > 0.002 else 36.6,
            round(draw.gauss(85, 17)),
            round(draw.gauss(17.5, 2)),
            min(round(draw.gauss(98, 2)), 100) if draw.random() > 0.001 else 985,
            round(draw.gauss(135, 22)),
            round(draw.gauss(78, 14)) if draw.random() > 0.001 else 879,
        ]
        vitals = [value if draw.random() > 0.05 else "" for value in vitals]
        pain = draw.choice([0, 3, 5, 8, 10, 13, "unable", "uta", "5-6", "7/10", ""])
        acuity = draw.choices([1, 2, 3, 4, 5, ""], [6, 33, 54, 4, 1, 2])[0]
        yield subject, stay, *vitals, pain, acuity, draw.choice(complaints)


def _diagnoses(stays: list[tuple[int, int]], rows: int, draw: random.Random) -> Iterator[Row]:
    for number in range(rows):
        _, stay = stays[number % len(stays)]
        code = draw.randrange(12_000)
        yield stay, number // len(stays) + 1, f"{code:05}", 9 + number % 2, f"DIAGNOSIS WITH A TITLE OF ITS OWN {code}"


def _medicines(stays: list[tuple[int, int]], rows: int, draw: random.Random) -> Iterator[Row]:
    """Most stays have some, a few have many; one drug in five comes again under another class."""
    drug = 0
    for number in range(rows):
        _, stay = stays[int(len(stays) * (number / rows) ** 1.2)]
        drug = drug if draw.random() < 0.2 else draw.randrange(20_000)
        yield stay, f"generic name {drug} [Brand]", f"{drug:06}"


if __name__ == "__main__":
    command(main)
