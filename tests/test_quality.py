"""Quality of cases: every row accepted, flagged or rejected with its reason, and no value silently changed or lost."""

from __future__ import annotations

import contextlib
import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tables import FAULTS, HEADERS, patient, stay, table, tables
from triagesim.build import CASES_HEADER, REJECTS_HEADER, build_cases
from triagesim.cases import Case, canonical, load_cases, make_case
from triagesim.errors import InputError
from triagesim.mimic import provenance_of
from triagesim.quality import Reject, clean, pain_status, rules, temperature_unit
from triagesim.resources import RESOURCES
from triagesim.views import arrival_view, facts_for

PAGE = (RESOURCES.parent / "docs" / "cases.md").read_text(encoding="utf-8")

ROW: dict[str, Any] = {
    "case_id": "a",
    "chief_complaint": "Fall",
    "temperature": 98.6,
    "heartrate": 80,
    "resprate": 16,
    "o2sat": 99,
    "sbp": 120,
    "dbp": 80,
    "acuity": 3,
    "pain": 4,
    "age": 50,
}


def made(unit: Any = "F", **changes: Any) -> Case:
    """The case of a good row with changes."""
    return make_case(ROW | changes, unit)


def flags(case: Case) -> list[str]:
    found: list[str] = (case.model_extra or {}).get("flags", [])
    return found


def source_values(case: Case) -> dict[str, Any]:
    found: dict[str, Any] = (case.model_extra or {}).get("source_values", {})
    return found


# -- the faults that people met: each row of the file, then each kind


class Built:
    """What came out of a folder of tables."""

    def __init__(self, folder: Path, **lines: Any) -> None:
        keep = {"triage": patient("keep", "P0"), "edstays": stay("keep", "P0")}
        rows = {name: [*([keep[name]] if name in keep else []), *lines.get(name, [])] for name in HEADERS}
        self.flow = build_cases(tables(folder / "ed", **rows), folder / "out", shards=None, provenance="mimic_iv_ed")
        cases = load_cases(folder / "out" / "cases.jsonl")
        self.cases = {case.case_id: case for case in cases if case.case_id != "keep"}
        self.rejects = {row["id"]: row["code"] for row in table(folder / "out" / "rejects.csv")}
        assert self.flow["read"] == self.flow["accepted"] + self.flow["rejected"]

    def one(self) -> Case:
        """The only case."""
        [case] = self.cases.values()
        return case

    def has(self, *expected: str) -> bool:
        """Whether the only case has these flags (age is never known here)."""
        return set(flags(self.one())) == {*expected, "age_unknown"}


def from_triage(folder: Path, row: str) -> Built:
    subject, stay_id, *_ = row.split(",")
    return Built(folder, triage=[row], edstays=[stay(stay_id, subject)])


def celsius(folder: Path, row: str) -> None:
    built = from_triage(folder, row)
    assert built.one().vitals["temperature"] == 97.7
    assert built.has("temp_unit_assumed_celsius")
    assert source_values(built.one()) == {"temperature": "36.5"}


def pressure_typo(folder: Path, row: str) -> None:
    built = from_triage(folder, row)
    assert (built.one().dbp, built.one().vitals["sbp"]) == (None, 111)
    assert built.has("dbp_implausible")
    assert source_values(built.one()) == {"dbp": "879"}


def saturation_typo(folder: Path, row: str) -> None:
    built = from_triage(folder, row)
    assert built.one().vitals["o2sat"] is None
    assert built.has("o2sat_implausible")
    assert source_values(built.one()) == {"o2sat": "985"}


def arrest(folder: Path, row: str) -> None:
    built = from_triage(folder, row)
    case = built.one()
    assert case.vitals == {"temperature": 98.1, "heartrate": None, "resprate": None, "o2sat": None, "sbp": None}
    assert built.has("vital_zero", "arrival_in_complaint", "pain_written_out")
    assert (case.acuity, case.chief_complaint, case.pain_status) == (1, "Cardiac arrest", "intubated")
    assert arrival_view(case, age_group=None).observed == "intubated"


