"""What the figures draw: the pauses in which something was measured, and who was called what."""

from __future__ import annotations

from pathlib import Path

import pytest

from make_figures import confusion, vital_pauses
from triagesim.errors import InputError
from triagesim.jsonl import write_table

HEAD = ["status", "algorithm", "other_scale", "labels", "ground_truth", "final_triage", "correct"]


def test_a_vital_sign_lies_in_the_pause_before_the_next_spoken_line() -> None:
    lines = [
        {"speaker": "nurse", "text": "Hello.", "start": 0.3, "end": 1.0},
        {"speaker": "patient", "text": "Hello.", "start": 1.6, "end": 2.0},
        {"speaker": "nurse", "text": "Your finger, please.", "start": 2.5, "end": 4.0},
        {"speaker": "nurse", "text": "We'll see you soon.", "start": 7.5, "end": 9.0},
    ]
    history = [
        {"actor": "nurse", "utterance": "Hello."},
        {"actor": "patient", "utterance": "Hello."},
        {"actor": "nurse", "utterance": "Your finger, please."},
        {"actor": "system", "event": "vital", "name": "o2sat"},
        {"actor": "system", "event": "vital", "name": "heartrate"},
        {"actor": "nurse", "utterance": "You are a level 3.", "in_transcript": False},
        {"actor": "nurse", "utterance": "We'll see you soon."},
        {"actor": "system", "event": "triage_end"},
    ]
    assert list(vital_pauses(lines, history)) == [(4.0, 7.5, ["o2sat", "heartrate"])]


def test_the_confusion_counts_graded_dialogues_by_scale(tmp_path: Path) -> None:
    ok = ["ok", "esi", False, "a label", 2, 3, False]
    left_out = [["skipped", "esi", False, "", None, None, None], ["ok", "esi", True, "a label", 2, 2, True]]
    folder = tmp_path / "scores" / "agenda"
    write_table(folder / "1-of-2.csv", HEAD, [ok, *left_out])
    write_table(folder / "2-of-2.csv", HEAD, [ok, ["ok", "ats", False, "a label", 5, 5, True]])
    counts, labels = confusion(tmp_path)
    assert labels == "a label"
    assert list(counts) == ["esi", "ats"]
    assert counts["esi"][1][2] == 2
    assert counts["ats"][4][4] == 1
    assert [sum(map(sum, table)) for table in counts.values()] == [2, 1]


def test_a_run_without_the_baseline_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no graded dialogue"):
        confusion(tmp_path)
