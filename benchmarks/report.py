"""Makes the page of a large run and opens it in Chromium: how long it takes to make, to load, to filter, to search."""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from measuring import HERE, table
from triagesim.cases import load_cases
from triagesim.console import command
from triagesim.errors import InputError
from triagesim.resources import RESOURCES

ROOT = HERE.parent
VIGNETTES = RESOURCES / "cases" / "vignettes.jsonl"
CONFIG = """
data: {{ source: resources/cases/vignettes.jsonl, provenance: synthetic }}
models:
  agenda: {{ backend: agenda }}
pairings:
  - {{ nurse: agenda, patient: agenda }}
  - {{ name: judged, nurse: agenda, patient: agenda, judge: agenda, cases: {{ limit: {judged} }} }}
simulation: {{ episodes_per_case: {each} }}
audio: {{ engine: espeak, max_dialogues: 0 }}
"""
#: Cases of the pairing with a dialogue master, whose episodes are three times as large.
JUDGED = 15
#: The most milliseconds of a filter, which is felt as at once, and of loading the page.
AT_ONCE, PAUSE = 100, 3000
_LISTED = "document.getElementById('list').firstChild"


class Seen(NamedTuple):
    """What Chromium took, in milliseconds, and megabytes of the script's memory."""

    load: float
    filter: float
    open: float
    first_search: float
    search: float
    heap: float
    after_search: float


def main() -> None:
    """Parse the arguments, make the run and its page, open it, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=10_000, help="at least so many; default: %(default)s")
    parser.add_argument("--results", type=Path, help="results/ of a finished run instead of one that is made")
    parser.add_argument("--chromium", default=shutil.which("chromium"), help="default: %(default)s")
    args = parser.parse_args()
    if not args.chromium:
        raise InputError("no chromium on the path; install it, or name one with --chromium")
    with tempfile.TemporaryDirectory() as name:
        results = args.results or simulate(Path(name), args.episodes)
        seconds, peak = make(results)
        seen = look(results / "report.html", args.chromium)
    count = sum(1 for path in results.glob("episodes/*/*.jsonl") for _ in path.open("rb"))
    beside = sum(path.stat().st_size for path in results.glob("report/dialogues-*.js"))
    sizes = [f"{size / 1e6:.1f} MB" for size in ((results / "report.html").stat().st_size, beside)]
    columns = [
        "episodes",
        "made in",
        "peak",
        "page",
        "beside it",
        "loads",
        "filter",
        "open one",
        "first search",
        "search",
    ]
    times = [f"{value:.0f} ms" for value in seen[:5]]
    table(
        [*columns, "memory", "after a search"],
        [
            [
                f"{count:,}",
                f"{seconds:.0f} s",
                f"{peak:.0f} MB",
                *sizes,
                *times,
                *(f"{value:.0f} MB" for value in seen[5:]),
            ]
        ],
    )
    print(
        f"\n{os.cpu_count()} shared cores, load average {os.getloadavg()[0]:.1f}; medians of five filters and searches."
    )
    if seen.filter > AT_ONCE or seen.load > PAUSE:
        raise InputError(f"the page is slow: a filter may take {AT_ONCE} ms, loading {PAUSE} ms")


def simulate(folder: Path, episodes: int) -> Path:
    """A finished run of the baseline with so many episodes; its `results/`."""
    each = math.ceil(episodes / (len(load_cases(VIGNETTES)) + JUDGED))
    (folder / "config").mkdir()
    (folder / "config" / "config.yaml").write_text(CONFIG.format(judged=JUDGED, each=each), encoding="utf-8")
    arguments = ["snakemake", "--directory", str(folder), "--quiet", "results/report.html"]
    subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return folder / "results"


def make(results: Path) -> tuple[float, float]:
    """Make the page anew, in a process of its own: seconds, and peak megabytes."""
    listed = {
        "--tables": results.glob("metrics/*"),
        "--pairings": results.glob("pairings/*.json"),
        "--episodes": results.glob("episodes/*/*.jsonl"),
        "--audio": results.glob("audio/manifest-*.jsonl"),
        "--weights": results.glob("personas/*.weights.csv"),
        "--flow": [results / "cases/flow.json"],
        "--selected": [results / "cases/cases.csv"],
        "--pool": [results / "pool.jsonl"],
        "--out": [results / "report.html"],
        "--data": [results / "report"],
    }
    options = [part for name, paths in listed.items() for part in (name, *sorted(map(str, paths)))]
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, str(ROOT / "workflow/scripts/report.py"), *options])
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise InputError("the page could not be made")
    return time.perf_counter() - begin, used.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e6 / 1024)


def look(page: Path, chromium: str) -> Seen:
    """Open the page and use it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        opened = browser.new_page()
        session = opened.context.new_cdp_session(opened)
        session.send("Performance.enable")

        def heap() -> float:
            session.send("HeapProfiler.enable")
            session.send("HeapProfiler.collectGarbage")
            found = session.send("Performance.getMetrics")["metrics"]
            return next(float(one["value"]) for one in found if one["name"] == "JSHeapUsedSize") / 1e6

        opened.goto(page.as_uri())
        load = opened.evaluate(f"{_until(_LISTED)}.then(() => performance.now())")
        first = heap()
        filters = [_timed(opened, _choose("trait", at), "list") for at in range(1, 6)]
        opened.evaluate(_choose("trait", 0))
        opens = _timed(opened, "document.querySelectorAll('#list button')[9].click()", "dialogue")
        searches = [
            _timed(opened, _search(word), "list") for word in ("chest", "fell", "breath", "knee", "no", "ambulance")
        ]
        after = heap()
        browser.close()
    return Seen(load, median(filters), opens, searches[0], median(searches[1:]), first, after)


def _until(holds: str) -> str:
    return f"new Promise((done) => {{ const look = () => ({holds}) ? done() : requestAnimationFrame(look); look(); }})"


def _timed(page: Any, action: str, changed: str) -> float:
    """Milliseconds from an action to the frame after a part of the page has changed."""
    script = f"""new Promise((done) => {{
        const begin = performance.now();
        new MutationObserver((_, observer) => {{
            observer.disconnect();
            requestAnimationFrame(() => done(performance.now() - begin));
        }}).observe(document.getElementById('{changed}'), {{ childList: true }});
        {action};
    }})"""
    return float(page.evaluate(script))


def _choose(select: str, index: int) -> str:
    return _set(select, "selectedIndex", str(index))


def _search(word: str) -> str:
    return _set("query", "value", f"'{word}'")


def _set(element: str, name: str, value: str) -> str:
    found = f"document.getElementById('{element}')"
    return f"{found}.{name} = {value}; {found}.dispatchEvent(new Event('input', {{ bubbles: true }}))"


if __name__ == "__main__":
    command(main)