def pain_code(folder: Path, row: str) -> None:
    built = from_triage(folder, row)
    assert (built.one().pain_score, built.one().pain_status) == (None, "unable_to_assess")
    assert built.has("pain_gt_10")


def pain_word(folder: Path, row: str) -> None:
    built = from_triage(folder, row)
    assert (built.one().pain_score, built.one().pain_status, built.one().pain) == (None, "unable_to_assess", "unable")
    assert built.has()


def letter_o(folder: Path, row: str) -> None:
    built = from_triage(folder, row)
    assert built.one().pain_score == 0
    assert built.has("pain_letter_o")


def unlabelled(folder: Path, row: str) -> None:
    built = from_triage(folder, row)
    assert built.has("no_reference_acuity", "vitals_missing")
    assert built.one().why_not() == "no ground-truth acuity"


def sickest(folder: Path, row: str) -> None:
    built = from_triage(folder, row)
    assert built.has("vitals_missing")
    assert (built.one().acuity, built.one().pain_status) == (1, "critical")


def placeholder(folder: Path, row: str) -> None:
    assert from_triage(folder, row).rejects == {"S13": "no_complaint"}


def several_items(folder: Path, row: str) -> None:
    built = from_triage(folder, row)
    assert built.one().complaints == ["Chest pain", "NSTEMI"]
    assert (built.one().model_extra or {})["arrival_flags"] == ["Transfer"]
    assert built.has("diagnosis_in_complaint", "arrival_in_complaint")


def out_of_range(folder: Path, row: str) -> None:
    assert from_triage(folder, row).rejects == {"S16": "acuity_out_of_range"}


def twice(folder: Path, row: str) -> None:
    del row
    built = Built(folder, triage=[patient("S18", "T18")] * 2, edstays=[stay("S18", "T18")])
    assert built.has("duplicate_row")
    assert built.rejects == {"S18": "duplicate_row"}


def half_a_stay(folder: Path, row: str) -> None:
    del row
    assert Built(folder / "a", edstays=[stay("S20", "T20")]).rejects == {"S20": "no_triage_row"}
    built = Built(folder / "b", triage=[patient("S20", "T20")])
    assert built.has("no_stay_row")
    assert (built.one().gender, built.one().arrival_transport) == (None, None)


def backwards(folder: Path, row: str) -> None:
    built = Built(folder, triage=[patient("S21", "T21")], edstays=[row])
    assert built.has("stay_times_inverted")
    assert (built.one().model_extra or {})["length_of_stay_min"] is None


def free_text_drug(folder: Path, row: str) -> None:
    first = row.partition(" ; ")[0]
    aspirin = ["T23,S23,2180-05-06 20:00:00,Aspirin,004380,00904404073,1,1,A", "T23,S23,,aspirin ,004380,,2,2,B"]
    built = Built(folder, triage=[patient("S23", "T23")], edstays=[stay("S23", "T23")], medrecon=[first, *aspirin])
    assert built.one().medications == ["iron liquid", "Aspirin"]
    assert (built.one().model_extra or {})["medication_gsn"] == ["0", "004380"]


def coded_later(folder: Path, row: str) -> None:
    case = Built(folder, triage=[patient("S24", "T24")], edstays=[stay("S24", "T24")], diagnosis=[row]).one()
    assert case.diagnoses == ["INTRACEREBRAL HEMORRHAGE"]
    assert (case.model_extra or {})["diagnosis_codes"] == ["ICD-9 431"]
    known = {facts_for(role, case, age_group="adult", unwell="").model_dump_json() for role in ("nurse", "patient")}
    assert not any("HEMORRHAGE" in text for text in known)


