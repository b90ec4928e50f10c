"""MIMIC-IV-ED: its tables joined by stay, nothing lost, and its data known from other data."""

from __future__ import annotations

import csv
import gzip
import json
import random
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tables import DEMO, HEADERS, patient, stay, table, tables
from triagesim.build import build_cases
from triagesim.cases import Case, load_cases
from triagesim.config import Select
from triagesim.errors import InputError
from triagesim.mimic import looks_like_mimic, medicine_of, provenance_of, seconds, source_files
from triagesim.resources import load_yaml

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "workflow" / "scripts" / "build_mimic_cases.py"
needs_demo = pytest.mark.skipif(not DEMO.exists(), reason="the MIMIC-IV-ED demo isn't in ../shared/data")

#: Worked out by hand from the demo's files: times and gaps with SQLite's julianday, the rest read off with grep.
BY_HAND: dict[str, dict[str, Any]] = {
    # Three visits in the months before; the diastolic pressure is a typing error; one drug up to four times.
    "37298974": {
        "subject_id": "10020740",
        "chief_complaint": "Psychiatric hold",
        "vitals": {"temperature": 98.4, "heartrate": 99, "resprate": 16, "o2sat": 100, "sbp": 111},
        "dbp": None,
        "pain": 0,
        "acuity": 2,
        "gender": "male",
        "arrival_transport": "ambulance",
        "race": "WHITE",
        "disposition": "TRANSFER",
        "length_of_stay_min": 546,
        "prior_ed_visits": 3,
        "diagnoses": ["DEHYDRATION", "DIABETES UNCOMPL JUVEN"],
        "diagnosis_codes": ["ICD-9 27651", "ICD-9 25001"],
        "medications": [
            *("Ativan", "chlorpromazine", "trazodone", "Seroquel", "Nicorette", "insulin regular human"),
        ],
        "medication_gsn": ["003758", "003800", "046242", "034188", "004930", "001723"],
    },
    # Three visits before, one of them 14 hours ago; pain 13; a trailing blank in a title.
    "39399961": {
        "subject_id": "10000032",
        "chief_complaint": "Abdominal distention, Abd pain, LETHAGIC",
        "vitals": {"temperature": 98.7, "heartrate": 77, "resprate": 16, "o2sat": 98, "sbp": 96},
        "dbp": 50,
        "pain": "unable to assess",
        "acuity": 2,
        "gender": "female",
        "arrival_transport": "ambulance",
        "disposition": "ADMITTED",
        "length_of_stay_min": 486,
        "prior_ed_visits": 3,
        "diagnoses": ["ALTERED MENTAL STATUS", "ENCEPHALOPATHY, UNSPECIFIED"],
        "medications": [
            *("furosemide", "fluticasone [Flovent HFA]", "lactulose", "tramadol", "cholecalciferol (vitamin D3)"),
            *("calcium carbonate", "sulfamethoxazole-trimethoprim", "peg 3350-electrolytes", "nicotine"),
            *("rifaximin [Xifaxan]", "emtricitabine-tenofovir [Truvada]", "albuterol sulfate"),
            *("raltegravir [Isentress]", "tiotropium bromide [Spiriva with HandiHaler]"),
        ],
    },
    # Level 1 with nothing measured, no medicines, and a complaint that only says how the patient came.
    "30272878": {
        "subject_id": "10038999",
        "chief_complaint": "Transfer",
        "arrival_flags": ["Transfer"],
        "vitals": dict.fromkeys(("temperature", "heartrate", "resprate", "o2sat", "sbp")),
        "pain": "Critical",
        "acuity": 1,
        "gender": "male",
        "arrival_transport": "unknown",
        "disposition": "ADMITTED",
        "length_of_stay_min": 78,
        "prior_ed_visits": 0,
        "diagnoses": ["Pericardial effusion (noninflammatory)"],
        "diagnosis_codes": ["ICD-10 I313"],
        "medications": [],
    },
    # Transfer beside a symptom; five of seventeen drugs come again.
    "34646141": {
        "chief_complaint": "Dyspnea",
        "arrival_flags": ["Transfer"],
        "acuity": 2,
        "pain": 7,
        "race": "WHITE - BRAZILIAN",
        "length_of_stay_min": 389,
        "prior_ed_visits": 2,
        "diagnoses": ["Dyspnea, unspecified"],
        "medications": [
            *("loratadine", "fluticasone", "docusate sodium", "famotidine", "lorazepam", "Dilaudid"),
            *("morphine [MS Contin]", "baclofen", "tizanidine", "melatonin", "Neurontin", "pregabalin [Lyrica]"),
        ],
    },
    # Two visits before in all, one of them more than a year ago; six diagnoses; came on foot.
    "30836087": {
        "chief_complaint": "LEFT EYE SWELLING, REDNESS",
        "vitals": {"temperature": 98.3, "heartrate": 77, "resprate": 16, "o2sat": 97, "sbp": 197},
        "dbp": 59,
        "pain": 0,
        "acuity": 3,
        "arrival_transport": "walk in",
        "length_of_stay_min": 225,
        "prior_ed_visits": 1,
        "diagnoses": [
            *("CELLULITIS OF FACE", "ACUTE KIDNEY FAILURE, UNSPECIFIED", "CHRONIC KIDNEY DISEASE, UNSPECIFIED"),
            *("DIABETES UNCOMPL ADULT", "LONG-TERM (CURRENT) USE OF INSULIN", "HYPERTENSION NOS"),
        ],
        "medications": [
            *("Coreg", "Avapro", "torsemide", "aspirin", "oxycodone", "ferrous sulfate", "warfarin", "Uloric"),
            *("Wellbutrin SR", "spironolactone", "Zetia", "ProAir HFA", "Levoxyl", "Humalog KwikPen", "Lantus"),
        ],
    },
}


