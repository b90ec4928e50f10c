"""Selects the evaluation pool: the episodes whose nurse reached the ground truth, with quality filters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from triagesim.jsonl import dumps, read_lines, write_atomically, write_table
from triagesim.scoring import other_scale, score


class Coverage:
    """How many cases the pool covers, by acuity and by pairing."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._kept: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._episodes: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])

    def count(self, episode: dict[str, Any], kept: bool) -> None:
        """Count an episode that was read."""
        case = episode["case"]
        pairing = episode.get("pairing") or "/".join(episode.get("models", {}).values())
        for group in (("acuity", str(case.get("acuity") or "none")), ("pairing", pairing), ("all", "")):
            self._all[group].add(case["case_id"])
            self._episodes[group][0] += 1
            if kept:
                self._kept[group].add(case["case_id"])
                self._episodes[group][1] += 1

    def rows(self) -> list[list[Any]]:
        """by, value, cases, cases_covered, episodes, episodes_kept."""
        order = {"acuity": 0, "pairing": 1, "all": 2}
        groups = sorted(self._all, key=lambda group: (order[group[0]], group[1]))
        return [[*group, len(self._all[group]), len(self._kept[group]), *self._episodes[group]] for group in groups]

    def __str__(self) -> str:
        lines = []
        for by, value, cases, covered, episodes, kept in self.rows():
            name = f"{by} {value}".strip()
            lines.append(f"{name:<32} {covered:>5} of {cases:>5} cases, {kept:>6} of {episodes:>6} episodes")
        return "\n".join(lines)


def select_pool(runs: Iterable[Path], out: Path, *, no_flags: bool, nurse_ended: bool) -> Coverage:
    """Write the kept episodes of all `runs` to `out`, in their order; return what they cover."""
    coverage = Coverage()

    def kept() -> Iterator[str]:
        for path in runs:
            for _, episode in read_lines(path):
                keep = belongs(episode, no_flags=no_flags, nurse_ended=nurse_ended)
                coverage.count(episode, keep)
                if keep:
                    yield dumps(episode) + "\n"

    write_atomically(out, lambda file: file.writelines(kept()))
    return coverage


def belongs(episode: dict[str, Any], *, no_flags: bool, nurse_ended: bool) -> bool:
    """Whether an episode is kept: finished, right, on its label's scale, and past the asked-for filters."""
    if episode.get("status") != "ok" or other_scale(episode):
        return False
    scores = score(episode)
    if not scores["correct"] or (no_flags and scores["flagged_utterances"]):
        return False
    return scores["end_reason"] == "nurse_end" if nurse_ended else True


def write_coverage(coverage: Coverage, path: Path) -> None:
    """Write the coverage as a table."""
    write_table(path, ["by", "value", "cases", "cases_covered", "episodes", "episodes_kept"], coverage.rows())
