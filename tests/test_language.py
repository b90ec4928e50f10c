"""The row of an episode in results/language and the leaks: golden dialogues, odd artifacts, documented columns."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialogues import CASE, baseline, episode, stored
from tables import table
from triagesim import audit, describing, duplicates, fidelity, pool, traits
from triagesim.config import Score
from triagesim.errors import InputError
from triagesim.language import COLUMNS, FEATURES, LEAK_COLUMNS, features, leaks_of, write_language
from triagesim.leaks import KINDS, diagnosis_words
from triagesim.resources import RESOURCES

TALK = [
    ("nurse", "Hello. What brings you in?"),
    ("patient", "Um, my belly hurts, and I'm, I'm so scared."),
    ("nurse", "Let me take your pulse."),
    ("heartrate", 92.0),
    ("nurse", "I can see you're worried. How bad is the pain, zero to ten?"),
    ("patient", "Six."),
    ("o2sat", None),
    ("nurse", "Okay, thanks. Do you drink alcohol?"),
    ("patient", "I'd rather not say. Is it serious?"),
    ("nurse", "Please take a seat."),
]


def leaks(said: list[tuple[str, Any]], **changes: Any) -> list[tuple[str, int]]:
    """Kind and turn of what leaks in a dialogue."""
    return [(leak.kind, leak.turn) for leak in leaks_of(episode(said, **changes))]


def test_a_dialogue_s_measures_are_those_counted_by_hand() -> None:
    found = features(episode(TALK), [])
    expected = {
        # 5 + 9 + 5 + 13 + 1 + 6 + 7 + 4 words; nurse, patient, nurse (twice), patient, nurse, patient, nurse.
        **{"words": 50, "lines": 8, "turns": 7, "replies": 3},
        **{"nurse_words": 33, "nurse_lines": 5, "patient_words": 17, "patient_lines": 3},
        **{"nurse_questions": 3, "open_questions": 1, "closed_questions": 2},
        **{"nurse_followed": 3, "nurse_backchannels": 1, "patient_backchannels": 0},
        **{"patient_fillers": 1, "patient_repetitions": 1, "patient_repairs": 0, "patient_articles": 0},
        **{"patient_clarifications": 0, "cues": 2, "cues_answered": 1},
        **{"sensitive_questions": 1, "sensitive_declined": 1},
        **{"vitals_tried": 2, "vitals_measured": 1},
        **{"pain_said": 6.0, "pain_recorded": 4, "pain_shift": 2.0, "level_shift": 0},
        # Fifty words, of which you, I'm, is and take come twice.
        **{"mattr": 46 / 50, "nurse_mattr": None, "patient_mattr": None},
        # 50 words at 150 a minute; 0.3 before, 0.6 × 3, 0.5 × 3, 0.4 once, 1.5 for each of two vital signs, 0.5 after.
        "seconds": round(50 * 60 / 150 + 0.3 + 3 * 0.6 + 3 * 0.5 + 0.4 + 2 * 1.5 + 0.5, 1),
    }
    assert {name: found[name] for name in expected} == expected
    assert list(found) == list(FEATURES)


def test_an_urgent_final_level_and_a_missing_pain_score() -> None:
    found = features(episode(TALK[:2], final_triage=2, case={**CASE, "pain": "unable"}), [])
    assert found["level_shift"] == -1
    assert (found["pain_said"], found["pain_recorded"], found["pain_shift"]) == (None, None, None)


def test_a_reply_that_asks_for_the_question_again_holds_no_pain_score() -> None:
    asked = ("nurse", "How bad is the pain, zero to ten?")
    said = [asked, ("patient", "One more time please, slow?"), asked, ("patient", "About four.")]
    assert features(episode(said), [])["pain_said"] == 4
    assert (
        features(episode([("nurse", "Any fever?"), ("patient", "Four days now, and it's a 7/10.")]), [])["pain_said"]
        == 7
    )


@pytest.mark.parametrize("changes", [{"algorithm": "ats"}, {"features": {"feedback": True}}, {"final_triage": None}])
def test_what_can_t_be_graded_has_no_level_shift(changes: dict[str, Any]) -> None:
    assert features(episode(TALK, **changes), [])["level_shift"] is None


def test_the_words_agree_with_the_times_of_the_episode() -> None:
    for one in baseline(1)[::8]:
        last = one["history"][-1]
        assert features(one, [])["words"] == pytest.approx(last["t"] * 150 / 60, abs=0.2)


def test_a_level_is_a_leak_whoever_says_it_but_not_where_it_was_kept_out() -> None:
    said = [
        ("nurse", "What's wrong?"),
        ("patient", "They said I'm triage category two."),
        ("nurse", "You're an ESI 3."),
    ]
    assert leaks(said) == [("patient_level", 0), ("nurse_level", 1)]
    kept_out = episode(said)
    kept_out["history"][-1]["in_transcript"] = False
    assert [leak.kind for leak in leaks_of(kept_out)] == ["patient_level"]
    assert leaks([("patient", "I live on level 3.")]) == []


def test_a_vital_sign_that_nobody_told_the_patient_is_a_leak() -> None:
    line = ("patient", "My blood pressure is 142.")
    assert leaks([line]) == [("patient_vital", 0)]
    assert leaks([("nurse", "Your pressure is 142."), line]) == []
    assert leaks([line], case={**CASE, "script": {"story": "My blood pressure was 142 at home."}}) == []
    assert leaks([("patient", "It's been 142 days.")]) == []


def test_a_coded_diagnosis_is_a_leak_unless_the_patient_has_it_from_somewhere() -> None:
    line = ("patient", "I think it's appendicitis.")
    assert leaks([line]) == [("patient_diagnosis", 0)]
    assert leaks([("nurse", "Did you ever have appendicitis?"), line]) == []
    assert leaks([line], patient_script={"story": "My sister had appendicitis."}) == []
    assert leaks([("patient", "My belly hurts, it's acute.")]) == []


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Acute bronchitis, unspecified", {"bronchitis"}),
        ("Other intestinal obstruction unspecified as to cause", {"intestinal", "obstruction"}),
        ("Cellulitis of left lower limb", {"cellulitis"}),
        ("Chest pain, unspecified", set()),
        ("Pain in left hip", set()),
        ("", set()),
    ],
)
def test_a_diagnosis_is_named_by_the_words_that_only_it_has(title: str, words: set[str]) -> None:
    assert diagnosis_words(title) == words


def test_a_name_is_a_leak() -> None:
    said = [("nurse", "I'm Susan, your nurse."), ("patient", "Dr. Miller sent me. I took Panadol.")]
    assert leaks(said) == [("nurse_name", 0), ("patient_name", 0)]
    takes = [("patient", "I take Lisinopril every day.")]
    assert leaks(takes, case={**CASE, "medications": ["lisinopril"]}) == []


def test_the_baseline_leaks_nothing() -> None:
    assert [(one["episode_id"], leak) for one in baseline(1) for leak in leaks_of(one)] == []


def test_a_shard_has_a_row_an_episode_and_measures_only_for_finished_ones(tmp_path: Path) -> None:
    broken = episode([("nurse", "You're an ESI 3.")], episode_id="belly-1-1", status="error")
    skipped = episode(episode_id="belly-1-2", status="skipped", end_reason=None, final_triage=None)
    path = stored(tmp_path / "in.jsonl", [episode(TALK), broken, skipped])
    write_language(path, tmp_path / "rows.csv", tmp_path / "leaks.csv")
    rows = table(tmp_path / "rows.csv")
    assert [row["words"] for row in rows] == ["50", "", ""]
    assert rows[0]["nurse_questioning_style"] == "mixed"
    assert rows[0]["nurse_expertise"] == ""
    assert rows[0]["patient_gender"] == "female"
    assert table(tmp_path / "leaks.csv") == []


@pytest.mark.parametrize(
    "missing", ["nurse_persona", "patient_persona", "history", "models", "features", "patient_script"]
)
def test_an_episode_of_another_simulator_without_some_keys_is_measured(missing: str, tmp_path: Path) -> None:
    one = {key: value for key, value in episode(TALK, pairing="").items() if key != missing}
    write_language(stored(tmp_path / "in.jsonl", [one]), tmp_path / "rows.csv", tmp_path / "leaks.csv")
    [row] = table(tmp_path / "rows.csv")
    assert row["pairing"] == ("" if missing == "models" else "a/b")
    assert row["words"] == ("0" if missing == "history" else "50")


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["nurse", "patient"]), st.text(min_size=1, max_size=60)), max_size=6))
def test_no_dialogue_breaks_the_measures(said: list[tuple[str, str]]) -> None:
    one = episode(said)
    found = features(one, list(leaks_of(one)))
    assert found["nurse_lines"] + found["patient_lines"] == found["lines"] == len(said)
    assert found["cues_answered"] <= found["cues"] <= found["replies"]
    assert found["open_questions"] + found["closed_questions"] == found["nurse_questions"]
    json.dumps(found)


PAGE = (RESOURCES.parent / "docs/language.md").read_text(encoding="utf-8")
METRICS = (RESOURCES.parent / "docs/metrics.md").read_text(encoding="utf-8")


def documented(page: str, file: str) -> list[str]:
    """The columns that a page's section on a file names, in its first table."""
    section = page.partition(f"{file}: ")[2].partition("\n## ")[0]
    rows = section.partition("| column |")[2].partition("\n\n")[0].splitlines()[2:]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