def renamed_columns(folder: Path, row: str) -> None:
    path = folder / "vitalsign.csv"
    path.write_text(f"{row}\nT25,S25,98.6,80,16,99,120,80,,4\n", encoding="utf-8")
    said = r"no column heartrate, resprate, o2sat, .*rename pulse to heartrate, respiratory_rate to resprate, oxygen_"
    with pytest.raises(InputError, match=said):
        load_cases(path)


def credentialed(folder: Path, row: str) -> None:
    del row
    ed = tables(folder, [patient("31234567", "10000032")], [stay("31234567", "10000032")])
    assert provenance_of(ed, "synthetic") == "mimic_iv_ed"
    assert [case.provenance for case in load_cases(ed)] == ["mimic_iv_ed"]


BEHAVIOUR: dict[str, Callable[[Path, str], None]] = {
    "F01": celsius,
    "F03": pressure_typo,
    "F05": saturation_typo,
    "F06": arrest,
    "F07": pain_code,
    "F08": pain_word,
    "F10": letter_o,
    "F11": unlabelled,
    "F12": sickest,
    "F13": placeholder,
    "F15": several_items,
    "F16": out_of_range,
    "F18": twice,
    "F20": half_a_stay,
    "F21": backwards,
    "F23": free_text_drug,
    "F24": coded_later,
    "F25": renamed_columns,
    "F31": credentialed,
}
KNOWN = (
    {row["id"]: row for row in map(json.loads, FAULTS.read_text(encoding="utf-8").splitlines())}
    if FAULTS.exists()
    else {}
)
needs_faults = pytest.mark.skipif(not KNOWN, reason="case_faults.jsonl isn't in ../shared/data")


@needs_faults
@pytest.mark.parametrize("name", BEHAVIOUR)
def test_a_fault_that_people_met_ends_as_it_should(name: str, tmp_path: Path) -> None:
    BEHAVIOUR[name](tmp_path, KNOWN[name]["row"])


@needs_faults
def test_every_such_fault_has_its_test() -> None:
    assert BEHAVIOUR.keys() == KNOWN.keys()


# -- vital signs


@pytest.mark.parametrize(
    ("unit", "given", "expected", "flag"),
    [
        ("F", "98.6", 98.6, None),
        ("F", 30, 86.0, "temp_unit_assumed_celsius"),
        ("F", "45", 113.0, "temp_unit_assumed_celsius"),
        ("F", 29.9, None, "temperature_implausible"),
        ("F", 45.1, None, "temperature_implausible"),
        ("F", 76.9, None, "temperature_implausible"),
        ("F", 986, None, "temperature_implausible"),
        ("F", "9.84", None, "temperature_implausible"),
        ("F", 77, 77, "temperature_unusual"),
        ("C", 36.5, 36.5, None),
        ("C", 98.6, 37.0, "temp_unit_assumed_fahrenheit"),
        ("C", 25, 25, "temperature_unusual"),
        ("C", 50, None, "temperature_implausible"),
    ],
)
def test_a_temperature_is_kept_converted_or_missing(unit: Any, given: Any, expected: Any, flag: str | None) -> None:
    case = made(unit, temperature=given)
    assert case.vitals["temperature"] == expected
    assert flag is None or flag in flags(case)
    assert (source_values(case) == {}) == (flag is None or flag.endswith("unusual"))


@pytest.mark.parametrize("name", ["heartrate", "resprate", "o2sat", "sbp", "dbp"])
def test_the_limits_of_every_sign_are_inside_and_what_lies_beyond_is_missing_with_its_value(name: str) -> None:
    (low, high), (soft_low, soft_high) = (rules()["limits"][name][kind] for kind in ("hard", "soft"))
    other = {"sbp": {"dbp": None}, "dbp": {"sbp": None}}.get(name, {})

    def found(value: float) -> tuple[Any, list[str], dict[str, Any]]:
        case = made(**{**other, name: value})
        return {**case.vitals, "dbp": case.dbp}[name], flags(case), source_values(case)

    for value in (low, high):
        assert found(value) == (value, [f"{name}_unusual"] if not soft_low <= value <= soft_high else [], {})
    for value in (soft_low, soft_high):
        assert found(value) == (value, [], {})
    for value in (low - 1, high + 1, -5, 9100):
        assert found(value) == (None, [f"{name}_implausible"], {name: value})
    assert found(0) == (None, ["vital_zero"], {name: 0})


