"""The shipped cases: they load, cover both scales, follow from their scale's decision points and leak nothing."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from triagesim.cases import YOUNGEST, Case, PatientScript, load_cases
from triagesim.resources import RESOURCES

FOLDER = RESOURCES / "cases"
VIGNETTES = load_cases(FOLDER / "vignettes.jsonl")
HELDOUT = load_cases(FOLDER / "heldout.jsonl")
EXAMPLES = load_cases(FOLDER / "examples.jsonl")
WRITTEN = VIGNETTES + HELDOUT
LEVELS = range(1, 6)
#: The decision points of ESI that can end at a level.
POINTS = {1: "A", 2: "BD", 3: "CD", 4: "C", 5: "C"}

ESI = [case for case in WRITTEN if case.acuity_scale == "esi"]
every_written = pytest.mark.parametrize("case", WRITTEN, ids=lambda case: case.case_id)


def table() -> dict[str, dict[str, str]]:
    """The rows of `vignettes.md` by case id."""
    header = ["case_id", "scale", "level", "feature", "point", "source"]
    rows = {}
    for line in (FOLDER / "vignettes.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == len(header) and cells[0] != "case_id":
            assert cells[0] not in rows, f"{cells[0]} has two rows"
            rows[cells[0]] = dict(zip(header, cells, strict=True))
    return rows


TABLE = table()


def script_of(case: Case) -> PatientScript:
    assert case.script is not None, f"{case.case_id} has no script"
    return case.script


def spoken(case: Case) -> Iterator[str]:
    """Every text of the script that a patient may say."""
    for value in script_of(case).model_dump().values():
        yield from [value] if isinstance(value, str) else value


def danger_zone(case: Case) -> list[str]:
    """Adult vital signs beyond ESI's limits at decision point D (strictly)."""
    vitals = {name: value for name, value in case.vitals.items() if value is not None}
    return [
        name
        for name, outside in {
            "heartrate": vitals.get("heartrate", 0) > 100,
            "resprate": vitals.get("resprate", 0) > 20,
            "o2sat": vitals.get("o2sat", 100) < 92,
        }.items()
        if outside
    ]


def counts(cases: list[Case], scale: str) -> Counter[int | None]:
    return Counter(case.acuity for case in cases if case.acuity_scale == scale)


def test_vignettes_cover_every_level_of_both_scales() -> None:
    assert len(VIGNETTES) >= 36
    assert all(counts(VIGNETTES, "esi")[level] >= 5 for level in LEVELS)
    assert all(counts(VIGNETTES, "ats")[level] >= 2 for level in LEVELS)


def test_heldout_covers_every_level_of_both_scales() -> None:
    assert len(HELDOUT) >= 12
    assert counts(HELDOUT, "esi").total() >= 8
    assert all(counts(HELDOUT, scale)[level] >= 1 for scale in ("esi", "ats") for level in LEVELS)


def test_ids_are_unique_over_all_files() -> None:
    ids = [case.case_id.lower() for case in WRITTEN + EXAMPLES]
    assert len(ids) == len(set(ids))


def test_every_case_can_be_simulated_and_is_synthetic() -> None:
    assert {case.case_id: reason for case in WRITTEN + EXAMPLES if (reason := case.why_not())} == {}
    assert {case.provenance for case in WRITTEN + EXAMPLES} == {"synthetic"}


def test_nobody_is_too_young_to_speak_for_themselves() -> None:
    assert all(case.age is not None and case.age >= YOUNGEST for case in WRITTEN)


def test_files_mix_people_and_arrivals() -> None:
    for cases in (VIGNETTES, HELDOUT):
        assert {case.age_group for case in cases} == {"adult", "older"}
        assert {case.gender for case in cases} == {"female", "male"}
        assert {"walk in", "ambulance"} <= {case.arrival_transport for case in cases}
    assert {case.arrival_transport for case in WRITTEN} <= {"walk in", "ambulance", "police", "helicopter", "other"}


def test_a_third_of_the_cases_lack_a_vital_sign() -> None:
    for cases in (VIGNETTES, HELDOUT):
        assert sum(None in case.vitals.values() for case in cases) * 3 >= len(cases)


def test_first_three_suit_a_small_demo() -> None:
    first = VIGNETTES[:3]
    assert [(case.acuity_scale, case.acuity) for case in first] == [("esi", 3), ("esi", 2), ("esi", 4)]
    for case in first:
        assert None not in case.vitals.values()
        assert (script_of(case).cognitive_state, script_of(case).intoxication) == ("alert", "none")


def test_examples_are_plain_cases_without_a_script() -> None:
    assert len(EXAMPLES) == 3
    assert all(case.script is None and None not in case.vitals.values() for case in EXAMPLES)


