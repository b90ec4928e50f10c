"""Scores an episode against its ground truth, and summarises many; from stored artifacts alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from triagesim.lenient import mapping, mappings

SCORE_KEYS = (
    "ground_truth",
    "final_triage",
    "correct",
    "abs_error",
    "over_triage",
    "under_triage",
    "first_correct_turn",
    "end_reason",
    "num_turns",
    "num_vitals",
    "num_red_flags",
    "verified_utterances",
    "regenerated_utterances",
    "flagged_utterances",
    "edited_utterances",
)
#: Steps in which the nurse states its level; beside the others it is only an estimate.
_STATING = ("utterance", "end")


def score(episode: Mapping[str, Any]) -> dict[str, Any]:
    """The measures of one episode, by the names in `SCORE_KEYS`.

    A lower level is more urgent: `over_triage` means a level below the ground truth. What can't be said is None: a
    missing level never matches a missing acuity.
    """
    truth = _level(mapping(episode.get("case")).get("acuity"))
    final = _level(episode.get("final_triage"))
    error = None if truth is None or final is None else final - truth
    history = mappings(episode.get("history"))
    checks = [mapping(line.get("verification")) for line in history if line.get("verification")]
    checks = [check for check in checks if check.get("passed") is not None]
    return {
        "ground_truth": truth,
        "final_triage": final,
        "correct": None if error is None else error == 0,
        "abs_error": None if error is None else abs(error),
        "over_triage": None if error is None else error < 0,
        "under_triage": None if error is None else error > 0,
        "first_correct_turn": _first_correct_turn(episode, truth),
        "end_reason": episode.get("end_reason"),
        "num_turns": episode.get("num_turns"),
        "num_vitals": sum(line.get("event") == "vital" and line.get("value") is not None for line in history),
        "num_red_flags": len(flags) if isinstance(flags := episode.get("red_flags"), list | tuple) else 0,
        "verified_utterances": len(checks),
        "regenerated_utterances": sum(bool(check.get("rejected")) for check in checks),
        "flagged_utterances": sum(check["passed"] is False and not check.get("edited") for check in checks),
        "edited_utterances": sum(bool(check.get("edited")) for check in checks),
    }


def summarize(episodes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts and rates over the episodes with status `ok`; a rate with nothing to divide is None.

    `skipped` and `failed` count the others.
    Rates of agreement are over graded episodes (with a level and a ground truth), rates of lines over checked lines.
    """
    counts: Counter[str] = Counter()

    def scores() -> Iterator[dict[str, Any]]:
        for episode in episodes:
            status = str(episode.get("status"))
            counts[status] += 1
            if status == "ok":
                yield score(episode)

    summary = summarize_scores(scores())
    return {**summary, "skipped": counts["skipped"], "failed": counts["error"]}


def summarize_scores(scores: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """`summarize` from scores that are there already, all of episodes with status `ok`."""
    rows = list(scores)
    graded = [row for row in rows if row["correct"] is not None]
    checked = sum(row["verified_utterances"] for row in rows)
    return {
        "episodes": len(rows),
        "graded": len(graded),
        "accuracy": _mean(row["correct"] for row in graded),
        "mean_abs_error": _mean(row["abs_error"] for row in graded),
        "over_triage_rate": _mean(row["over_triage"] for row in graded),
        "under_triage_rate": _mean(row["under_triage"] for row in graded),
        "nurse_ended_rate": _mean(row["end_reason"] == "nurse_end" for row in rows),
        "mean_turns": _mean(row["num_turns"] for row in rows if row["num_turns"] is not None),
        "mean_vitals": _mean(row["num_vitals"] for row in rows),
        "regenerated_rate": _share(sum(row["regenerated_utterances"] for row in rows), checked),
        "flagged_rate": _share(sum(row["flagged_utterances"] for row in rows), checked),
        "edited_rate": _share(sum(row["edited_utterances"] for row in rows), checked),
    }


def other_scale(episode: Mapping[str, Any]) -> bool:
    """Whether the nurse used another scale than the one its ground truth is on: such an episode can't be graded."""
    label = mapping(episode.get("case")).get("acuity_scale")
    return label is not None and label != episode.get("algorithm")


def leaked_label(episode: Mapping[str, Any]) -> bool:
    """Whether the nurse was told how near its level is (feature feedback): such an episode supports no claim."""
    return bool(mapping(episode.get("features")).get("feedback"))


def outcome(episode: Mapping[str, Any], scores: Mapping[str, Any]) -> str:
    """Where an episode is counted: `graded`, or the one reason why it is in no figure of agreement.

    `skipped`, `error`, `leaked_label`, `other_scale`, `no_truth` or `no_level`, the first of them that holds.
    """
    if episode.get("status") != "ok":
        return "skipped" if episode.get("status") == "skipped" else "error"
    if leaked_label(episode):
        return "leaked_label"
    if other_scale(episode):
        return "other_scale"
    if scores["ground_truth"] is None:
        return "no_truth"
    return "no_level" if scores["final_triage"] is None else "graded"


def levels_held(steps: Iterable[Mapping[str, Any]]) -> list[int]:
    """The level that the nurse held after 0, 1, 2 … replies: that of its last step before the next question's answer.

    A turn without a step keeps the level before it; the list ends before the first turn that has none to keep.
    """
    last = {step.get("turn"): level for step in steps if (level := _level(step.get("triage"))) is not None}
    turns = [turn for turn in last if isinstance(turn, int) and turn >= 0]
    held: list[int] = []
    for turn in range(max(turns, default=-1) + 1):
        level = last.get(turn, held[-1] if held else None)
        if level is None:
            break
        held.append(level)
    return held


def _first_correct_turn(episode: Mapping[str, Any], truth: int | None) -> int | None:
    for step in mappings(episode.get("trace")):
        if truth is not None and step.get("action") in _STATING and _level(step.get("triage")) == truth:
            turn = step.get("turn")
            return turn if isinstance(turn, int) else None
    return None


def _level(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 5 else None


def _mean(values: Iterable[float]) -> float | None:
    numbers = [float(value) for value in values]
    return _share(sum(numbers), len(numbers))


def _share(part: float, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None
