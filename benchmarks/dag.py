"""Says what the workflow itself costs: to plan a run of many shards, to find that all are done, and one shard's job.

No model is asked. The finished run is made of empty files that Snakemake is told to take for its own. The job plays the
baseline, whose answers cost next to nothing, and then replays them from the journal.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow"))

from triagesim.console import command
from triagesim.errors import InputError

#: What 1,000 shards may take: the plan of a fresh run, and the look at a finished one. Snakemake works on one core: on
#: a busy machine its seconds there say what an idle one would need.
SHARDS, PLAN_SECONDS, PLAN_MB, DONE_SECONDS = 1000, 6, 250, 20
CASES = ROOT / "resources" / "cases" / "vignettes.jsonl"


class Cost(NamedTuple):
    """Of one process with its children: seconds, of these on a core, megabytes at its peak."""

    seconds: float
    processor: float
    peak: float


def main() -> None:
    """Parse the arguments, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, nargs="+", default=[100, 1000], help="default: %(default)s")
    parser.add_argument(
        "--episodes", type=int, nargs="+", default=[240, 960], help="of one job, in 48s; default: %(default)s"
    )
    args = parser.parse_args()
    print(f"| shards | what | seconds | of these on a core | peak |\n|{'---|' * 5}")
    missed = [problem for shards in args.shards for problem in workflow(shards)]
    print(f"\n| episodes in a job | what | seconds | of these on a core | peak | journal |\n|{'---|' * 6}")
    for episodes in args.episodes:
        job(episodes)
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"\n{os.cpu_count()} shared {platform.machine()} cores, load average {load} at the end; Python "
        f"{platform.python_version()}, snakemake {version('snakemake')}."
    )
    if missed:
        raise InputError("; ".join(missed))


def workflow(shards: int) -> list[str]:
    """Print what Snakemake takes for so many shards; return what was too much."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config").mkdir()
        config = {
            "data": {"source": str(CASES), "provenance": "synthetic"},
            "models": {"agenda": {"backend": "agenda"}},
            "pairings": [{"nurse": "agenda", "patient": "agenda"}],
            "shards": shards,
            "audio": {"max_dialogues": 0},
        }
        (folder / "config" / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
        plan = snakemake(folder, "-n", "--quiet")
        row(shards, "plan of a fresh run", plan)
        for path in listed(folder):
            folder_of = path.parent if path.suffix else path  # an output without a suffix is a folder
            folder_of.mkdir(parents=True, exist_ok=True)
            if path.suffix:
                path.touch()
        snakemake(folder, "--touch", "--forceall", "--no-hooks", "--quiet")
        done = snakemake(folder, "-n", "--quiet")
        row(shards, "look at a finished run", done)
    if shards > SHARDS:
        return []
    limits = ((plan.processor, PLAN_SECONDS), (plan.peak, PLAN_MB), (done.processor, DONE_SECONDS))
    return [f"{shards} shards took {found:.1f}, at most {most} is allowed" for found, most in limits if found > most]


def job(episodes: int) -> None:
    """Print what a job of so many episodes of the baseline takes, and its replay."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config").mkdir()
        config = {
            "data": {"source": str(CASES), "provenance": "synthetic"},
            "models": {"agenda": {"backend": "agenda"}},
            "pairings": [{"nurse": "agenda", "patient": "agenda", "judge": "agenda"}],
            "simulation": {"episodes_per_case": -(-episodes // 48)},
            "shards": 1,
        }
        (folder / "config" / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
        (shard,) = (path for path in listed(folder) if path.parent.parent.name == "episodes")
        wanted = str(shard.relative_to(folder))
        snakemake(folder, "--cores", "1", "--quiet", "--until", "resolve_pairing", "build_cases", "generate_personas")
        log = folder / "logs/benchmarks/simulate" / shard.parent.name / f"{shard.stem}.tsv"
        for what in ("asks the baseline", "replays the journal"):
            snakemake(folder, "--cores", "1", "--quiet", "--force", wanted)
            names, values = (line.split("\t") for line in log.read_text(encoding="utf-8").splitlines())
            found: dict[str, Any] = dict(zip(names, values, strict=True))
            cost = Cost(float(found["s"]), float(found["cpu_time"]), float(found["max_rss"]))
            size = sum(path.stat().st_size for path in (folder / "journal").rglob("*.jsonl")) / 1e6
            row(episodes, what, cost, f"{size:.0f} MB")


def row(*cells: Any) -> None:
    """Print a row of a table; a `Cost` is three cells."""
    texts: list[str] = []
    for cell in cells:
        if isinstance(cell, Cost):
            texts += [f"{cell.seconds:.1f}", f"{cell.processor:.1f}", f"{cell.peak:.0f} MB"]
        else:
            texts.append(f"{cell:,}" if isinstance(cell, int) else str(cell))
    print(f"| {' | '.join(texts)} |", flush=True)


def snakemake(folder: Path, *words: str) -> Cost:
    """Run the workflow in a folder.

    Raises:
        InputError: it fails; with its own words.
    """
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(_command(folder, *words), cwd=ROOT, stdout=said, stderr=said)
        _, code, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
        if process.returncode:
            said.seek(0)
            raise InputError(f"snakemake {' '.join(words)} failed:\n{said.read()[-2000:]}")
    return Cost(time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def listed(folder: Path) -> list[Path]:
    """Every file that the run makes."""
    done = subprocess.run(_command(folder, "--summary"), cwd=ROOT, capture_output=True, text=True, check=True)
    rows = [line.split("\t")[0] for line in done.stdout.splitlines()]
    return [folder / path for path in rows if path.startswith("results/")]


def _command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "snakemake", "--directory", str(folder), *words]


if __name__ == "__main__":
    command(main)
