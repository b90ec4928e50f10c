"""Says from the journals alone what is done, skipped, failed and spent."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from triagesim.errors import InputError
from triagesim.journal import read_records


def main(arguments: list[str]) -> int:
    """The task `status`."""
    parser = argparse.ArgumentParser(prog="triagesim status", description=__doc__)
    parser.add_argument("journal", nargs="?", type=Path, help="a folder of journals; the run's own unless given")
    args = parser.parse_args(arguments)
    run = _json(Path("results/config.json"))
    folder = args.journal or Path(run.get("journal", {}).get("dir", "journal"))
    journals = journals_below(folder)
    if not journals:
        raise InputError(f"{folder}: no journal there; run snakemake first, or name the folder (<out>.journal)")
    print(f"{'pairing':<24}{'done':>7}{'skipped':>9}{'failed':>8}{'calls':>9}{'tokens':>12}{'USD':>9}")
    for path in journals:
        state = status_of(path)
        row = f"{path.name:<24}{state['done']:>7}{state['skipped']:>9}{state['failed']:>8}{state['calls']:>9}"
        print(f"{row}{state['tokens']:>12,}{state['cost']:>9.2f}")
    return 0


def journals_below(folder: Path) -> list[Path]:
    """The journals in a folder: itself if it is one, else its folders that are."""
    candidates = [folder, *sorted(folder.iterdir())] if folder.is_dir() else []
    return [path for path in candidates if path.is_dir() and any(path.glob("[0-9][0-9]/*.jsonl"))]


def status_of(folder: Path) -> dict[str, Any]:
    """Episodes done, skipped and failed (given up and not finished since), calls, tokens and dollars of a journal."""
    ended: dict[str, str] = {}
    given_up: dict[str, int] = Counter()
    calls, tokens, cost = set(), 0, 0.0
    for record in read_records(folder):
        if "key" in record and record["key"] not in calls:
            calls.add(record["key"])
            prompt, completion, _, _, dollars = record["usage"]
            tokens += prompt + completion
            cost += dollars
        elif "done" in record:
            ended[record["episode"]] = record["done"]
        elif "gave_up" in record:
            given_up[record["episode"]] += 1
    states = Counter(ended.values())
    failed = len(given_up.keys() - ended.keys())
    done, skipped = states["ok"], states["skipped"]
    return {"done": done, "skipped": skipped, "failed": failed, "calls": len(calls), "tokens": tokens, "cost": cost}


def _json(path: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError:
        raise InputError(f"{path}: not JSON; delete it, the next run writes it again") from None
    return value
