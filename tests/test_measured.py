"""What rule score says of each episode beside its score: completion, drop-off, rewrites, and their rates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from test_completion import episodes
from triagesim.jsonl import write_jsonl
from triagesim.measured import COLUMNS, rates
from triagesim.summary import read_values

SCRIPT = Path(__file__).parents[1] / "workflow" / "scripts" / "score.py"


def measured(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the rule's command on `folder/episodes.jsonl`."""
    command = [sys.executable, SCRIPT, folder / "episodes.jsonl", "--measures", folder / "out.csv", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def rows_of(folder: Path, *words: str | Path) -> list[dict[str, Any]]:
    done = measured(folder, *words)
    assert done.returncode == 0, done.stderr
    return list(read_values(folder / "out.csv"))


def verdict(completed: bool, quality: int) -> dict[str, Any]:
    return {
        "value": {"completed": completed, "quality": quality, "reason": "so"},
        "evaluator": "judge_completion",
        "version": "1:0",
    }


def test_a_finished_episode_continued_and_what_nobody_judged_or_reviewed_is_empty(tmp_path: Path) -> None:
    played = episodes()
    write_jsonl(tmp_path / "episodes.jsonl", played)
    rows = rows_of(tmp_path)
    assert [row["episode_id"] for row in rows] == [one["episode_id"] for one in played if one["status"] != "skipped"]
    assert tuple(rows[0]) == COLUMNS
    assert {row["outcome"] for row in rows} == {"continued"}
    assert rates(rows) == {
        "judged": 0,
        "completion_rate": None,
        "mean_quality": None,
        "drop_off_rate": 0.0,
        "reviewed": 0,
        "rewrite_rate": None,
    }


def test_an_episode_that_ended_at_an_unanswered_question_dropped_off(tmp_path: Path) -> None:
    done, broken = episodes(2)[:2]
    last = next(place for place, line in reversed(list(enumerate(broken["history"]))) if line.get("actor") == "patient")
    broken = {**broken, "status": "error", "error": "no answer", "history": broken["history"][:last]}
    write_jsonl(tmp_path / "episodes.jsonl", [done, broken])
    rows = rows_of(tmp_path)
    assert [row["outcome"] for row in rows] == ["continued", "dropped"]
    assert rows[1]["cause"] == "no_reply"
    assert rates(rows)["drop_off_rate"] == 0.5


def test_rewrites_are_counted_in_the_reviewed_episodes_alone(tmp_path: Path) -> None:
    played = episodes(2)[:2]
    write_jsonl(tmp_path / "episodes.jsonl", played)
    lines = [place for place, line in enumerate(played[0]["history"]) if line.get("utterance")]
    review = {
        "episode_id": played[0]["episode_id"],
        "line": lines[0],
        "text": "Something else, in new words.",
    }
    write_jsonl(tmp_path / "reviews.jsonl", [review])
    rows = rows_of(tmp_path, "--reviews", tmp_path / "reviews.jsonl")
    assert [(row["agent_revisions"], row["rewritten"]) for row in rows] == [(len(lines), 1), (None, None)]
    assert rates(rows)["rewrite_rate"] == 1 / len(lines)
    assert rates(rows)["reviewed"] == 1


def test_verdicts_become_the_completion_rate(tmp_path: Path) -> None:
    played = episodes(3)[:3]
    write_jsonl(tmp_path / "episodes.jsonl", played)
    verdicts = [verdict(True, 5), verdict(False, 2), None]
    rows = [{"episode_id": one["episode_id"], "verdict": said} for one, said in zip(played, verdicts, strict=True)]
    write_jsonl(tmp_path / "verdicts.jsonl", rows)
    found = rates(rows_of(tmp_path, "--verdicts", tmp_path / "verdicts.jsonl"))
    assert (found["judged"], found["completion_rate"], found["mean_quality"]) == (2, 0.5, 3.5)


@pytest.mark.parametrize("line", [999, 0.5])
def test_a_review_that_fits_no_line_is_refused_by_its_place(tmp_path: Path, line: float) -> None:
    played = episodes(1)[:1]
    write_jsonl(tmp_path / "episodes.jsonl", played)
    write_jsonl(tmp_path / "reviews.jsonl", [{"episode_id": played[0]["episode_id"], "line": line, "text": "So?"}])
    done = measured(tmp_path, "--reviews", tmp_path / "reviews.jsonl")
    assert done.returncode != 0
    assert "999" in done.stderr or "reviews.jsonl, line 1" in done.stderr
    assert not (tmp_path / "out.csv").exists()