def one(folder: Path) -> Case:
    [case] = load_cases(folder)
    return case


def extra(case: Case, name: str) -> Any:
    return (case.model_extra or {}).get(name)


@pytest.fixture(scope="module")
def demo() -> dict[str, Case]:
    return {case.case_id: case for case in load_cases(DEMO)}


@needs_demo
@pytest.mark.parametrize("stay_id", BY_HAND)
def test_a_stay_of_the_demo_is_joined_as_by_hand(stay_id: str, demo: dict[str, Case]) -> None:
    found = demo[stay_id].model_dump()
    expected = BY_HAND[stay_id] | {"acuity_scale": "esi", "provenance": "mimic_iv_ed_demo"}
    assert {key: found.get(key) for key in expected} == expected


@needs_demo
def test_every_stay_of_the_demo_is_joined_as_a_database_joins_it(demo: dict[str, Case]) -> None:
    base = sqlite3.connect(":memory:")
    for name in ("triage", "edstays", "diagnosis"):
        rows = list(csv.reader((DEMO / f"{name}.csv").open(encoding="utf-8", newline="")))
        base.execute(f"CREATE TABLE {name} ({','.join(rows[0])})")
        base.executemany(f"INSERT INTO {name} VALUES ({','.join('?' * len(rows[0]))})", rows[1:])
    earlier = (
        "SELECT count(*) FROM edstays AS other WHERE other.subject_id = edstays.subject_id "
        "AND julianday(other.intime) < julianday(edstays.intime) "
        "AND julianday(other.intime) >= julianday(edstays.intime) - 365"
    )
    columns = f"stay_id, gender, arrival_transport, race, disposition, ({earlier})"
    joined = base.execute(f"SELECT {columns} FROM edstays JOIN triage USING (stay_id)").fetchall()
    assert len(joined) == 222
    for stay_id, gender, arrival, race, disposition, visits in joined:
        case = demo[stay_id]
        titles = base.execute(
            "SELECT icd_title FROM diagnosis WHERE stay_id = ? ORDER BY CAST(seq_num AS INTEGER)", (stay_id,)
        )
        assert case.diagnoses == list(dict.fromkeys(title.strip() for (title,) in titles))
        assert (case.gender, case.arrival_transport) == ({"F": "female", "M": "male"}[gender], arrival.lower())
        assert (extra(case, "race"), extra(case, "disposition"), case.prior_ed_visits) == (race, disposition, visits)


