"""Says from the journals alone what is done, skipped, failed and spent."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from triagesim.errors import InputError
from triagesim.journal import read_records
from triagesim.limits import stop_mark
from triagesim.usage import Account, counted


def main(arguments: list[str]) -> int:
    """The task `status`."""
    parser = argparse.ArgumentParser(prog="triagesim status", description=__doc__)
    parser.add_argument("journal", nargs="?", type=Path, help="a folder of journals; the run's own unless given")
    args = parser.parse_args(arguments)
    run = _json(Path("results/config.json"))
    folder = args.journal or Path(run.get("journal", {}).get("dir", "journal"))
    journals, why = journals_below(folder), stop_mark(folder)
    if not journals and why is None:
        raise InputError(f"{folder}: no journal there; run snakemake first, or name the folder (<out>.journal)")
    heads = ("done", "skipped", "failed", "calls", "retries")
    print(f"{'pairing':<24}{''.join(f'{head:>9}' for head in heads)}{'tokens':>13}{'USD':>9}")
    failures: Counter[str] = Counter()
    for path in journals:
        account = Account.of(read_records(path))
        failures += account.failures
        print(f"{path.name:<24}{_row(account)}")
    if failures:
        print(f"failed tries: {', '.join(counted(failures))}")
    if why is not None:
        print(f"stopped: {why}")
    return 0


def journals_below(folder: Path) -> list[Path]:
    """The journals in a folder: itself if it is one, else its folders that are."""
    candidates = [folder, *sorted(folder.iterdir())] if folder.is_dir() else []
    return [path for path in candidates if path.is_dir() and any(path.glob("[0-9][0-9]/*.jsonl"))]


def _row(account: Account) -> str:
    states = Counter(account.ended.values())
    counts = (states["ok"], states["skipped"], len(account.failed), account.calls, sum(account.failures.values()))
    tokens = account.usage.prompt + account.usage.completion
    return f"{''.join(f'{count:>9,}' for count in counts)}{tokens:>13,}{account.usage.cost:>9.2f}"


def _json(path: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError:
        raise InputError(f"{path}: not JSON; delete it, the next run writes it again") from None
    return value
