"""The three measures of `triagesim.measures` for every episode of a shard, and their rates over many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from triagesim.jsonl import read_lines, write_table
from triagesim.measures import (
    EPOCH,
    DropOff,
    Rewrites,
    TaskCompletion,
    completion_rate,
    drop_off_rate,
    episode_session,
    line_histories,
    measure_drop_off,
    measure_rewrites,
    read_reviews,
    rewrite_rate,
)
from triagesim.stored import read_episodes

COLUMNS = (
    "pairing",
    "episode_id",
    "completed",
    "quality",
    "outcome",
    "cause",
    "agent_revisions",
    "rewritten",
)
#: How long a patient has to answer, and a clinician to edit. An episode's time is made of its words, so any window
#: longer than a dialogue gives the same.
WINDOW = timedelta(hours=1)
#: When the log is read: long after every dialogue, so that none is pending.
_LATE = EPOCH + timedelta(days=1)


def write_measures(episodes: Path, verdicts: Path | None, reviews: Path | None, out: Path) -> None:
    """Measure a shard: one row an episode that took place, columns `COLUMNS`.

    Args:
        verdicts: the rows of rule judge_completion; None where no judge is configured.
        reviews: a review file (`triagesim.measures.read_reviews`); rewrites are counted in the episodes that it names.

    Raises:
        InputError: the review file can't be read, or edits a place where no line is.
    """
    judged = {row["episode_id"]: row["verdict"] for _, row in read_lines(verdicts)} if verdicts else {}
    edited = read_reviews(reviews) if reviews else {}
    rows = [
        measure(episode, judged.get(episode["episode_id"]), _edits(episode, edited)).values()
        for _, episode in read_episodes(episodes)
        if episode["status"] != "skipped"
    ]
    write_table(out, COLUMNS, rows)


def measure(
    episode: Mapping[str, Any], verdict: Mapping[str, Any] | None, edits: Mapping[int, str] | None
) -> dict[str, Any]:
    """The row of one episode, by the names in `COLUMNS`; what nobody judged or reviewed is None."""
    value = (verdict or {}).get("value") or {}
    drop = measure_drop_off(episode_session(episode), window=WINDOW, now=_LATE)
    rewrites = (
        None if edits is None else [measure_rewrites(one, window=WINDOW) for one in line_histories(episode, edits)]
    )
    return {
        "pairing": episode["pairing"],
        "episode_id": episode["episode_id"],
        "completed": value.get("completed"),
        "quality": value.get("quality"),
        "outcome": drop.outcome,
        "cause": drop.cause,
        "agent_revisions": None if rewrites is None else sum(one.agent_revisions for one in rewrites),
        "rewritten": None if rewrites is None else sum(one.rewritten for one in rewrites),
    }


def rates(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """`judged`, `completion_rate`, `mean_quality`, `drop_off_rate`, `reviewed` and `rewrite_rate` over rows.

    A rate that nothing was judged or reviewed for is None.
    """
    rows = list(rows)
    judged = [
        TaskCompletion(completed=row["completed"], quality=row["quality"])
        for row in rows
        if row["completed"] is not None
    ]
    reviewed = [
        Rewrites(agent_revisions=row["agent_revisions"], rewritten=row["rewritten"])
        for row in rows
        if row["agent_revisions"] is not None
    ]
    return {
        "judged": len(judged),
        "completion_rate": completion_rate(judged),
        "mean_quality": sum(one.quality for one in judged) / len(judged) if judged else None,
        "drop_off_rate": drop_off_rate([DropOff(outcome=row["outcome"], cause=row["cause"]) for row in rows]),
        "reviewed": len(reviewed),
        "rewrite_rate": rewrite_rate(reviewed),
    }


def _edits(episode: Mapping[str, Any], edited: Mapping[tuple[str, str], dict[int, str]]) -> dict[int, str] | None:
    """What a review made of an episode's lines; None where nobody reviewed it."""
    name = str(episode["episode_id"])
    return edited.get((str(episode["pairing"]), name), edited.get(("", name)))