@needs_demo
def test_the_demo_s_counts_reconcile(tmp_path: Path) -> None:
    flow = build_cases(DEMO, tmp_path, shards=3, provenance="mimic_iv_ed_demo")
    assert flow["read"] == 222
    assert flow["read_by_acuity"] == {"1": 18, "2": 97, "3": 90, "4": 2, "none": 15}
    assert flow["reject_reasons"] == {"no_complaint": 2}
    assert flow["selected"] == 220 == sum(flow["selected_by_acuity"].values())
    assert {row["id"] for row in table(tmp_path / "rejects.csv")} == {"31824062", "32443787"}
    counts = {name: parts["rows"] for name, parts in flow["tables"].items()}
    assert counts == {"edstays": 222, "diagnosis": 545, "medrecon": 2764}
    shipped = [case for number in (1, 2, 3) for case in load_cases(tmp_path / f"{number}-of-3.jsonl")]
    direct = [case for case in load_cases(DEMO) if case.chief_complaint]
    assert sorted(shipped, key=lambda case: case.case_id) == sorted(direct, key=lambda case: case.case_id)


@needs_demo
def test_no_race_disposition_or_diagnosis_of_the_demo_is_the_nurse_s_to_know(demo: dict[str, Case]) -> None:
    from triagesim.views import facts_for

    for case in demo.values():
        seen = facts_for("nurse", case, age_group="adult", unwell="").model_dump(exclude_none=True)
        assert set(seen) <= {"gender", "age_group", "arrival_transport"}


def test_rows_are_joined_by_stay_and_never_by_position(tmp_path: Path) -> None:
    ids = [f"S{number}" for number in range(30)]
    rows = {
        "triage": [patient(name, f"P-{name}", f"Rash {name}") for name in ids],
        "edstays": [stay(name, f"P-{name}").replace("WHITE", f"RACE-{name}") for name in ids],
        "diagnosis": [f"x,{name},{n},{n},10,TITLE-{n} {name}" for name in ids for n in (2, 1)],
        "medrecon": [f"x,{name},2180-05-06 20:00:00,drug-{name},001,0,1,," for name in ids],
    }
    shuffle = random.Random(4).shuffle
    for lines in rows.values():
        shuffle(lines)
    for case in load_cases(tables(tmp_path / "ed", **rows)):
        name = case.case_id
        assert (case.chief_complaint, extra(case, "race")) == (f"Rash {name}", f"RACE-{name}")
        assert case.diagnoses == [f"TITLE-1 {name}", f"TITLE-2 {name}"]
        assert case.medications == [f"drug-{name}"]


