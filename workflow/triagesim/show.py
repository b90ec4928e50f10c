"""Prints a dialogue as a person reads it: lines, vital signs, the nurse's running level."""

from __future__ import annotations

import argparse
import csv
import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from triagesim.cases import VITAL_NAMES, with_unit
from triagesim.errors import InputError
from triagesim.jsonl import read_json
from triagesim.shards import of_run
from triagesim.stored import read_episodes

_CONFIG = Path("results/config.json")
_EPISODES = Path("results/episodes")
# Not what is being written at this moment, or was when a job was killed.
_WHOLE = "[!.]*.jsonl"
_REJECTS = Path("results/cases/rejects.csv")


def main(arguments: list[str]) -> int:
    """The task `show`."""
    parser = argparse.ArgumentParser(prog="triagesim show", description=__doc__)
    parser.add_argument("episode", help="an episode's id, <case id>-<number>")
    parser.add_argument("files", nargs="*", type=Path, help=".jsonl files; all of results/episodes/ unless given")
    parser.add_argument("--pairing", help="only of this pairing")
    args = parser.parse_args(arguments)
    files = args.files or list(_of_run(args.pairing or "*"))
    names: set[str] = set()
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for path in files:
        if not path.is_file():
            raise InputError(f"{path}: no such file of episodes")
        for _, episode in read_episodes(path):
            names.add(str(episode.get("episode_id")))
            pairing = str(episode.get("pairing", ""))
            if "history" in episode and episode.get("episode_id") == args.episode and args.pairing in (None, pairing):
                found[pairing, args.episode] = episode
    if not files:
        _name_pairings(args.pairing)
        raise InputError("no results/episodes here; run it in the run's folder, or name .jsonl files behind the id")
    if not found:
        near = difflib.get_close_matches(args.episode, names, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        hint = hint if args.files else _rejected(args.episode, names) or hint
        raise InputError(f"no episode {args.episode!r} in {len(files)} file(s){hint}")
    print("\n\n".join(as_text(episode) for episode in found.values()))
    return 0


def _of_run(pairing: str) -> Iterator[Path]:
    """The files of the pairings of that pattern, without what an earlier number of shards left."""
    run = read_json(_CONFIG) if _CONFIG.is_file() else {}
    for folder in sorted(_EPISODES.glob(pairing)):
        files = sorted(folder.glob(_WHOLE))
        yield from of_run(files, run.get("shards")) or files


def _name_pairings(asked: str | None) -> None:
    """Say which pairings there are, where another one was asked for.

    Raises:
        InputError: there are some.
    """
    from triagesim.config import nearest

    there = sorted({path.parent.name for path in _EPISODES.glob(f"*/{_WHOLE}")})
    if asked is not None and there:
        hint = nearest(asked, there)
        raise InputError(f"no pairing {asked!r} in {_EPISODES}{hint}; there are {', '.join(there)}")


def _rejected(episode: str, names: set[str]) -> str:
    """Where it says why the case of an episode was rejected; empty for a case that has episodes or isn't there."""
    ids = {episode, episode.rpartition("-")[0]}
    if ids & {name.rpartition("-")[0] for name in names} or not _REJECTS.is_file():
        return ""
    with _REJECTS.open(encoding="utf-8", newline="") as file:
        why = [f"{row['code']}, {row['text']}" for row in csv.DictReader(file) if row["id"] in ids]
    return f"; its case was rejected and stands in {_REJECTS}: {why[0]}" if why else ""


def as_text(episode: dict[str, Any]) -> str:
    """An episode as plain text."""
    case = episode["case"]
    models = ", ".join(f"{role} {model}" for role, model in episode["models"].items())
    lines = [f"{episode['episode_id']}  {episode.get('pairing', '')}  ({models})"]
    lines += [f"label: {label}" for label in sorted(set(episode.get("labels", {}).values()))]
    level = case["acuity"] or "unknown"
    lines.append(f"{case['chief_complaint']}; {episode['algorithm'].upper()} level {level}")
    if episode["history"]:
        lines += ["In brackets behind the nurse: its estimate of the level at that moment.", ""]
    for item in episode["history"]:
        lines.append(_line(item))
    ending = {"skipped": episode.get("skip_reason"), "error": episode.get("error")}.get(episode["status"])
    lines += [""] if episode["history"] else []
    lines.append(f"{episode['status']}: {ending}" if ending else _verdict(episode))
    return "\n".join(lines)


def _line(item: dict[str, Any]) -> str:
    if item.get("event") == "vital":
        value = "could not be measured" if item["value"] is None else with_unit(item["name"], item["value"])
        return f"           [{VITAL_NAMES[item['name']]}: {value}]"
    if item["actor"] == "system":
        return f"           [triage ends: level {item['triage']}]"
    level = f" ({item['triage']})" if item.get("triage") else ""
    return f"{item['actor'] + level:>11}  {item['utterance']}{_mark(item.get('verification'))}"


def _mark(verification: dict[str, Any] | None) -> str:
    """What a reader must know of a line that didn't simply pass its check."""
    if verification is None or (verification["passed"] and not verification.get("rejected")):
        return ""
    if verification.get("edited"):
        return "  [written by the dialogue master]"
    if verification["passed"] is None:
        return "  [not checked]"
    return "  [written anew]" if verification["passed"] else "  [failed its check]"


def _verdict(episode: dict[str, Any]) -> str:
    truth, final = episode["case"]["acuity"], episode["final_triage"]
    word = "right" if truth == final else ("too urgent" if final < truth else "not urgent enough")
    flags = f"; red flags: {', '.join(episode['red_flags'])}" if episode["red_flags"] else ""
    ending = "the nurse ended it" if episode["end_reason"] == "nurse_end" else "the questions ran out"
    return f"final level {final}, ground truth {truth}: {word}; {ending}{flags}"
