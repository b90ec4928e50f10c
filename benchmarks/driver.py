"""Calls a second of the whole driver on one core, with a backend that answers at once; ours and the peer's."""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

from measuring import arguments, check_peer, conditions, make_job, measure, spread, table
from triagesim.console import command
from triagesim.errors import InputError

SPECULATIONS = ("off", "reading", "full")
COLUMNS = (
    "driver",
    "speculation",
    "concurrent",
    "calls",
    "calls/s",
    "calls per CPU second",
    "µs a call",
    "of that the backend",
    "characters a prompt",
)


class Setting(NamedTuple):
    """What is measured: a driver, how far it runs ahead, and how many episodes at once."""

    driver: str
    speculation: str
    concurrency: int


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each setting, interleaved; default: %(default)s")
    options = parser.parse_args()
    if options.runs < 1:
        raise InputError(f"--runs is {options.runs}; expected 1 or more")
    if options.peer:
        check_peer(options.peer)
    runs = 1 if options.quick else options.runs
    print("## Calls a second, on one core\n")
    print_speed(options, runs)
    print(f"\n{runs} runs of each, interleaved: median (lowest to highest). {conditions('pydantic', 'jinja2')}\n")
    print("## Peak memory, episodes consumed and dropped\n")
    print_memory(options)
    print(f"\nOne run of each. {conditions('pydantic', 'jinja2')}")


def print_speed(options: argparse.Namespace, runs: int) -> None:
    """The table of calls a second."""
    settings = list(_settings(bool(options.peer), (8,) if options.quick else (64, 256)))
    found: dict[Setting, list[dict[str, Any]]] = {setting: [] for setting in settings}
    for _ in range(runs):
        for setting in settings:
            found[setting].append(_measure(setting, 1 if options.quick else 16, options))
    table(COLUMNS, ([*setting, *_cells(results)] for setting, results in found.items()))


def print_memory(options: argparse.Namespace) -> None:
    """The table of peak memory by number of episodes."""
    few, many = (30, 60) if options.quick else (1000, 10_000)
    rows = []
    for speculation in SPECULATIONS:
        setting = Setting("ours", speculation, 8 if options.quick else 256)
        sizes = [_measure(setting, count, options, rows=10)["rss"] / 1024 for count in (few // 10, many // 10)]
        rows.append([speculation, *(f"{size:.0f} MiB" for size in sizes), f"{sizes[1] / sizes[0] - 1:+.0%}"])
    table(("speculation", f"{few:,} episodes", f"{many:,} episodes", "growth"), rows)


def _settings(peer: bool, sizes: tuple[int, ...]) -> Iterator[Setting]:
    for size in sizes:
        for speculation in SPECULATIONS:
            yield Setting("ours, with journal", speculation, size)
        if peer:
            yield Setting("peer, no journal", "–", size)


def _measure(setting: Setting, per_case: int, options: argparse.Namespace, rows: int = 30) -> dict[str, Any]:
    """One run in a process of its own, on the last core that we may use."""
    theirs = setting.driver.startswith("peer")
    job = make_job(rows, per_case, setting.concurrency, setting.speculation, journal=True)
    core = max(os.sched_getaffinity(0))
    script, python = ("peer/instant.py", options.peer) if theirs else ("instant.py", None)
    result: dict[str, Any] = measure(script, job, python, core)
    if result["statuses"] != {"ok": rows * per_case}:
        raise InputError(f"{setting}: expected {rows * per_case} whole episodes, found {result['statuses']}")
    return result


def _cells(results: list[dict[str, Any]]) -> list[str]:
    micro = [1e6 * result["wall"] / result["calls"] for result in results]
    return [
        f"{statistics.median(result['calls'] for result in results):,.0f}",
        spread([result["calls"] / result["wall"] for result in results]),
        spread([result["calls"] / result["cpu"] for result in results]),
        spread(micro),
        spread([1e6 * result["backend"] for result in results], ".1f"),
        f"{results[0]['prompt']:,.0f}",
    ]


if __name__ == "__main__":
    command(main)