_ids = st.sampled_from(["a", "A", "b", "31.0", "31", "", "../x", "30000001"])
_subjects = st.sampled_from(["p", "q", "10000001"])
_times = st.sampled_from(["2180-05-06 19:17:00", "2180-05-06 20:00:00", "2181-01-01 00:00:00", "soon", ""])
_odd = st.sampled_from(["only,two", "a,b,c", '"unclosed?",1,2'])
_lines = {
    "triage": st.builds(
        lambda stay_id, subject, complaint, acuity, pain: (
            f"{subject},{stay_id},98.6,,16,99,120,80,{pain},{acuity},{complaint}"
        ),
        _ids,
        _subjects,
        st.sampled_from(["Rash", "", "Transfer", "___"]),
        st.sampled_from(["1", "3.0", "", "9", "x"]),
        st.sampled_from(["4", "13", "uta", ""]),
    ),
    "edstays": st.builds(stay, _ids, _subjects, _times, _times),
    "diagnosis": st.builds(
        lambda stay_id, number, title: f"p,{stay_id},{number},431,9,{title}",
        _ids,
        st.sampled_from(["1", "2", "x"]),
        st.sampled_from(["BLEED", ""]),
    ),
    "medrecon": st.builds(
        lambda stay_id, name: f"p,{stay_id},,{name},1,,1,,", _ids, st.sampled_from(["iron", "*Iron ", "*"])
    ),
}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.fixed_dictionaries({name: st.lists(line | _odd, max_size=6) for name, line in _lines.items()}))
def test_no_row_of_any_table_is_ever_unaccounted_for(tmp_path: Path, rows: dict[str, list[str]]) -> None:
    rows["triage"].append(patient("kept", "p"))
    folder = tables(tmp_path / "ed", **rows)
    flow = build_cases(folder, tmp_path / "out", shards=2, provenance="synthetic")
    accepted, rejects = table(tmp_path / "out" / "cases.csv"), table(tmp_path / "out" / "rejects.csv")
    # Each row of triage is accepted or rejected, once, by its line.
    lines = [row["line"] for row in accepted]
    lines += [row["line"] for row in rejects if row["file"] == "triage.csv"]
    assert sorted(map(int, lines)) == list(range(2, len(rows["triage"]) + 2))
    # Each row of the other tables is in one of their counts; those that can't be read are listed.
    for name in ("edstays", "diagnosis", "medrecon"):
        counts = dict(flow["tables"][name])
        assert counts.pop("rows", 0) == len(rows[name]) == sum(counts.values())
        unread = [row for row in rejects if row["file"] == f"{name}.csv" and row["code"] != "no_triage_row"]
        assert len(unread) == counts.get("rejected", 0)
    untriaged = [row for row in rejects if row["code"] == "no_triage_row"]
    assert len(untriaged) == flow["tables"]["edstays"].get("no_triage_row", 0)
    assert flow["read"] == len(rows["triage"]) + len(untriaged) == flow["accepted"] + flow["rejected"]
    assert {row["code"] for row in rejects} <= load_yaml("quality.yaml")["rejects"].keys()
    written = [case for number in (1, 2) for case in load_cases(tmp_path / "out" / f"{number}-of-2.jsonl")]
    assert sorted(case.case_id for case in written) == sorted(row["case_id"] for row in accepted)


def test_gzipped_tables_with_columns_in_another_order_give_the_same_cases(tmp_path: Path) -> None:
    plain = tables(
        tmp_path / "plain", [patient("S1", "P1")], [stay("S1", "P1")], ["P1,S1,1,004,9,X"], ["P1,S1,,aspirin,004,,1,,"]
    )
    packed = tmp_path / "packed"
    packed.mkdir()
    for name in HEADERS:
        rows = table(plain / f"{name}.csv")
        columns = list(reversed(HEADERS[name].split(",")))
        lines = [";".join(columns), *(";".join(row[column] for column in columns) for row in rows)]
        (packed / f"{name}.csv.gz").write_bytes(gzip.compress(("\ufeff" + "\r\n".join(lines) + "\r\n").encode()))
    assert load_cases(packed) == load_cases(plain)
    assert [path.name for path in source_files(packed)] == [f"{name}.csv.gz" for name in HEADERS]
    assert one(packed).model_dump()["diagnosis_codes"] == ["ICD-9 004"]


@pytest.mark.parametrize(
    ("begin", "counted"),
    [
        ("2180-05-06 19:17:00", 0),
        ("2180-05-06 19:16:59", 1),
        ("2180-05-07 10:00:00", 0),
        ("2179-05-07 19:17:00", 1),
        ("2179-05-07 19:16:59", 0),
    ],
)
def test_earlier_visits_are_those_of_the_365_days_strictly_before(tmp_path: Path, begin: str, counted: int) -> None:
    rows = [stay("S1", "P1", "2180-05-06 19:17:00"), stay("S2", "P1", begin), stay("S3", "P2", "2180-05-06 10:00:00")]
    folder = tables(tmp_path, [patient("S1", "P1"), patient("S2", "P1"), patient("S3", "P2")], rows)
    assert {case.case_id: case.prior_ed_visits for case in load_cases(folder)}["S1"] == counted


def test_the_age_is_the_anchor_s_moved_to_the_year_of_the_stay(tmp_path: Path) -> None:
    rows = [stay("S1", "P1", "2184-01-01 00:10:00", "2184-01-01 03:00:00"), stay("S2", "P2")]
    folder = tables(tmp_path, [patient("S1", "P1"), patient("S2", "P2")], rows, patients=["P1,F,60,2180,2014 - 2016,"])
    with pytest.raises(InputError, match=r"patients\.csv, line 2: expected whole numbers"):
        load_cases(folder)
    rows = [row.replace("P", "1000000") for row in rows]
    triage = [patient("S1", "10000001"), patient("S2", "10000002")]
    folder = tables(tmp_path, triage, rows, patients=["10000001,F,60,2180,2014 - 2016,"])
    first, second = load_cases(folder)
    assert (first.age, second.age) == (64, None)
    assert extra(first, "flags") is None
    assert extra(second, "flags") == ["age_unknown"]
    assert source_files(folder)[-1].name == "patients.csv"


