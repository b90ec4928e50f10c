"""What each stage of a run takes at 1,000, 10,000 and 100,000 episodes of the baseline: seconds, memory, disk, growth.

Runs the real workflow on made-up cases; each rule's own command is measured where Snakemake starts it. Then what is
done with a finished run: Snakemake's look at it, `triagesim status` and `verify`, a review kit, the page in Chromium.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from large_run import fill, lay_out, shards_of
from measured_job import NOTES, Cost, measured
from measuring import HERE, arguments, conditions, table
from report import look
from triagesim.console import command
from triagesim.errors import InputError

ROOT = HERE.parent
COLUMNS = ("stage", "episodes", "jobs", "seconds", "of these on a core", "for tenfold", "peak MB", "on disk MB")
SIZES = (1_000, 10_000, 100_000)
#: Shards that are simulated of a run whose other dialogues are put together.
SAMPLE = 2
#: Of the scripts, in the order of a run: the rule, and what it leaves below the run's folder.
RULES = {
    "build_cases": ("build_cases", ["results/cases"]),
    "simulate": ("simulate", ["results/episodes", "journal"]),
    "score": ("score", ["results/scores", "results/measures", "results/language", "results/leaks"]),
    "summarise": ("summarise", ["results/metrics/summary.*", "results/metrics/metrics.json"]),
    "find_duplicates": ("duplicates", ["results/metrics/duplicates.csv"]),
    "describe": ("describe", ["results/metrics/leaks.csv"]),
    "select_episodes": ("select_pool", ["results/pool.jsonl"]),
    "render_audio": ("render_audio", ["results/audio"]),
    "export": ("export", ["results/dataset"]),
    "report": ("report", ["results/report.html", "results/report"]),
    "manifest": ("manifest", ["results/ro-crate-metadata.json"]),
    "review_kit": ("review_kit", ["results/review"]),
}
#: What a finished run is asked.
LOOK, STATUS, VERIFY = "snakemake -n, all there", "triagesim status", "triagesim verify"


class Row(NamedTuple):
    """What a stage took at one size; with several jobs their sum, and the highest peak.

    Attributes:
        measured: the episodes of these jobs, if they aren't those of the whole run.
    """

    stage: str
    episodes: int
    measured: int
    jobs: int
    cost: Cost
    disk: float


def main() -> None:
    """Parse the arguments, run each size, print."""
    parser = arguments(__doc__, peer=False)
    parser.add_argument("--episodes", type=int, nargs="+", default=SIZES, help="default: 1000 10000 100000")
    said = (
        f"of a size with more, simulate {SAMPLE} shards alone; the others get dialogues that are put together from "
        "lines of the largest run that was simulated"
    )
    parser.add_argument("--simulated", type=int, default=max(SIZES), metavar="N", help=said)
    parser.add_argument(
        "--verified", type=int, default=10_000, help="verify runs of up to so many; default: %(default)s"
    )
    parser.add_argument(
        "--cores", type=int, default=1, help="jobs at once; their seconds are added; default: %(default)s"
    )
    parser.add_argument("--scratch", type=Path, help="where to make the runs; a temporary folder unless given")
    said = "opens the page; default: %(default)s, and without one it isn't opened"
    parser.add_argument("--chromium", default=shutil.which("chromium"), help=said)
    options = parser.parse_args()
    sizes = [40] if options.quick else sorted(options.episodes)
    if min(sizes) < 1 or options.simulated < sizes[0]:
        raise InputError("--episodes and --simulated: expected 1 episode or more, and the smallest size simulated")
    rows: list[Row] = []
    opened = []
    with tempfile.TemporaryDirectory(dir=options.scratch) as name:
        source = Path(name)
        for episodes in sizes:
            folder = Path(name) / str(episodes)
            rows += run(folder, episodes, source, options)
            source = folder if episodes <= options.simulated else source
            if options.chromium:
                seen = look(folder / "results/report.html", options.chromium)
                opened.append([f"{episodes:,}", *(f"{value:,.0f}" for value in seen)])
    report(rows)
    if opened:
        heads = ("loads", "filter", "open one", "first search", "search", "memory MB", "after a search")
        print()
        table(
            ["episodes", *(f"{head} ms" if "M" not in head and "after" not in head else head for head in heads)], opened
        )
    jobs = "one job after the other" if options.cores == 1 else f"{options.cores} jobs at once"
    print(f"\nOne run of each size, {jobs}. {conditions('snakemake', 'numpy', 'pyarrow', peer=False)}")


def run(folder: Path, episodes: int, source: Path, options: argparse.Namespace) -> Iterator[Row]:
    """Make a run and ask the finished one; the rows of its stages.

    Args:
        source: a run of which dialogues are put together, if this one is larger than what is simulated.
    """
    lay_out(folder, episodes)
    simulated = episodes
    if episodes > options.simulated:
        played = [f"results/episodes/agenda/{n}-of-{shards_of(episodes)}.jsonl" for n in range(1, SAMPLE + 1)]
        snakemake(folder, options.cores, *played)
        simulated = sum((folder / path).read_bytes().count(b"\n") for path in played)
        fill(folder, source)
    snakemake(folder, options.cores, "--rerun-triggers", "mtime")
    snakemake(folder, options.cores, "results/review/form.html", "--rerun-triggers", "mtime")
    for script, (rule, left) in RULES.items():
        costs = [Cost(*note[1:]) for note in _notes(folder) if note[0] == script]
        if not costs:
            raise InputError(f"{folder}: no job of rule {rule} was measured")
        cost = Cost(sum(c.wall for c in costs), sum(c.processor for c in costs), max(c.peak for c in costs))
        of = simulated if script == "simulate" else episodes
        yield Row(rule, episodes, of, len(costs), cost, _size(folder, left))
    asked = {
        LOOK: ["-m", "snakemake", "--directory", str(folder), "-n", "--rerun-triggers", "mtime"],
        STATUS: ["-m", "triagesim.cli", "status", str(folder / "journal")],
    }
    if episodes <= options.verified and simulated == episodes:
        asked[VERIFY] = ["-m", "triagesim.cli", "verify", str(folder / "results"), "--cores", str(options.cores)]
    for what, words in asked.items():
        yield Row(what, episodes, episodes, 1, _ask(words), 0)


def snakemake(folder: Path, cores: int, *words: str) -> None:
    """Run the workflow in a folder; each `python` that a rule starts leaves a line in the folder's notes."""
    shell = folder / "python.sh"
    shell.write_text(f'python() {{ "{sys.executable}" "{HERE / "measured_job.py"}" "$@"; }}\n', encoding="utf-8")
    more = {"BASH_ENV": str(shell), NOTES: str(folder / "notes.jsonl")}
    _ask(["-m", "snakemake", "--directory", str(folder), "--cores", str(cores), *words], **more)


