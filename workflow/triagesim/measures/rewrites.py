"""Rewrites: how much of what an agent wrote people substantially rewrote."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from difflib import SequenceMatcher
from typing import Annotated

from pydantic import Field

from triagesim.measures.verdicts import (
    FunctionEvaluator,
    Part,
    Role,
    Verdict,
    check_clock,
    check_window,
    in_seconds,
    values_of,
)

#: Bumped when the computation changes; it begins where the published measure stands.
VERSION = 2

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class Revision(Part):
    """One version of something that an agent and people both write; `text` is its whole content."""

    at: datetime
    role: Role
    text: str


class History(Part):
    """The revisions of one artifact."""

    revisions: list[Revision] = Field(description="The revisions of one artifact, oldest first")


class Rewrites(Part):
    """How much of what an agent wrote people substantially rewrote.

    Attributes:
        agent_revisions: revisions that the agent wrote.
        rewritten: of those, the ones that people rewrote.
        rate: rewritten over agent revisions; None without any.
    """

    agent_revisions: Annotated[int, Field(ge=0)]
    rewritten: Annotated[int, Field(ge=0)]
    rate: Annotated[float, Field(ge=0.0, le=1.0)] | None = None


def measure_rewrites(history: History, *, window: timedelta, threshold: float = 0.2) -> Rewrites:
    """Count the agent's revisions that a person substantially rewrote within a window.

    A person's revision counts if it comes at most `window` after the agent's and before the agent writes again. Of
    several the last is compared with the agent's text, whatever stood in between; what the system wrote is neither.

    Args:
        window: how soon after the agent a person's change counts.
        threshold: the share of the text, by `share_changed`, that a rewrite alters at least.

    Raises:
        ValueError: the window is negative, the threshold is outside 0 … 1, or times with and without a zone are mixed.
    """
    check_window(window)
    _check_threshold(threshold)
    check_clock(revision.at for revision in history.revisions)
    written: list[tuple[Revision, Revision | None]] = []
    for revision in sorted(history.revisions, key=lambda revision: revision.at):
        if revision.role == "agent":
            written.append((revision, None))
        elif revision.role == "person" and written and revision.at - written[-1][0].at <= window:
            written[-1] = (written[-1][0], revision)
    rewritten = sum(edit is not None and share_changed(own.text, edit.text) >= threshold for own, edit in written)
    rate = rewritten / len(written) if written else None
    return Rewrites(agent_revisions=len(written), rewritten=rewritten, rate=rate)


def share_changed(before: str, after: str) -> float:
    """The share of a text that an edit changed, from 0 (none of it) to 1 (all of it).

    One minus the similarity: twice the characters that both share, over the characters of both. Lines are aligned
    first, then characters within the lines that changed; difflib's shortcut for long texts (autojunk) is off, since it
    takes a small change to a table or a checklist for a rewrite.
    """
    total = len(before) + len(after)
    return (total - 2 * _shared(before, after)) / total if total else 0.0


def rewrite_evaluator(*, window: timedelta, threshold: float = 0.2) -> FunctionEvaluator[History, Rewrites]:
    """Rewrites as an evaluator, versioned by the measure's own version, the window and the threshold."""
    return FunctionEvaluator(
        lambda history: measure_rewrites(history, window=window, threshold=threshold),
        name="rewrites",
        version=f"{VERSION}:{in_seconds(check_window(window))}:{_check_threshold(threshold)}",
    )


def rewrite_rate(verdicts: Iterable[Verdict[Rewrites] | Rewrites]) -> float | None:
    """Rewritten over agent revisions across artifacts, pooled; None without any agent revision.

    Args:
        verdicts: one an artifact: an evaluator's verdict, or a plain value.
    """
    values = values_of(verdicts)
    written = sum(value.agent_revisions for value in values)
    return sum(value.rewritten for value in values) / written if written else None


def _shared(before: str, after: str) -> int:
    """How many characters two texts share."""
    old, new = _LINE.findall(before), _LINE.findall(after)
    shared = 0
    for kind, start, end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        one, other = "".join(old[start:end]), "".join(new[new_start:new_end])
        if kind == "equal":
            shared += len(one)
        elif kind == "replace":
            blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
            shared += sum(block.size for block in blocks)
    return shared


def _check_threshold(threshold: float) -> float:
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold {threshold}: is no share; give a number from 0 to 1")
    return float(threshold)
