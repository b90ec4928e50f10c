"""Fidelity of a pairing's dialogues and effects of its personas' traits: golden values, and what a real run shows."""

from __future__ import annotations

import math
import random
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dialogues import baseline, episode, stored
from tables import table
from triagesim.config import Score
from triagesim.describing import describe, read_language
from triagesim.duplicates import write_duplicates
from triagesim.fidelity import COLUMNS, fidelity
from triagesim.jsonl import write_table
from triagesim.language import TRAITS, write_language
from triagesim.personas import registry
from triagesim.resources import load_yaml
from triagesim.score_rows import columns, row_of
from triagesim.traits import COLUMNS as TRAIT_COLUMNS
from triagesim.traits import cramers_v, hedges_g, trait_effects

Rows = list[dict[str, Any]]


def read(folder: Path, episodes: list[dict[str, Any]]) -> Rows:
    """The rows of some episodes as the tables read them."""
    write_language(stored(folder / "in.jsonl", episodes), folder / "rows.csv", folder / "leaks.csv")
    return [row for rows in read_language([folder / "rows.csv"], {}).values() for row in rows]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    return read(tmp_path_factory.mktemp("rows"), list(baseline(4)))


def faithful(rows: Rows, twins: set[str] | None = None) -> dict[str, dict[str, Any]]:
    found = [dict(zip(COLUMNS, row, strict=True)) for row in fidelity("made", rows, twins or set(), Score())]
    return {row["measure"]: row for row in found}


def effects(rows: Rows) -> list[dict[str, Any]]:
    return [dict(zip(TRAIT_COLUMNS, row, strict=True)) for row in trait_effects("made", rows, Score())]


def talk(words: int, of: int, **changes: Any) -> dict[str, Any]:
    """A dialogue of so many words, of which the patient fills `of` with "um"."""
    reply = ", ".join(["um"] * of + ["word"] * (words - of - 3))
    return episode([("nurse", "What is wrong?"), ("patient", reply)], **changes)


def test_means_rates_and_shares_are_those_counted_by_hand(tmp_path: Path) -> None:
    made = [
        talk(20, 2, episode_id="a-0", case={"case_id": "a", "acuity": 1, "pain": None}),
        talk(300, 4, episode_id="a-1", case={"case_id": "a", "acuity": 1, "pain": None}),
        talk(400, 0, episode_id="b-0", case={"case_id": "b", "acuity": 2, "pain": None}),
    ]
    found = faithful(read(tmp_path, made), {"a-0"})
    assert found["words"]["value"] == 240
    # Of two cases drawn twice, both extremes occur: a and a, 160; b and b, 400.
    assert (found["words"]["low"], found["words"]["high"]) == (160, 400)
    assert (found["words"]["reference_low"], found["words"]["reference_high"]) == (290, 590)
    assert "below the band" in found["words"]["note"]
    assert found["words_outside"]["value"] == pytest.approx(1 / 3, abs=1e-6)
    # 6 fillers in 17 + 297 + 397 words.
    assert found["fillers_per_100_words"]["value"] == pytest.approx(100 * 6 / 711, abs=1e-6)
    assert (found["words_level_1"]["value"], found["words_level_1"]["n"]) == (160, 2)
    assert "expected the shortest, and is;" in found["words_level_1"]["note"]
    assert found["words_level_1"]["reference_low"] is None
    assert (found["cue_response_share"]["value"], found["cue_response_share"]["n"]) == (None, 0)
    assert found["cue_response_share"]["note"].endswith("nothing to measure")
    assert found["near_duplicates"]["value"] == pytest.approx(1 / 3, abs=1e-6)
    assert "fewer than 30 cases" in found["near_duplicates"]["note"]


def test_what_was_never_seen_has_an_upper_end(rows: Rows) -> None:
    found = faithful(rows)["leaks_nurse_level"]
    # 0 of 48 cases by Wilson: z² / (48 + z²).
    assert (found["value"], found["low"]) == (0, 0)
    assert found["high"] == pytest.approx(1.959964**2 / (48 + 1.959964**2), abs=1e-5)


def test_an_interval_counts_cases_and_not_dialogues(rows: Rows) -> None:
    words = faithful(rows)["words"]
    means = [statistics.mean(r["words"] for r in rows if r["case_id"] == case) for case in {r["case_id"] for r in rows}]
    half = 1.96 * statistics.stdev(means) / math.sqrt(len(means))
    assert (words["high"] - words["low"]) / 2 == pytest.approx(half, rel=0.1)
    alone = 1.96 * statistics.stdev(row["words"] for row in rows) / math.sqrt(len(rows))
    assert half > 1.3 * alone