def test_table_has_one_row_for_every_case_and_no_other() -> None:
    assert set(TABLE) == {case.case_id for case in WRITTEN}


@every_written
def test_table_row_agrees_with_the_case(case: Case) -> None:
    row = TABLE[case.case_id]
    assert (row["scale"], row["level"]) == (case.acuity_scale, str(case.acuity))
    assert row["feature"]
    assert row["source"].startswith({"esi": "ENA", "ats": "AC"}[str(case.acuity_scale)])
    if case.acuity_scale == "ats":
        assert row["point"].startswith(f"Category {case.acuity}: ")
    else:
        assert row["point"][0] in POINTS[case.acuity or 0]


@pytest.mark.parametrize("case", [case for case in ESI if case.acuity == 3], ids=lambda case: case.case_id)
def test_esi_level_3_has_no_unexplained_danger_zone_vital(case: Case) -> None:
    explained = TABLE[case.case_id]["point"].startswith("D (explained: ")
    assert bool(danger_zone(case)) == explained


def test_esi_level_2_by_decision_point_d_has_a_vital_beyond_its_limit() -> None:
    raised = [case for case in ESI if case.acuity == 2 and TABLE[case.case_id]["point"] == "D"]
    assert raised
    assert all(danger_zone(case) for case in raised)


@pytest.mark.parametrize("case", [case for case in ESI if case.acuity in (4, 5)], ids=lambda case: case.case_id)
def test_esi_levels_4_and_5_have_ordinary_vitals(case: Case) -> None:
    assert danger_zone(case) == []


@every_written
def test_vital_signs_are_of_a_living_adult(case: Case) -> None:
    limits = {
        "temperature": (95, 106),
        "heartrate": (20, 300),
        "resprate": (4, 80),
        "o2sat": (40, 100),
        "sbp": (40, 300),
    }
    for name, value in case.vitals.items():
        assert value is None or limits[name][0] <= value <= limits[name][1], name
    if case.dbp is not None:
        assert case.vitals["sbp"] is not None
        assert 10 <= case.dbp < case.vitals["sbp"]


@every_written
def test_script_gives_an_interview_something_to_find(case: Case) -> None:
    script = script_of(case)
    assert script.story
    assert script.onset
    assert script.social_history
    assert script.associated_symptoms
    assert len(script.associated_symptoms) + len(script.pertinent_negatives) >= 5


@every_written
def test_script_states_the_same_pain_as_the_case(case: Case) -> None:
    scores = re.findall(r"(\d+) out of 10", script_of(case).severity)
    assert scores == ([str(case.pain)] if isinstance(case.pain, int) else [])


@every_written
def test_script_names_no_diagnosis(case: Case) -> None:
    text = "\n".join(spoken(case)).lower()
    assert [diagnosis for diagnosis in case.diagnoses if diagnosis.lower() in text] == []


@every_written
def test_script_gives_no_vital_sign_away(case: Case) -> None:
    text = re.sub(r"\b\d+ out of 10\b", "", "\n".join(spoken(case)))
    said = {float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)}
    assert said.isdisjoint(value for value in (*case.vitals.values(), case.dbp) if value is not None)


@every_written
def test_patient_takes_only_medicines_of_the_case(case: Case) -> None:
    assert set(script_of(case).medications) <= set(case.medications)


@every_written
def test_phrases_continue_the_words_before_them(case: Case) -> None:
    script = script_of(case)
    assert [item for item in script.associated_symptoms if re.match(r"(i|no|not|i'm|i've)\b", item, re.I)] == []
    assert [item for item in script.pertinent_negatives if re.match(r"(i|no|not|any|never)\b", item, re.I)] == []
    assert [item for item in script.medical_history if re.match(r"(i|no|not|i'm|i've)\b", item, re.I)] == []


def test_red_flags_are_short_and_lower_case() -> None:
    flags = [flag for case in WRITTEN for flag in case.expert_red_flags]
    assert [flag for flag in flags if flag != flag.lower() or len(flag.split()) > 7] == []


def test_complaints_are_short_and_hold_no_diagnosis() -> None:
    for case in WRITTEN + EXAMPLES:
        complaint = str(case.chief_complaint)
        assert len(complaint) <= 60, case.case_id
        assert complaint.lower() not in {diagnosis.lower() for diagnosis in case.diagnoses}


@pytest.mark.parametrize("name", ["vignettes.jsonl", "heldout.jsonl"])
def test_every_row_writes_out_all_keys(name: str) -> None:
    keys = set(Case.model_fields)
    for line in (FOLDER / name).read_text(encoding="utf-8").split("\n"):
        if line:
            row = json.loads(line)
            assert set(row) == keys
            assert set(row["script"]) == set(PatientScript.model_fields)