def _ask(words: list[str], **more: str) -> Cost:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow"), **more}
    with tempfile.TemporaryFile("w+") as said:
        code, cost = measured([sys.executable, *words], cwd=ROOT, env=environment, stdout=said, stderr=said)
        if code:
            said.seek(0)
            raise InputError(f"python {' '.join(words)} failed:\n{said.read()[-3000:]}")
    return cost


def _notes(folder: Path) -> list[tuple[str, float, float, float]]:
    lines = (folder / "notes.jsonl").read_text(encoding="utf-8").splitlines()
    return [tuple(json.loads(line).values()) for line in lines]


def _size(folder: Path, patterns: list[str]) -> float:
    """Megabytes of the files that a stage left."""
    found = [path for pattern in patterns for path in folder.glob(pattern)]
    whole = {inner for path in found for inner in (path, *path.rglob("*"))}
    return sum(path.stat().st_size for path in whole if path.is_file()) / 1e6


def report(rows: list[Row]) -> None:
    """Print the stages, each with its sizes one below the other, and how the seconds on a core grow: 10 is linear."""
    order = list(dict.fromkeys(row.stage for row in rows))
    cells = []
    for stage in order:
        before: Row | None = None
        for row in (one for one in rows if one.stage == stage):
            each = row.cost.processor / row.measured
            growth = f"{10 * each / (before.cost.processor / before.measured):.1f}" if before else "–"
            whole = f"{row.episodes:,}" if row.measured == row.episodes else f"{row.measured:,} of {row.episodes:,}"
            peak, disk = f"{row.cost.peak:,.0f}", f"{row.disk:,.1f}" if row.disk else "–"
            cost = [f"{row.cost.wall:,.1f}", f"{row.cost.processor:,.1f}", growth, peak, disk]
            cells.append([stage, whole, row.jobs, *cost])
            before = row
    table(COLUMNS, cells)


if __name__ == "__main__":
    command(main)