def test_what_is_wrong_between_tables_is_flagged_or_rejected(tmp_path: Path) -> None:
    triage = [
        *(patient(name, "P1") for name in ("same", "alone", "lost", "moved", "backwards", "notime", "ok")),
        *(patient("twin", "P1"), patient("twin", "P1"), "P1,ragged"),
    ]
    edstays = [
        *(stay("same", "P1"), stay("same", "P1"), stay("lost", "P1"), stay("lost", "P1").replace("HOME", "EXPIRED")),
        *(stay("moved", "P2"), stay("backwards", "P1", end="2180-05-06 18:00:00"), stay("notime", "P1", "soon")),
        *(stay("ok", "P1"), stay("twin", "P1"), stay("untriaged", "P1"), "P1,too,few"),
    ]
    diagnosis = ["P1,ok,1,431,9,BLEED", "P1,ok,2,431,9,BLEED", "P1,ok,first,1,9,X", "P1,elsewhere,1,1,9,X", "P1,ok,3"]
    medrecon = ["P1,ok,,*iron liquid ,004380,,1,,", "P1,ok,,Iron Liquid,004380,,2,,", "P1,ok,, * ,0,,1,,"]
    flow = build_cases(
        tables(tmp_path / "ed", triage, edstays, diagnosis, medrecon),
        tmp_path / "out",
        shards=None,
        provenance="mimic_iv_ed",
    )
    cases = {case.case_id: case.model_dump() for case in load_cases(tmp_path / "out" / "cases.jsonl")}
    flags = {name: set(case["flags"]) - {"age_unknown"} for name, case in cases.items()}
    assert flags == {
        "same": set(),
        "alone": {"no_stay_row"},
        "moved": {"subject_differs"},
        "backwards": {"stay_times_inverted"},
        "notime": {"stay_times_unreadable"},
        "ok": set(),
        "twin": {"duplicate_row"},
    }
    assert cases["alone"]["gender"] is None
    assert cases["moved"]["subject_id"] == "P2"
    assert cases["backwards"]["length_of_stay_min"] is None
    assert cases["backwards"]["prior_ed_visits"] == 0
    assert cases["notime"]["prior_ed_visits"] is None
    assert (cases["ok"]["diagnoses"], cases["ok"]["diagnosis_codes"]) == (["BLEED"], ["ICD-9 431"])
    assert (cases["ok"]["medications"], cases["ok"]["medication_gsn"]) == (["iron liquid"], ["004380"])
    assert flow["read"] == 11 == flow["accepted"] + flow["rejected"]
    assert flow["tables"] == {
        "edstays": {"rows": 11, "rejected": 1, "repeated": 2, "joined": 7, "no_triage_row": 1},
        "diagnosis": {"rows": 5, "joined": 1, "repeated": 1, "rejected": 2, "other_stays": 1},
        "medrecon": {"rows": 3, "joined": 1, "repeated": 1, "rejected": 1, "other_stays": 0},
    }
    rejects = {(row["file"], row["id"], row["code"]) for row in table(tmp_path / "out" / "rejects.csv")}
    assert rejects == {
        ("triage.csv", "lost", "conflicting_stay"),
        ("triage.csv", "twin", "duplicate_row"),
        ("triage.csv", "", "ragged_row"),
        ("edstays.csv", "untriaged", "no_triage_row"),
        ("edstays.csv", "", "ragged_row"),
        ("diagnosis.csv", "ok", "invalid_value"),
        ("diagnosis.csv", "", "ragged_row"),
        ("medrecon.csv", "ok", "invalid_value"),
    }