def test_the_baseline_does_what_its_personas_say(rows: Rows) -> None:
    directed = [row for row in effects(rows) if row["expected"] != "none"]
    verdicts = {(row["trait"], row["measure"], row["contrast"]): row["verdict"] for row in directed}
    assert "opposite to expected" not in verdicts.values()
    shown = {
        ("nurse_questioning_style", "open_question_share"),
        ("nurse_workload", "words"),
        ("nurse_emotional_responsiveness", "cue_response_share"),
        ("patient_verbosity", "patient_words_per_line"),
        ("patient_symptom_reporting", "pain_shift"),
        ("patient_disfluency", "fillers_per_100_words"),
        ("patient_disfluency", "repetitions_and_repairs_per_100_words"),
        ("patient_distress", "cues_per_line"),
        ("patient_english_proficiency", "articles_per_100_words"),
        ("nurse_risk_attitude", "nurse_questions"),
    }
    for (trait, measure, contrast), verdict in verdicts.items():
        if (trait, measure) in shown:
            assert verdict == "as expected", (trait, measure, contrast)


def test_shuffled_labels_show_about_as_many_effects_as_chance_allows(rows: Rows) -> None:
    draw = random.Random(3)
    clear = told = 0
    for _ in range(12):
        shuffled = [dict(row) for row in rows]
        for trait in TRAITS:
            labels = [row[trait] for row in rows]
            draw.shuffle(labels)
            for row, label in zip(shuffled, labels, strict=True):
                row[trait] = label
        for row in effects(shuffled):
            if row["expected"] != "none" and row["verdict"] != "too few":
                told += 1
                clear += row["verdict"] != "no measurable effect"
    assert told > 150
    # One in twenty, with some room for the bootstrap of few cases.
    assert clear / told < 0.09


def test_a_difference_and_its_standardised_form_are_those_of_the_textbook(tmp_path: Path) -> None:
    values = {"quiet": [10, 12, 14, 20], "overloaded": [9, 11, 10]}
    made = [
        talk(
            words + 3,
            0,
            episode_id=f"{level}-{number}",
            case={"case_id": f"{level}-{number}", "acuity": 3},
            nurse_persona={"workload": level},
        )
        for level, found in values.items()
        for number, words in enumerate(found)
    ]
    [row] = [
        row for row in effects(read(tmp_path, made)) if (row["trait"], row["measure"]) == ("nurse_workload", "words")
    ]
    assert row["effect"] == 10 - 14
    assert (row["mean_from"], row["mean_to"]) == (17, 13)
    pooled = math.sqrt((3 * statistics.variance(values["quiet"]) + 2 * statistics.variance(values["overloaded"])) / 5)
    assert row["hedges_g"] == pytest.approx(-4 / pooled * (1 - 3 / (4 * 5 - 1)), abs=1e-6)
    assert (row["n"], row["verdict"], row["note"]) == (7, "too few", "3 and 4 dialogues")


def test_a_group_without_variance_or_members_has_no_standardised_difference() -> None:
    assert np.isnan(hedges_g(np.array([3, 6, 12, 2, 8, 32.0])))
    assert np.isnan(hedges_g(np.array([1, 2, 4, 0, 0, 0.0])))


def constant(of: dict[str, tuple[str, float]], measure: str, spread: float = 0.01) -> Rows:
    """Rows in which a measure depends on nothing but a trait, forty cases for each level."""
    made = []
    for trait, (level, value) in of.items():
        for case in range(40):
            row = {**dict.fromkeys(TRAITS, "x"), "cluster": f"c{case}", "case_id": f"c{case}", trait.split()[0]: level}
            made.append(row | {"patient_words": 100, "patient_lines": 10, measure: value + spread * (case % 2)})
    names = {name for entry in load_yaml("contrasts.yaml")["measures"].values() for name in _parts(entry)}
    return [{**dict.fromkeys(names), **row} for row in made]


def _parts(entry: dict[str, Any]) -> list[str]:
    sums = entry["sum"] if isinstance(entry["sum"], list) else [entry["sum"]]
    return [*sums, *([entry["per"]] if "per" in entry else [])]


@pytest.mark.parametrize(
    ("averse", "verdict"),
    [(0.0, "as expected"), (0.2, "as expected"), (0.6, "opposite to expected")],
)
def test_no_shift_of_the_level_means_one_within_the_margin(averse: float, verdict: str) -> None:
    groups = {"nurse_risk_attitude a": ("risk_accepting", 0.0), "nurse_risk_attitude b": ("risk_averse", averse)}
    rows = constant(groups, "level_shift")
    [row] = [row for row in effects(rows) if (row["trait"], row["measure"]) == ("nurse_risk_attitude", "level_shift")]
    assert row["verdict"] == verdict