@pytest.mark.parametrize(("sbp", "dbp"), [(80, 80), (80, 120)])
def test_pressures_the_wrong_way_round_are_both_missing_and_never_swapped(sbp: int, dbp: int) -> None:
    case = made(sbp=sbp, dbp=dbp)
    assert (case.vitals["sbp"], case.dbp) == (None, None)
    assert flags(case) == ["pressures_inverted"]
    assert source_values(case) == {"sbp": sbp, "dbp": dbp}


def test_a_decimal_comma_is_read_as_a_point() -> None:
    case = made("C", temperature="36,6", pain="7,5")
    assert (case.vitals["temperature"], case.pain, flags(case)) == (36.6, 7.5, ["decimal_comma"])


@pytest.mark.parametrize("blank", ["", "  ", None, "nan", "NULL", "NA", float("nan")])
def test_a_blank_is_missing_and_no_more(blank: Any) -> None:
    case = made(heartrate=blank, dbp=blank, pain=blank)
    assert (case.vitals["heartrate"], case.dbp, case.pain) == (None, None, None)
    assert flags(case) == []


@pytest.mark.parametrize("value", ["fast", True, [80], "80 apples", "80 %", "bpm", "1e400", "80-90"])
def test_a_vital_sign_that_is_no_number_is_missing_and_the_case_is_kept(value: Any) -> None:
    case = made(heartrate=value)
    assert case.vitals == {**made().vitals, "heartrate": None}
    assert (flags(case), source_values(case)) == (["vital_unreadable"], {"heartrate": value})


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("o2sat", "95%", 95),
        ("o2sat", "95 %", 95),
        ("heartrate", "88 bpm", 88),
        ("heartrate", "88/min", 88),
        ("resprate", "16 /min", 16),
        ("sbp", "128 mm Hg", 128),
        ("dbp", "76mmHg", 76),
        ("temperature", "98.6 °F", 98.6),
        ("temperature", "98.6F", 98.6),
        ("temperature", "36.5 °C", 97.7),
        ("temperature", "36.5c", 97.7),
    ],
)
def test_a_unit_behind_a_vital_sign_is_read_and_flagged(name: str, given: str, expected: float) -> None:
    case = made(**{name: given})
    assert {**case.vitals, "dbp": case.dbp}[name] == expected
    assert (flags(case), source_values(case)) == (["unit_written"], {name: given})


def test_a_written_unit_counts_whatever_the_source_s_is_and_the_limits_hold() -> None:
    assert made("C", temperature="97.7 °F").vitals["temperature"] == 36.5
    comma = made("C", temperature="36,5 °C")
    assert (comma.vitals["temperature"], flags(comma)) == (36.5, ["unit_written", "decimal_comma"])
    assert source_values(comma) == {"temperature": "36,5 °C"}
    cold = made(temperature="36.5 °F")
    assert (cold.vitals["temperature"], flags(cold)) == (None, ["unit_written", "temperature_implausible"])
    assert flags(made(o2sat="101%")) == ["unit_written", "o2sat_implausible"]


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        ([98.6, 99.1, 36.5], "F"),
        ([36.5, "37.1", 98.6], "C"),
        ([36.5, 98.6], "F"),
        ([], "F"),
        (["", None, "warm", 986], "F"),
        (["36.5 °C", "37.1C", 98.6], "C"),
        ([36.9], "C"),
    ],
)
def test_a_source_s_unit_is_that_of_most_of_its_temperatures(values: list[Any], unit: str) -> None:
    assert temperature_unit(values) == unit