def test_only_the_selected_stays_are_joined_with_diagnoses_and_medicines(tmp_path: Path) -> None:
    ids = [f"S{number}" for number in range(20)]
    folder = tables(
        tmp_path / "ed",
        [patient(name, "P1", acuity=str(number % 5 + 1)) for number, name in enumerate(ids)],
        [stay(name, "P1") for name in ids],
        [f"P1,{name},1,1,9,X" for name in ids],
    )
    flow = build_cases(folder, tmp_path / "out", shards=None, provenance="mimic_iv_ed", select=Select(per_acuity=1))
    assert flow["selected_by_acuity"] == dict.fromkeys("12345", 1)
    assert flow["tables"]["diagnosis"] == {"rows": 20, "joined": 5, "other_stays": 15}


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("*iron liquid ", "iron liquid"),
        ("ATORVASTATIN", "atorvastatin"),
        ("TPN Electrolytes", "TPN Electrolytes"),
        ("HCTZ", "HCTZ"),
        ("metoprolol 25 mg tablet", "metoprolol"),
        ("heparin 5000 units/mL", "heparin"),
        ("Aspir-81", "Aspir-81"),
        ("cyanocobalamin (vitamin B-12)", "cyanocobalamin (vitamin B-12)"),
        ("Novolog Mix 70-30", "Novolog Mix 70-30"),
        ("polyethylene glycol 3350", "polyethylene glycol 3350"),
        ("Lantus U-100 Insulin", "Lantus U-100 Insulin"),
        ("Klor-Con 10", "Klor-Con 10"),
        ("a   b", "a b"),
    ],
)
def test_a_medicine_loses_marks_and_strength_and_no_part_of_its_name(raw: str, name: str) -> None:
    assert medicine_of(raw, " 004380 ") == (name.lower(), name, "004380")


@pytest.mark.parametrize("text", ["", "soon", "2180-13-01 00:00:00"])
def test_what_is_no_time_is_none(text: str) -> None:
    assert seconds(text) is None
    assert seconds("2180-05-06 19:17:00") == (seconds("2180-05-06") or 0) + 19 * 3600 + 17 * 60


def test_ids_that_a_table_program_made_into_decimals_are_joined(tmp_path: Path) -> None:
    case = one(tables(tmp_path, [patient("33211001.0", "10016742.0")], [stay("33211001", "10016742")]))
    assert (case.case_id, extra(case, "race"), extra(case, "subject_id")) == ("33211001", "WHITE", "10016742")


@pytest.mark.parametrize("missing", HEADERS)
def test_a_folder_without_one_of_the_tables_says_which(tmp_path: Path, missing: str) -> None:
    folder = tables(tmp_path, [patient("S1", "P1")], [stay("S1", "P1")])
    (folder / f"{missing}.csv").unlink()
    for read in (source_files, load_cases):
        with pytest.raises(InputError, match=rf"no {missing}\.csv or {missing}\.csv\.gz"):
            read(folder)