def test_a_wide_interval_around_none_is_no_proof_of_none() -> None:
    groups = {"nurse_risk_attitude a": ("risk_accepting", 0.0), "nurse_risk_attitude b": ("risk_averse", 0.0)}
    rows = constant(groups, "level_shift")
    for number, row in enumerate(rows):
        row["level_shift"] = (-1) ** (number * 7 // 3) * 2
    [row] = [row for row in effects(rows) if (row["trait"], row["measure"]) == ("nurse_risk_attitude", "level_shift")]
    assert row["low"] < -0.25 < 0.25 < row["high"]
    assert row["verdict"] == "no measurable effect"


def test_an_effect_in_the_wrong_direction_is_said_to_be_one() -> None:
    groups = {"patient_disfluency a": ("low", 9.0), "patient_disfluency b": ("high", 2.0)}
    rows = constant(groups, "patient_fillers")
    found = {row["contrast"]: row for row in effects(rows) if row["measure"] == "fillers_per_100_words"}
    assert found["high against low"]["verdict"] == "opposite to expected"
    assert found["high against low"]["effect"] == -7


def test_traits_that_can_t_be_told_apart_are_named() -> None:
    groups = {"patient_disfluency a": ("low", 1.0), "patient_disfluency b": ("high", 2.0)}
    rows = constant(groups, "patient_fillers")
    for row in rows:
        row["nurse_workload"] = {"low": "quiet", "high": "busy"}[row["patient_disfluency"]]
    found = {row["contrast"]: row for row in effects(rows) if row["measure"] == "fillers_per_100_words"}
    assert found["high against low"]["note"] == "goes with nurse_workload: whose effect it is can't be told"


def test_cramers_v_is_that_of_the_textbook() -> None:
    # A 2 × 2 table 10 5 / 3 12: phi = (10·12 − 5·3) / √(15·15·13·17).
    one = [0] * 15 + [1] * 15
    other = ["a"] * 10 + ["b"] * 5 + ["a"] * 3 + ["b"] * 12
    assert cramers_v(one, other) == pytest.approx(105 / math.sqrt(15 * 15 * 13 * 17))
    assert cramers_v(one, ["a"] * 30) == 0


def test_the_contrasts_name_traits_levels_and_columns_that_exist(rows: Rows) -> None:
    data = load_yaml("contrasts.yaml")
    for entry in data["contrasts"]:
        role, trait = entry["trait"].split("_", 1)
        assert {entry["from"], entry["to"]} <= set(registry(role).traits[trait].levels)
        assert entry["expected"] in ("higher", "lower") or entry["margin"] > 0
        assert set(_parts(data["measures"][entry["measure"]])) <= set(rows[0])
    for entry in load_yaml("fidelity.yaml")["measures"].values():
        assert set(_parts(entry)) <= set(rows[0])


def test_the_tables_are_the_same_bytes_however_the_episodes_are_cut(tmp_path: Path) -> None:
    some = [one for one in baseline(4) if one["case"]["acuity"] in (1, 4)]
    made = []
    for name, cuts in (("one", [some]), ("three", [some[::3], some[2::3], some[1::3]])):
        folder = tmp_path / name
        paths = [stored(folder / f"{number}.jsonl", cut) for number, cut in enumerate(cuts)]
        for path in paths:
            write_language(path, path.with_suffix(".csv"), path.with_suffix(".leaks.csv"))
        write_duplicates(paths, folder / "duplicates.csv")
        language = [path.with_suffix(".csv") for path in paths]
        leaks = [path.with_suffix(".leaks.csv") for path in paths]
        describe(language, leaks, folder / "duplicates.csv", [], Score(bootstrap=200), folder)
        names = ("fidelity.csv", "traits.csv", "leaks.csv", "duplicates.csv")
        made.append([(folder / table).read_bytes() for table in names])
    assert made[0] == made[1]


def test_patients_are_drawn_together_where_that_is_asked_for(tmp_path: Path) -> None:
    made = [talk(10 * number + 10, 0, episode_id=f"c{number}-0", case={"case_id": f"c{number}"}) for number in range(4)]
    path = stored(tmp_path / "in.jsonl", made)
    write_language(path, tmp_path / "rows.csv", tmp_path / "leaks.csv")
    write_duplicates([path], tmp_path / "duplicates.csv")
    scores = [dict(zip(columns(), row_of(one), strict=True)) | {"subject": "p1"} for one in made]
    write_table(tmp_path / "scores.csv", list(columns()), [row.values() for row in scores])
    options = Score(cluster="subject", bootstrap=100)
    describe(
        [tmp_path / "rows.csv"],
        [tmp_path / "leaks.csv"],
        tmp_path / "duplicates.csv",
        [tmp_path / "scores.csv"],
        options,
        tmp_path,
    )
    words = next(row for row in table(tmp_path / "fidelity.csv") if row["measure"] == "words")
    # One patient has all four: nothing varies from draw to draw.
    assert (words["value"], words["low"], words["high"], words["n"]) == ("25.0", "", "", "4")