@pytest.mark.parametrize(
    ("page", "file", "columns"),
    [
        (PAGE, "leaks.csv", LEAK_COLUMNS),
        (PAGE, "duplicates.csv", duplicates.COLUMNS),
        (PAGE, "fidelity.csv", fidelity.COLUMNS),
        (PAGE, "traits.csv", traits.COLUMNS),
        (PAGE, "audit.csv", audit.COLUMNS),
        (METRICS, "coverage.csv", pool.COVERAGE),
    ],
)
def test_the_documented_columns_are_the_written_ones(page: str, file: str, columns: tuple[str, ...]) -> None:
    assert sorted(documented(page, file)) == sorted(columns)


def test_the_documented_columns_of_a_dialogue_are_the_written_ones() -> None:
    named = documented(PAGE, "results/language/&lt;pairing&gt;/&lt;shard&gt;.csv")
    general = {"nurse_<trait>", "patient_<trait>"}
    assert general <= set(named)
    of_traits = {name for name in COLUMNS if name not in FEATURES and name.startswith(("nurse_", "patient_"))}
    assert set(named) - general == set(COLUMNS) - of_traits
    assert len(named) == len(set(named))


def test_every_kind_of_leak_is_explained() -> None:
    rows = PAGE.partition("| kind |")[2].partition("\n\n")[0].splitlines()[2:]
    assert [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])] == list(KINDS)


def test_a_table_of_another_version_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("pairing,words\na,3\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"rows\.csv: other columns"):
        describing.describe([tmp_path / "rows.csv"], [], tmp_path / "none.csv", [], Score(), tmp_path)