def test_the_odd_unit_in_a_file_is_converted_to_the_file_s(tmp_path: Path) -> None:
    def loaded(*temperatures: Any) -> list[float | None]:
        rows = [{**ROW, "case_id": f"c{number}", "temperature": value} for number, value in enumerate(temperatures)]
        path = tmp_path / "own.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return [case.vitals["temperature"] for case in load_cases(path)]

    assert loaded(98.6, 36.5, 99.5) == [98.6, 97.7, 99.5]
    assert loaded(36.6, 98.6, 37.5) == [36.6, 37.0, 37.5]


# -- pain


@pytest.mark.parametrize(
    ("given", "expected", "status", "flag"),
    [
        *((value, value, "score", None) for value in (0, 10, 7.5)),
        ("10 ", 10, "score", None),
        ("7.0", 7, "score", None),
        *((value, "unable to assess", "unable_to_assess", "pain_gt_10") for value in ("13", 13, 11, "10.5", "8-13")),
        *((word, word, "unable_to_assess", None) for word in ("unable", "Unable", "does not scale", "confused")),
        *((word, "unable to assess", "unable_to_assess", "pain_written_out") for word in ("uta", "UA", "u", "UTA.")),
        ("Critical", "Critical", "critical", None),
        ("crit", "critical", "critical", "pain_written_out"),
        ("ett", "intubated", "intubated", "pain_written_out"),
        ("sedated", "sedated", "intubated", None),
        *((word, word.strip(), "asleep", None) for word in ("asleep", "sleeping ", '"sleepin"')),
        ("severe", "severe", "described", None),
        ("o", 0, "score", "pain_letter_o"),
        *((word, 0, "score", "pain_denied") for word in ("denies", "None", "NAD")),
        ("5-6", 5.5, "score", "pain_range"),
        ("8 to 4", 6, "score", "pain_range"),
        ("6-8/10", 7, "score", "pain_range"),
        ("7/10", 7, "score", "pain_out_of_ten"),
        ("0/10", 0, "score", "pain_out_of_ten"),
        ("8 out of 10", 8, "score", "pain_out_of_ten"),
        *((text, None, "not_recorded", "pain_unreadable") for text in ("0-10", "laying down", "-3", -3, "???", "inf")),
        *((blank, None, "not_recorded", None) for blank in ("", None, "  ")),
    ],
)
def test_pain_is_a_score_or_the_reason_why_there_is_none(given: Any, expected: Any, status: str, flag: str) -> None:
    case = made(pain=given)
    assert (case.pain, case.pain_status) == (expected, status)
    assert flags(case) == ([flag] if flag else [])
    assert source_values(case) == ({"pain": given} if flag else {})
    assert case.pain_score == (expected if status == "score" else None)