def test_the_tables_of_version_1_are_told_by_their_missing_columns(tmp_path: Path) -> None:
    folder = tables(tmp_path, [patient("S1", "P1")], [])
    (folder / "edstays.csv").write_text("subject_id,hadm_id,stay_id,intime,outtime\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"edstays\.csv, line 1: no column gender, race, arrival_transport"):
        load_cases(folder)


def test_a_cut_archive_is_told(tmp_path: Path) -> None:
    folder = tables(tmp_path, [patient("S1", "P1")], [stay("S1", "P1")])
    whole = gzip.compress((folder / "medrecon.csv").read_bytes() + b"P1,S1,,aspirin,1,,1,,\n" * 9999)
    (folder / "medrecon.csv").unlink()
    (folder / "medrecon.csv.gz").write_bytes(whole[:-50])
    with pytest.raises(InputError, match=r"medrecon\.csv\.gz: not whole gzip data"):
        load_cases(folder)


# -- whose data it is


def rows_with(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    path = tmp_path / "own.jsonl"
    text = "".join(json.dumps({"chief_complaint": "Rash", "acuity": 3, **row}) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    return path


MIMIC_LIKE = [
    {"case_id": "30123456"},
    {"case_id": 39999999},
    {"case_id": "a", "stay_id": "b", "subject_id": "c"},
    {"case_id": "a", "subject_id": 10012345},
    {"case_id": "a", "hadm_id": "29079034.0"},
]
OTHERS: list[dict[str, Any]] = [
    {"case_id": "40123456"},
    {"case_id": "301234567"},
    {"case_id": "a", "subject_id": "p-1"},
    {"case_id": "30-123456"},
]


@pytest.mark.parametrize("row", MIMIC_LIKE)
def test_data_that_looks_like_mimic_is_credentialed_whatever_is_declared(tmp_path: Path, row: dict[str, Any]) -> None:
    path = rows_with(tmp_path, {"case_id": "first"}, row)
    assert looks_like_mimic(path)
    assert provenance_of(path, "synthetic") == provenance_of(path, "deidentified") == "mimic_iv_ed"
    assert provenance_of(path, "identifiable") == "identifiable"
    flow = build_cases(path, tmp_path / "out", shards=None, provenance="synthetic")
    assert flow["provenance"] == {"mimic_iv_ed": 1, "synthetic": 1}
    assert [case.provenance for case in load_cases(path)] == [None, "mimic_iv_ed"]


@pytest.mark.parametrize("row", OTHERS)
def test_other_data_is_what_is_declared(tmp_path: Path, row: dict[str, Any]) -> None:
    path = rows_with(tmp_path, row)
    assert not looks_like_mimic(path)
    assert provenance_of(path, "deidentified") == "deidentified"
    assert [case.provenance for case in load_cases(path)] == [None]


def test_a_case_far_down_is_credentialed_although_the_first_rows_are_not(tmp_path: Path) -> None:
    path = rows_with(tmp_path, *({"case_id": f"c{number}"} for number in range(200)), {"case_id": "30123456"})
    assert not looks_like_mimic(path)
    assert load_cases(path)[-1].provenance == "mimic_iv_ed"


@needs_demo
@pytest.mark.parametrize("source", [DEMO, DEMO / "triage.csv"])
def test_the_open_demo_is_known_by_its_stays(source: Path) -> None:
    assert looks_like_mimic(source)
    assert provenance_of(source, "synthetic") == "mimic_iv_ed_demo"
    assert provenance_of(source, "deidentified") == "deidentified"
    assert {case.provenance for case in load_cases(source)} == {"mimic_iv_ed_demo"}
    assert len(load_yaml("mimic_demo.yaml")["stays"]) == len(load_cases(source)) == 222


@needs_demo
def test_one_stay_that_is_not_the_demo_s_makes_a_source_credentialed(tmp_path: Path) -> None:
    path = tmp_path / "triage.csv"
    path.write_text((DEMO / "triage.csv").read_text() + patient("30000001", "10000032") + "\n", encoding="utf-8")
    assert provenance_of(path, "mimic_iv_ed_demo") == "mimic_iv_ed"
    counts = build_cases(path, tmp_path / "out", shards=None, provenance="mimic_iv_ed_demo")["provenance"]
    assert counts == {"mimic_iv_ed": 1, "mimic_iv_ed_demo": 220}


def test_the_script_builds_a_file_that_loads(tmp_path: Path) -> None:
    folder = tables(tmp_path / "ed", [patient("S1", "P1"), patient("S2", "P1")], [stay("S1", "P1"), stay("S2", "P1")])
    (tmp_path / "stays.txt").write_text("S2\n", encoding="utf-8")
    arguments = ["--ed-dir", folder, "--out-dir", tmp_path / "out", "--stays", tmp_path / "stays.txt"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["selected"] == 1
    case = one(tmp_path / "out" / "cases.jsonl")
    assert (case.case_id, case.provenance, case.acuity_scale) == ("S2", "mimic_iv_ed", "esi")


def test_the_benchmark_s_made_up_set_is_built_whole(tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "build_cases.py"
    arguments = ["--share", "0.001", "--shards", "3", "--scratch", str(tmp_path)]
    done = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=True)
    [row] = [line for line in done.stdout.splitlines() if line.startswith("| 425 |")]
    assert row.split(" | ")[1:4] == ["2,987", "425", "0"]
    assert not list(tmp_path.iterdir())
