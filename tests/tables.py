"""Tables of MIMIC-IV-ED's form for the tests; the rows are made up."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

HEADERS = {
    "triage": "subject_id,stay_id,temperature,heartrate,resprate,o2sat,sbp,dbp,pain,acuity,chiefcomplaint",
    "edstays": "subject_id,hadm_id,stay_id,intime,outtime,gender,race,arrival_transport,disposition",
    "diagnosis": "subject_id,stay_id,seq_num,icd_code,icd_version,icd_title",
    "medrecon": "subject_id,stay_id,charttime,name,gsn,ndc,etc_rn,etccode,etcdescription",
}
DEMO = Path(__file__).parents[2] / "shared" / "data" / "mimic-iv-ed-demo" / "ed"
FAULTS = Path(__file__).parents[2] / "shared" / "data" / "case_faults.jsonl"

Lines = Sequence[str]


def stay(stay_id: str, subject: str, begin: str = "2180-05-06 19:17:00", end: str = "2180-05-06 23:30:00") -> str:
    """A row of edstays."""
    return f"{subject},,{stay_id},{begin},{end},F,WHITE,WALK IN,HOME"


def patient(stay_id: str, subject: str, complaint: str = "Rash", acuity: str = "3") -> str:
    """A row of triage without anything odd."""
    return f'{subject},{stay_id},98.6,80,16,99,120,80,2,{acuity},"{complaint}"'


def tables(
    folder: Path, triage: Lines, edstays: Lines, diagnosis: Lines = (), medrecon: Lines = (), patients: Lines = ()
) -> Path:
    """Write a folder of tables from their lines; patients.csv only if it has any."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in {"triage": triage, "edstays": edstays, "diagnosis": diagnosis, "medrecon": medrecon}.items():
        (folder / f"{name}.csv").write_text("\n".join([HEADERS[name], *lines]) + "\n", encoding="utf-8")
    if patients:
        text = "\n".join(["subject_id,gender,anchor_age,anchor_year,anchor_year_group,dod", *patients])
        (folder / "patients.csv").write_text(text + "\n", encoding="utf-8")
    return folder


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a written table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