@given(text=st.text(max_size=12) | st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_no_pain_is_ever_a_number_outside_0_to_10(text: Any) -> None:
    case = made(pain=text)
    assert case.pain_score is None or 0 <= case.pain_score <= 10
    assert not isinstance(case.pain, int | float) or case.pain == case.pain_score
    assert pain_status(case.pain) == case.pain_status


# -- complaint, level, age, names


@pytest.mark.parametrize(
    ("given", "expected", "flag"),
    [
        ("Fall, hip pain", "Fall, hip pain", []),
        ("Fall,  seen by ___ ", "Fall, seen by", ["complaint_redacted"]),
        ("___, Chest pain", "Chest pain", ["complaint_redacted"]),
        ("UNKNOWN-CC, Rash", "Rash", ["complaint_placeholder"]),
        ("Transfer, Dyspnea", "Dyspnea", ["arrival_in_complaint"]),
        ("Dyspnea, transferred from clinic", "Dyspnea", ["arrival_in_complaint"]),
        ("Transfer", "Transfer", ["only_arrival_in_complaint"]),
        ("Blood transferase high", "Blood transferase high", []),
        ("L Leg DVT", "L Leg DVT", ["diagnosis_in_complaint"]),
        ("SDH/SAH", "SDH/SAH", ["diagnosis_in_complaint"]),
        ("Fever, on cancer treatment", "Fever, on cancer treatment", []),
        ("Peeling skin", "Peeling skin", []),
        ("UNKNOWN-CC", None, ["complaint_placeholder"]),
        ("___", None, ["complaint_redacted"]),
    ],
)
def test_a_complaint_keeps_what_the_patient_comes_with(given: str, expected: str | None, flag: list[str]) -> None:
    case = made(chief_complaint=given)
    assert case.chief_complaint == expected
    assert flags(case) == flag
    assert source_values(case) == ({} if case.chief_complaint == given else {"chief_complaint": given})


@pytest.mark.parametrize(("given", "level"), [("2", 2), ("2.0", 2), (" 5 ", 5), (1.0, 1)])
def test_forms_of_a_level(given: Any, level: int) -> None:
    assert made(acuity=given).acuity == level


@pytest.mark.parametrize("blank", ["", None, "nan", float("nan")])
def test_a_case_without_a_level_is_kept_with_a_flag(blank: Any) -> None:
    assert flags(made(acuity=blank)) == ["no_reference_acuity"]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        *((value, "acuity_out_of_range") for value in (0, 9, "7", -1, 2.5, float("inf"))),
        *((value, "invalid_value") for value in ("II", "ESI 2", "urgent", True, [2])),
    ],
)
def test_what_is_no_level_rejects_the_row(given: Any, code: str) -> None:
    with pytest.raises(Reject, match="acuity: expected a whole number from 1 to 5") as caught:
        made(acuity=given)
    assert caught.value.code == code


@pytest.mark.parametrize("age", [None, "", "nan"])
def test_an_unknown_age_is_flagged(age: Any) -> None:
    assert (made(age=age).age, flags(made(age=age))) == (None, ["age_unknown"])


@pytest.mark.parametrize("change", [{"vitals": {"spo2": 98}}, {"Pulse": 80}, {"esi": 2}])
def test_a_field_under_another_name_rejects_the_row_and_says_the_right_one(change: dict[str, Any]) -> None:
    row = {key: value for key, value in ROW.items() if key not in ("o2sat", "heartrate", "acuity")} | change
    with pytest.raises(Reject, match=r"is called (o2sat|heartrate|acuity) here") as caught:
        make_case(row, "F")
    assert caught.value.code == "renamed_field"


def test_another_name_beside_the_right_one_is_a_field_of_its_own() -> None:
    assert made(esi="three").model_dump()["esi"] == "three"


# -- the whole


_units = st.sampled_from(["95%", "80 bpm", "36,5 °C", "98.6F", "fast"])
_values = st.one_of(st.none(), st.text(max_size=6), _units, st.integers(-10, 1200), st.floats(), st.booleans())
_anything = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys((*rules()["limits"], "acuity", "pain", "age", "chief_complaint", "flags"), _values),
        "source_values": st.dictionaries(st.sampled_from(["pain", "dbp"]), st.integers(), max_size=1),
    },
)


@settings(max_examples=300, deadline=None)
@given(row=_anything, unit=st.sampled_from(["F", "C"]))
@example(row={"temperature": "80.6"}, unit="C")
def test_cleaning_what_is_clean_changes_nothing(row: dict[str, Any], unit: Any) -> None:
    try:
        once = clean(canonical({"case_id": "a", **row}), unit)
    except Reject:
        return
    assert repr(clean(once, unit)) == repr(once)


