"""Case files: every way a row may come, and every row accounted for."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tables import DEMO, table
from triagesim.build import build_cases
from triagesim.cases import VITALS, load_cases
from triagesim.config import Select
from triagesim.errors import InputError
from triagesim.shards import BUCKETS, bucket, shard_of
from triagesim.views import VISIBLE, facts_for

needs_demo = pytest.mark.skipif(not DEMO.exists(), reason="the MIMIC-IV-ED demo isn't in ../shared/data")

ROW: dict[str, Any] = {
    "case_id": "syncope-01",
    "chief_complaint": "Syncope",
    "vitals": {"temperature": 99.1, "heartrate": 112, "resprate": 26, "o2sat": 91, "sbp": 98},
    "acuity": 2,
    "acuity_scale": "esi",
    "pain": 7,
    "gender": "male",
    "arrival_transport": "ambulance",
}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_documented_row_loads_and_keeps_what_it_does_not_know(tmp_path: Path) -> None:
    [case] = load_cases(write(tmp_path / "a.jsonl", {**ROW, "ward": "B"}))
    assert case.case_id == "syncope-01"
    assert case.vitals == {"temperature": 99.1, "heartrate": 112, "resprate": 26, "o2sat": 91, "sbp": 98}
    assert case.model_dump()["ward"] == "B"
    assert case.arrival_transport == "ambulance"


def test_nested_and_flat_vitals_and_all_three_kinds_of_file_give_the_same_case(tmp_path: Path) -> None:
    flat = {key: value for key, value in ROW.items() if key != "vitals"} | ROW["vitals"] | {"dbp": 60}
    nested = {**ROW, "vitals": {**ROW["vitals"], "dbp": 60}}
    (tmp_path / "a.json").write_text(json.dumps([nested]), encoding="utf-8")
    with (tmp_path / "a.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(flat))
        writer.writeheader()
        writer.writerow(flat)
    write(tmp_path / "a.jsonl", flat)
    cases = [load_cases(tmp_path / name)[0] for name in ("a.json", "a.csv", "a.jsonl")]
    assert cases[0] == cases[1] == cases[2]
    assert cases[0].dbp == 60


@needs_demo
def test_the_demo_triage_table_loads_as_it_is() -> None:
    cases = load_cases(DEMO / "triage.csv")
    assert len(cases) == 222
    assert sum(case.acuity is None for case in cases) == 15
    assert {level: sum(case.acuity == level for case in cases) for level in (1, 2, 3, 4)} == {1: 18, 2: 97, 3: 90, 4: 2}
    assert sum(case.vitals["temperature"] is None for case in cases) == 26
    assert all(case.case_id.isdecimal() for case in cases)


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_mimic_columns_load_with_and_without_a_byte_order_mark(tmp_path: Path, bom: bytes) -> None:
    path = tmp_path / "triage.csv"
    header = b"subject_id,stay_id,temperature,heartrate,resprate,o2sat,sbp,dbp,pain,acuity,chiefcomplaint\n"
    path.write_bytes(bom + header + b'100,3001,98.6, ,16,98,128,76,unable,2.0,"Fall, hip pain"\n')
    [case] = load_cases(path)
    assert (case.case_id, case.chief_complaint, case.acuity, case.pain) == ("3001", "Fall, hip pain", 2, "unable")
    assert case.vitals["heartrate"] is None


def test_lines_end_at_newline_alone(tmp_path: Path) -> None:
    [case] = load_cases(write(tmp_path / "a.jsonl", {**ROW, "chief_complaint": "Fall\u2028hip\u0085pain"}))
    assert case.chief_complaint == "Fall\u2028hip\u0085pain"


@pytest.mark.parametrize(
    ("given", "expected"),
    [("7", 7), (7.0, 7), ("7.5", 7.5), ("unable", "unable"), ("", None), (None, None), (float("nan"), None)],
)
def test_pain_may_be_a_number_or_words(tmp_path: Path, given: Any, expected: Any) -> None:
    assert load_cases(write(tmp_path / "a.jsonl", {**ROW, "pain": given}))[0].pain == expected


@pytest.mark.parametrize(("given", "expected"), [("M", "male"), ("f", "female"), ("Female", "female"), ("", None)])
def test_gender_forms(tmp_path: Path, given: str, expected: str | None) -> None:
    assert load_cases(write(tmp_path / "a.jsonl", {**ROW, "gender": given}))[0].gender == expected


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ('{"case_id": "a"', ["line 1", "not JSON"]),
        ("[1]\n", ["line 1", "expected an object"]),
        ('{"case_id": "a b"}\n', ["line 1", "case_id", "A-Z a-z 0-9"]),
        ('{"case_id": "../x"}\n', ["case_id"]),
        ('{"case_id": "a", "acuity": 7}\n', ["acuity", "found 7"]),
        ('{"case_id": "a", "age": "old"}\n', ["age", "old"]),
        ('{"case_id": "a"}\n{"case_id": "A"}\n', ["line 2", "'A' is already at line 1"]),
        ('{"case_id": "a", "vitals": {"pulse": 3}}\n', ["line 1", "pulse: is called heartrate here"]),
        ('{"case_id": "a", "vitals": {"lactate": 3}}\n', ["vitals", "lactate"]),
    ],
)
def test_a_bad_row_is_one_error_with_file_line_and_key(tmp_path: Path, content: str, parts: list[str]) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_cases(path)
    for part in ["bad.jsonl", *parts]:
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["cases.xlsx", "none.jsonl", ".", "cases.json.gz"])
def test_a_source_that_is_no_case_file_says_what_was_expected(tmp_path: Path, name: str) -> None:
    for other in ("cases.xlsx", "cases.json.gz"):
        (tmp_path / other).write_bytes(b"x")
    with pytest.raises(InputError, match=r"\.jsonl, \.json or \.csv"):
        load_cases(tmp_path / name)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_table_is_read_in_any_usual_delimiter_and_encoding(
    tmp_path: Path, delimiter: str, encoding: str, packed: bool
) -> None:
    lines = [["case_id", "chief_complaint", "acuity", "arrived"], ["a", '"Naus\u00e9e"', "2", "\u6025"]]
    content = "\r\n".join(delimiter.join(line) for line in lines).encode(encoding)
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    path.write_bytes(gzip.compress(content) if packed else content)
    [case] = load_cases(path)
    assert (case.case_id, case.chief_complaint, case.acuity) == ("a", "Naus\u00e9e", 2)
    assert case.model_dump()["arrived"] == "\u6025"


def test_a_table_in_another_encoding_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("case_id,chief_complaint\r\na,Fall\r\nb,Migraña\r\n".encode("cp1252"))
    with pytest.raises(InputError, match=r"a\.csv, line 3: not UTF-8 .*CSV UTF-8"):
        load_cases(path)


@pytest.mark.parametrize("content", [b"case_id,x\na,\xe9\n", b'case_id,x\na,"b\n', b"\xff\xfec"])
def test_a_table_that_cannot_be_read_to_its_end_is_refused_as_a_whole(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    for read in (load_cases, lambda path: build_cases(path, tmp_path, shards=1, provenance="synthetic")):
        with pytest.raises(InputError, match=r"a\.csv.*(not UTF-8|not CSV)"):
            read(path)


def test_renamed_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("subject,pulse\n1,2\n", encoding="utf-8")
    with pytest.raises(InputError, match="no column case_id or stay_id among subject, pulse"):
        load_cases(path)


def ledger(tmp_path: Path, *rows: dict[str, Any], **options: Any) -> tuple[dict[str, Any], list[dict[str, str]]]:
    source = write(tmp_path / "source.jsonl", *rows)
    flow = build_cases(source, tmp_path / "out", **{"shards": 2, "provenance": "synthetic", **options})
    return flow, table(tmp_path / "out" / "rejects.csv")


def test_every_kind_of_bad_row_is_rejected_with_its_reason(tmp_path: Path) -> None:
    flow, rejects = ledger(
        tmp_path,
        ROW,
        {**ROW, "case_id": "no-complaint", "chief_complaint": ""},
        {**ROW, "case_id": "child", "age": 9},
        {**ROW, "case_id": "wrong", "acuity": 9},
        {**ROW, "case_id": "twin", "pain": 1},
        {**ROW, "case_id": "Twin", "pain": 2},
        {**ROW, "case_id": "same"},
        {**ROW, "case_id": "same"},
        {**ROW, "case_id": "unlabelled", "acuity": None},
        {**ROW, "case_id": "no id"},
        {**ROW, "case_id": "text", "age": "old"},
    )
    assert [(row["line"], row["code"]) for row in rejects] == [
        ("2", "no_complaint"),
        ("3", "under_age"),
        ("4", "acuity_out_of_range"),
        ("5", "conflicting_id"),
        ("6", "conflicting_id"),
        ("8", "duplicate_row"),
        ("10", "invalid_id"),
        ("11", "invalid_value"),
    ]
    assert {row["file"] for row in rejects} == {"source.jsonl"}
    assert [row["id"] for row in rejects][-4:] == ["Twin", "same", "no id", "text"]
    assert "lines 5, 6" in rejects[3]["text"]
    assert flow["read"] == 11 == flow["accepted"] + flow["rejected"]
    assert flow["flags"] == {"age_unknown": 3, "duplicate_row": 1, "no_reference_acuity": 1}
    assert flow["read_by_acuity"] == {"2": 9, "none": 1, "other": 1}


def test_a_row_with_other_than_the_header_s_cells_is_rejected_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("case_id,chief_complaint\na,Fall\nb\n\nc,Fall,4\nd,Rash\n", encoding="utf-8")
    flow = build_cases(path, tmp_path / "out", shards=1, provenance="synthetic")
    assert (flow["read"], flow["accepted"]) == (4, 2)
    rejects = table(tmp_path / "out" / "rejects.csv")
    assert [(row["line"], row["code"], row["text"][-7:]) for row in rejects] == [
        ("3", "ragged_row", "found 1"),
        ("5", "ragged_row", "found 3"),
    ]


def test_a_text_that_is_no_text_rejects_its_row_alone(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_text(json.dumps([ROW, {**ROW, "case_id": "half", "ward": "\ud83d"}]), encoding="utf-8")
    assert build_cases(path, tmp_path / "out", shards=1, provenance="synthetic")["accepted"] == 1
    assert [(row["id"], row["code"]) for row in table(tmp_path / "out" / "rejects.csv")] == [("half", "invalid_value")]


def test_a_case_carries_its_flags_into_the_shard(tmp_path: Path) -> None:
    ledger(tmp_path, {**ROW, "case_id": "same"}, {**ROW, "case_id": "same"}, shards=1)
    [case] = load_cases(tmp_path / "out" / "1-of-1.jsonl")
    assert case.model_dump()["flags"] == ["age_unknown", "duplicate_row"]
    [row] = table(tmp_path / "out" / "cases.csv")
    assert row["flags"] == "age_unknown duplicate_row"


def test_the_scale_of_the_run_is_for_cases_without_their_own(tmp_path: Path) -> None:
    ledger(
        tmp_path, {**ROW, "acuity_scale": "ATS"}, {**ROW, "case_id": "b", "acuity_scale": " "}, scale="esi", shards=1
    )
    cases = load_cases(tmp_path / "out" / "1-of-1.jsonl")
    assert [case.acuity_scale for case in cases] == ["ats", "esi"]


_rows = st.fixed_dictionaries(
    {
        "case_id": st.sampled_from(["a", "b", "A", "c", "", "d d", "e"]),
        "chief_complaint": st.sampled_from(["Fall", "", None]),
        "acuity": st.sampled_from([1, "2.0", None, 9, "x"]),
        "age": st.sampled_from([None, 3, 40]),
    }
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(rows=st.lists(_rows, max_size=8), shards=st.integers(1, 4))
def test_no_row_is_ever_unaccounted_for(tmp_path: Path, rows: list[dict[str, Any]], shards: int) -> None:
    keep = {**ROW, "case_id": "always"}
    flow, rejects = ledger(tmp_path, keep, *rows, shards=shards)
    assert flow["read"] == len(rows) + 1 == flow["accepted"] + len(rejects)
    found = [load_cases(tmp_path / "out" / f"{n}-of-{shards}.jsonl") for n in range(1, shards + 1)]
    assert sum(map(len, found)) == flow["selected"] == flow["accepted"]
    for number, cases in enumerate(found, 1):
        assert all(shard_of(case.case_id, shards) == number for case in cases)


def test_selection_is_seeded_and_counted(tmp_path: Path) -> None:
    rows = [{**ROW, "case_id": f"c{n}", "acuity": n % 5 + 1} for n in range(40)]
    flow, _ = ledger(tmp_path, *rows, select=Select(per_acuity=2))
    assert flow["selected_by_acuity"] == dict.fromkeys("12345", 2)
    assert flow["not_selected"] == 30

    def drawn(**select: Any) -> set[str]:
        ledger(tmp_path, *rows, select=Select(**select))
        return {row["case_id"] for row in table(tmp_path / "out" / "cases.csv")}

    assert drawn(sample=10) == drawn(sample=10) < drawn(sample=20)
    assert drawn(sample=10) != drawn(sample=10, seed=1)
    assert drawn(stays=["c3", "c4"]) == {"c3", "c4"}
    assert len(drawn(drop_ambulance_level1=True)) == 32
    with pytest.raises(InputError, match="no accepted case zz"):
        drawn(stays=["zz"])


def test_a_stricter_provenance_of_a_row_is_kept(tmp_path: Path) -> None:
    ledger(tmp_path, {**ROW, "provenance": "identifiable"}, {**ROW, "case_id": "b"}, shards=1)
    cases = load_cases(tmp_path / "out" / "1-of-1.jsonl")
    assert [case.provenance for case in cases] == ["identifiable", "synthetic"]


def test_nothing_left_to_simulate_is_an_error_with_the_reasons(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no case to simulate among 1 row\(s\).*no_complaint"):
        ledger(tmp_path, {**ROW, "chief_complaint": ""})


def test_the_visibility_table_decides_what_a_view_holds() -> None:
    from actors import a_case

    case = a_case(diagnoses=["D"], age=70)
    nurse = facts_for("nurse", case, age_group="older", unwell="badly").model_dump(exclude_none=True)
    patient = facts_for("patient", case, age_group="older", unwell="badly").model_dump(exclude_none=True)
    assert nurse == {"gender": "male", "age_group": "older", "arrival_transport": "ambulance"}
    assert set(patient) == {"gender", "age", "age_group", "arrival_transport", "chief_complaint", "pain", "unwell"}
    for hidden in ("diagnoses", "acuity", "vitals", "medications"):
        assert VISIBLE[hidden] == {"master"}
    assert "race" not in VISIBLE
    assert set(VITALS).isdisjoint(VISIBLE)


@given(shards=st.integers(1, 400), ids=st.lists(st.from_regex(r"[a-z0-9]{1,12}", fullmatch=True), min_size=1))
def test_a_shard_reads_few_buckets_of_the_journal_however_many_shards_there_are(shards: int, ids: list[str]) -> None:
    placed = sorted((bucket(case_id), shard_of(case_id, shards)) for case_id in ids)
    assert all(1 <= number <= shards for _, number in placed)
    for number in {number for _, number in placed}:
        read = [int(name) for name, other in placed if other == number]
        assert max(read) - min(read) <= BUCKETS / shards + 1


def test_shards_are_about_as_large_as_each_other() -> None:
    sizes = Counter(shard_of(f"case-{number}", 200) for number in range(100_000))
    assert len(sizes) == 200
    assert 400 < min(sizes.values()) <= max(sizes.values()) < 600
