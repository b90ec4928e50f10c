"""Selects the evaluation pool: the episodes whose nurse reached the ground truth, with filters, quotas and weights."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from triagesim.audit import Member, weigh
from triagesim.config import Pool
from triagesim.jsonl import dumps, write_atomically, write_table
from triagesim.language import pairing_of, traits_of
from triagesim.score_rows import read_scored
from triagesim.scoring import outcome, score
from triagesim.stored import read_episodes

COVERAGE = ("by", "value", "cases", "cases_covered", "episodes", "episodes_kept", "note")

_UNGRADED = {
    "skipped": "was skipped",
    "error": "ended in an error",
    "leaked_label": "label was leaked",
    "other_scale": "other scale",
    "no_truth": "no ground truth",
    "no_level": "no level given",
}
_OF_CASE = "quota of the case"
_OF_LEVEL = "quota of the level"


class Selection(NamedTuple):
    """What became of the episodes, in the order in which they were read.

    Attributes:
        left_out: why each isn't in the pool; None for one that is.
        weights: of the pool's, by position; empty unless they were asked for.
        notes: what must be said of a row of the coverage, by (by, value).
    """

    members: list[Member]
    left_out: list[str | None]
    weights: dict[int, float]
    notes: dict[tuple[str, str], list[str]]

    def __str__(self) -> str:
        lines = []
        for by, value, cases, covered, episodes, kept, note in coverage(self):
            name = f"{by} {value}".strip()
            counts = f"{covered:>5} of {cases:>5} cases, {kept:>6} of {episodes:>6} episodes"
            lines.append(f"{name:<32} {counts}{f'  ({note})' if note else ''}")
        return "\n".join(lines)


def select_pool(runs: Sequence[Path], out: Path, options: Pool) -> Selection:
    """Write the pool of all `runs` to `out`, each episode as it is stored, in the order in which they are read.

    With `balanced: weights` each has a last key `weight` (mean 1 in a pairing).
    """
    selection = choose(runs, options)

    def kept() -> Iterator[str]:
        for place, (episode, why) in enumerate(zip(_episodes(runs), selection.left_out, strict=True)):
            if why is None:
                weight = {"weight": selection.weights[place]} if options.balanced == "weights" else {}
                yield dumps({**episode, **weight}) + "\n"

    write_atomically(out, lambda file: file.writelines(kept()))
    return selection


def choose(runs: Iterable[Path], options: Pool) -> Selection:
    """Decide on every episode: first by what it is, then by the quotas."""
    members, left_out = [], []
    # The levels of traits are few: each text is held once.
    known: dict[Any, Any] = {}
    for episode in (episode for path in runs for episode in read_scored(path, whole=True)):
        case = episode["case"]
        level = case.get("acuity")
        head = (pairing_of(episode), str(episode["episode_id"]), str(case["case_id"]), level)
        scores = score(episode)
        traits = {name: known.setdefault(level, level) for name, level in traits_of(episode).items()}
        members.append(Member(*head, outcome(episode, scores) == "graded", traits))
        left_out.append(_why_not(episode, scores, options))
    notes = _apply_quotas(members, left_out, options)
    weights: dict[int, float] = {}
    if options.balanced == "weights":
        weights, said = weigh(members, [why is None for why in left_out])
        for pairing, note in said.items():
            notes["pairing", pairing].append(note)
    return Selection(members, left_out, weights, notes)


def _episodes(runs: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for path in runs:
        for _, episode in read_episodes(path):
            yield episode


def _why_not(episode: Mapping[str, Any], scores: Mapping[str, Any], options: Pool) -> str | None:
    """Why an episode can't be in the pool, whatever the quotas; None if it can.

    One whose nurse was told how near its level was supports no claim, so it is left out as the ungraded ones are.
    """
    found = outcome(episode, scores)
    if found != "graded":
        return _UNGRADED[found]
    if not scores["correct"]:
        return "wrong level"
    if options.no_flags and scores["flagged_utterances"]:
        return "flagged line"
    return "questions ran out" if options.nurse_ended and scores["end_reason"] != "nurse_end" else None


def _apply_quotas(
    members: Sequence[Member], left_out: list[str | None], options: Pool
) -> dict[tuple[str, str], list[str]]:
    """Leave out what is over a quota; return what each level got.

    A rank follows from the seed, the pairing and the episode alone, so other shards or more episodes don't change who
    comes first. A level's places go to different cases first.
    """
    order = sorted(range(len(members)), key=lambda place: (_rank(members[place], options.seed), place))
    of_case: dict[str, int] = defaultdict(int)
    of_level: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for place in order:
        if left_out[place] is None:
            member = members[place]
            number = of_case[member.case_id]
            of_case[member.case_id] += 1
            if options.per_case is not None and number >= options.per_case:
                left_out[place] = _OF_CASE
            else:
                of_level[member.level].append((number, place))
    notes: dict[tuple[str, str], list[str]] = defaultdict(list)
    places = _places(of_level, options)
    for level in {member.level for member in members if member.graded} if places is not None else ():
        # Sorted by the number within the case alone: ranks keep their order.
        chosen = [place for _, place in sorted(of_level[level], key=lambda one: one[0])]
        for place in chosen[places:]:
            left_out[place] = _OF_LEVEL
        notes["acuity", str(level)].append(_of_quota(len(chosen), places or 0, options))
    return notes


def _places(of_level: Mapping[Any, Sequence[Any]], options: Pool) -> int | None:
    """How many episodes a level may have: its quota, or as many as the rarest level that has any."""
    smallest = min(map(len, filter(None, of_level.values())), default=0)
    limits = [options.per_level] if options.per_level is not None else []
    limits += [smallest] if options.balanced == "quota" else []
    return min(limits) if limits else None


def _of_quota(there: int, places: int, options: Pool) -> str:
    """What became of a level's quota."""
    if options.balanced == "quota" and not there:
        return "none passed the filters, so the balance is without this level"
    passed = "passed the filters" if options.per_case is None else "passed the filters and the quota of the case"
    wanted = options.per_level
    if wanted is not None and there < wanted:
        return f"short of its quota of {wanted}: {there} {passed}"
    return f"{min(there, places)} of {there} that {passed}"


def _rank(member: Member, seed: int) -> str:
    return sha256(dumps([seed, member.pairing, member.episode_id]).encode()).hexdigest()


def coverage(selection: Selection) -> list[list[Any]]:
    """The rows of `COVERAGE`: by level, by pairing, by the reason for leaving out, and all.

    Each episode is counted at one reason, so the pool and all reasons add up to the run.
    """
    counted: dict[tuple[str, str], list[tuple[str, bool]]] = defaultdict(list)
    for member, why in zip(selection.members, selection.left_out, strict=True):
        groups = [("acuity", str(member.level or "none")), ("pairing", member.pairing), ("all", "")]
        for group in [*groups, *([("left out", why)] if why else [])]:
            counted[group].append((member.case_id, why is None))
    order = {"acuity": 0, "pairing": 1, "left out": 2, "all": 3}
    rows = []
    for group in sorted(counted, key=lambda group: (order[group[0]], group[1])):
        found = counted[group]
        cases, covered = {case for case, _ in found}, {case for case, kept in found if kept}
        kept = sum(kept for _, kept in found)
        rows.append([*group, len(cases), len(covered), len(found), kept, "; ".join(selection.notes.get(group, []))])
    return rows


def write_coverage(selection: Selection, path: Path) -> None:
    """Write the coverage as a table."""
    write_table(path, COVERAGE, coverage(selection))