# A lone carriage return ends a row too, and the writer doesn't quote it.
_cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=8) | st.sampled_from(
    ["a", "A", "b", "1", "2.0", "98.6", "36,6", "13", '"', "\u2028", "\n", "\r\n", ";", "Fall", "___"]
)
_COLUMNS = ["case_id", "chief_complaint", "acuity", "pain", "temperature", "heartrate", "age", "note"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.lists(_cells, min_size=1, max_size=9) | st.lists(_cells, min_size=8, max_size=8), max_size=6),
    delimiter=st.sampled_from([",", ";", "\t", "|"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_no_row_of_a_table_is_ever_unaccounted_for(
    tmp_path: Path, rows: list[list[str]], delimiter: str, encoding: str, end: str, quoting: Any
) -> None:
    path = tmp_path / "own.csv"
    keep = ["kept", "Fall", "3", "4", "98.6", "80", "50", "x"]
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting)
        writer.writerows([_COLUMNS, keep, *rows])
    flow = build_cases(path, tmp_path / "out", shards=2, provenance="synthetic")
    accepted, rejected = table(tmp_path / "out" / "cases.csv"), table(tmp_path / "out" / "rejects.csv")
    assert flow["read"] == len(rows) + 1 == len(accepted) + len(rejected)
    assert sum(flow["read_by_acuity"].values()) == flow["read"]
    lines = [row["line"] for row in accepted + rejected]
    assert len(set(lines)) == len(lines)
    assert {row["code"] for row in rejected} <= rules()["rejects"].keys()
    written = [case for number in (1, 2) for case in load_cases(tmp_path / "out" / f"{number}-of-2.jsonl")]
    assert sorted(case.case_id for case in written) == sorted(row["case_id"] for row in accepted)
    assert {flag for case in written for flag in flags(case)} <= rules()["flags"].keys()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60) | st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_in_words(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "own.csv"
    body = text.encode("utf-8", "replace") if isinstance(text, str) else text
    path.write_bytes(b"case_id,chief_complaint,note\nkept,Fall,x\n" + body)
    refused = False
    with contextlib.suppress(InputError):
        refused = True
        flow = build_cases(path, tmp_path / "out", shards=1, provenance="synthetic")
        refused = False
        assert flow["read"] == flow["accepted"] + len(table(tmp_path / "out" / "rejects.csv"))
    if refused:
        with pytest.raises(InputError, match=r"own\.csv"):
            load_cases(path)


def test_a_flag_that_was_changed_keeps_its_raw_value_in_the_table(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({**ROW, "o2sat": 985, "pain": "uta"}) + "\n", encoding="utf-8")
    build_cases(path, tmp_path / "out", shards=1, provenance="synthetic")
    [row] = table(tmp_path / "out" / "cases.csv")
    assert list(row) == CASES_HEADER
    assert (row["pain_score"], row["pain_status"]) == ("", "unable_to_assess")
    assert row["flags"] == "o2sat_implausible pain_written_out"
    assert json.loads(row["source_values"]) == {"o2sat": 985, "pain": "uta"}
    assert (tmp_path / "out" / "rejects.csv").read_text(encoding="utf-8") == ",".join(REJECTS_HEADER) + "\n"


# -- the page


def rows_of(head: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    section = PAGE.partition(f"## {head}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines[2:]]


@pytest.mark.parametrize(("head", "key"), [("Flags", "flags"), ("Reasons", "rejects")])
def test_the_page_explains_every_flag_and_reason_as_the_data_does(head: str, key: str) -> None:
    assert {name.strip("`"): text for name, text in rows_of(head)} == rules()[key]


def test_the_page_states_the_limits_of_the_data() -> None:
    stated = {name.strip("`"): [hard, soft] for name, _, hard, soft in rows_of("Limits")}
    limits = {**rules()["limits"], "temperature in °C": rules()["temperature"]["celsius"]}
    assert stated == {
        name: [" to ".join(f"{end:g}" for end in limit[kind]) for kind in ("hard", "soft")]
        for name, limit in limits.items()
    }


def test_the_page_lists_the_words_for_pain_of_the_data() -> None:
    stated = {status.strip("`"): set(re.findall(r"`([^`]+)`", words)) for status, words in rows_of("Pain")}
    groups = {
        status: {*group.get("words", ()), *group.get("short", ()), *(f"{start}…" for start in group.get("begins", ()))}
        for status, group in rules()["pain"]["status"].items()
    }
    assert {status: words for status, words in stated.items() if status in groups} == groups
