"""Drop-off: whether a session ended with the agent waiting on a person who never came back."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal

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
VERSION = 1


class Activity(Part):
    """Something that happened in a session.

    Attributes:
        kind: `message`, `proposal` for a change that awaits a person's decision, `resolution` for that decision; any
            other kind counts as activity.
        ref: pairs a proposal with its resolution.
    """

    at: datetime
    role: Role
    kind: str = "message"
    ref: str | None = None


class Session(Part):
    """A conversation or a causal chain, as a timeline of activity."""

    activities: list[Activity] = Field(description="Everything that happened, oldest first")


class DropOff(Part):
    """Whether a session ended with the agent waiting on a person who never came back.

    Attributes:
        outcome: `continued`: a person acted after the agent's last turn, within the window; `dropped`: nobody did, or
            a proposal was left unresolved; `pending`: too soon to tell.
        cause: why it dropped off, else None.
    """

    outcome: Literal["continued", "dropped", "pending"]
    cause: Literal["no_reply", "unresolved_proposal"] | None = None


def measure_drop_off(session: Session, *, window: timedelta, now: datetime) -> DropOff:
    """Decide whether a session dropped off.

    The clock starts at the agent's last activity. A reply at exactly `window` is in time; one after it is a drop. With
    exactly `window` gone by, silence or an open proposal is decided. What the system does is no reply and starts no
    clock. A session in which the agent did nothing continued. Silence is named before an open proposal.

    Args:
        window: how long a person has to come back.
        now: when the log was read: the end of the recording.

    Raises:
        ValueError: the window is negative, or times with and without a zone are mixed.
    """
    check_window(window)
    check_clock([now, *(activity.at for activity in session.activities)])
    timeline = sorted(session.activities, key=lambda activity: activity.at)
    waiting = False
    turns = [activity.at for activity in timeline if activity.role == "agent"]
    if turns:
        last = turns[-1]
        replies = (activity.at for activity in timeline if activity.role == "person")
        waiting = not any(last < at <= last + window for at in replies)
        if waiting and now - last >= window:
            return DropOff(outcome="dropped", cause="no_reply")
    proposals = _open_proposals(timeline)
    if any(now - at >= window for at in proposals):
        return DropOff(outcome="dropped", cause="unresolved_proposal")
    return DropOff(outcome="pending" if waiting or proposals else "continued")


def drop_off_evaluator(*, window: timedelta, now: datetime) -> FunctionEvaluator[Session, DropOff]:
    """Drop-off as an evaluator. Its version shows the window and not `now`: that is when, not how, it is measured."""
    return FunctionEvaluator(
        lambda session: measure_drop_off(session, window=window, now=now),
        name="drop_off",
        version=f"{VERSION}:{in_seconds(check_window(window))}",
    )


def drop_off_rate(verdicts: Iterable[Verdict[DropOff] | DropOff]) -> float | None:
    """The share of decided sessions that dropped off; None if none is decided. Pending ones count nowhere.

    Args:
        verdicts: one a session: an evaluator's verdict, or a plain value.
    """
    decided = [value.outcome for value in values_of(verdicts) if value.outcome != "pending"]
    return decided.count("dropped") / len(decided) if decided else None


def _open_proposals(timeline: list[Activity]) -> list[datetime]:
    """When each proposal was made that no later resolution of its ref settles."""
    opened: dict[str | None, list[datetime]] = {}
    for activity in timeline:
        if activity.kind == "proposal":
            opened.setdefault(activity.ref, []).append(activity.at)
        elif activity.kind == "resolution":
            opened.pop(activity.ref, None)
    return [at for times in opened.values() for at in times]
