"""Measures of a whole piece of work: task completion, drop-off and rewrites, and how an episode is read for them."""

from __future__ import annotations

from triagesim.measures.adapters import (
    EPOCH,
    episode_session,
    episode_transcript,
    line_histories,
    line_history,
    read_reviews,
)
from triagesim.measures.completion import TaskCompletion, Transcript, Turn, completion_rate
from triagesim.measures.rewrites import (
    History,
    Revision,
    Rewrites,
    measure_rewrites,
    rewrite_evaluator,
    rewrite_rate,
    share_changed,
)
from triagesim.measures.sessions import (
    Activity,
    DropOff,
    Session,
    drop_off_evaluator,
    drop_off_rate,
    measure_drop_off,
)
from triagesim.measures.verdicts import FunctionEvaluator, Role, Verdict

__all__ = [
    "EPOCH",
    "Activity",
    "DropOff",
    "FunctionEvaluator",
    "History",
    "Revision",
    "Rewrites",
    "Role",
    "Session",
    "TaskCompletion",
    "Transcript",
    "Turn",
    "Verdict",
    "completion_rate",
    "drop_off_evaluator",
    "drop_off_rate",
    "episode_session",
    "episode_transcript",
    "line_histories",
    "line_history",
    "measure_drop_off",
    "measure_rewrites",
    "read_reviews",
    "rewrite_evaluator",
    "rewrite_rate",
    "share_changed",
]
