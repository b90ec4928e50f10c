"""Wall time an episode against a server that answers after a fixed time; ours and the peer's."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from measuring import HERE, arguments, check_peer, conditions, make_job, measure, spread, table
from triagesim.console import command
from triagesim.errors import InputError

CONCURRENT = 16
LATENCY = 0.2
SPECULATIONS = ("off", "reading", "full")
COLUMNS = ("requests at once", "driver", "speculation", "calls", "s an episode", "peer's time over ours")


class Setting(NamedTuple):
    """What is measured: how many requests may be in flight, whose driver, and how far it runs ahead."""

    workers: int
    driver: str
    speculation: str


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of each setting, interleaved; default: %(default)s")
    options = parser.parse_args()
    if options.runs < 1:
        raise InputError(f"--runs is {options.runs}; expected 1 or more")
    if options.peer:
        check_peer(options.peer)
    drivers = [*([("peer", "–")] if options.peer else []), *(("ours", name) for name in SPECULATIONS)]
    workers = (64,) if options.quick else (CONCURRENT, 4 * CONCURRENT)
    settings = [Setting(most, *driver) for most in workers for driver in drivers]
    found: dict[Setting, list[dict[str, Any]]] = {setting: [] for setting in settings}
    runs = 1 if options.quick else options.runs
    for _ in range(runs):
        for setting in settings:
            found[setting].append(_measure(setting, options.peer, options.quick))
    table(COLUMNS, _rows(found))
    print(
        f"\n{runs} runs of each, interleaved: median (lowest to highest). {CONCURRENT} episodes at once, a fixed "
        f"{1000 * LATENCY:.0f} ms an answer, server and driver each on its own core. {conditions('httpx')}"
    )


def _rows(found: dict[Setting, list[dict[str, Any]]]) -> Iterator[list[str]]:
    for setting, results in found.items():
        calls = statistics.median(result["calls"] for result in results)
        row = [*map(str, setting), f"{calls:,.0f}", spread([result["episode"] for result in results], ".2f")]
        theirs = found.get(Setting(setting.workers, "peer", "–"))
        ratios = [peer["episode"] / ours["episode"] for peer, ours in zip(theirs or [], results, strict=False)]
        yield [*row, spread(ratios, ".2f") if ratios and setting.driver == "ours" else "–"]


def _measure(setting: Setting, peer: Path | None, quick: bool) -> dict[str, Any]:
    """One run: a server and a driver, each a process on a core of its own where there are two."""
    cores = sorted(os.sched_getaffinity(0))
    count, waves = (2, 1) if quick else (CONCURRENT, 3)
    job = make_job(
        *(count, waves, count, setting.speculation),
        workers=setting.workers,
        latency=0.01 if quick else LATENCY,
        dialect=setting.driver,
    )
    with _server(job, cores[0]) as url:
        theirs = setting.driver == "peer"
        script, python = ("peer/over_http.py", peer) if theirs else ("over_http.py", None)
        result = measure(script, {**job, "url": url}, python, cores[-1])
    if result["statuses"] != ["ok"] * (count * waves):
        raise InputError(f"{setting}: an episode failed: {result['statuses']}")
    return {**result, "episode": result["wall"] / waves}


@contextmanager
def _server(job: dict[str, Any], core: int) -> Iterator[str]:
    """The server while it is needed; its base URL."""
    process = subprocess.Popen(
        [sys.executable, HERE / "server.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        yield process.stdout.readline().strip()
        process.stdin.close()


if __name__ == "__main__":
    command(main)
