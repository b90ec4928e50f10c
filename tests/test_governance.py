"""What may go where, what is secret, and what names nobody."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from actors import a_case, personas
from fault_server import FaultServer
from triagesim.build import build_cases
from triagesim.cases import CASE_ID, Case, load_cases
from triagesim.config import Config, check_config
from triagesim.errors import InputError, StopRun
from triagesim.governance import attributions, close_folders, load_salt, notice, private_files, pseudonym
from triagesim.limits import Limits
from triagesim.pairing import check_files, make_setup, resolve, runtime
from triagesim.personas import Pool
from triagesim.resources import load_yaml
from triagesim.simulation import run
from triagesim.views import facts_for

ROOT = Path(__file__).parents[1]
TODAY = dt.date.today()
MODEL = "vendor/model-7b"
TRIAGE = "subject_id,stay_id,temperature,heartrate,resprate,o2sat,sbp,dbp,pain,acuity,chiefcomplaint"
ROWS = {
    "triage": [TRIAGE, '10004235,33876543,98.4,70,16,97,106,63,7,3,"Abdominal pain, Transfer"'],
    "edstays": [
        "subject_id,hadm_id,stay_id,intime,outtime,gender,race,arrival_transport,disposition",
        "10004235,24181354,33876543,2196-02-24 12:15:00,2196-02-24 17:07:00,M,BLACK/CAPE VERDEAN,AMBULANCE,ADMITTED",
    ],
    "diagnosis": ["subject_id,stay_id,seq_num,icd_code,icd_version,icd_title", "10004235,33876543,1,0380,9,SEPTICEMIA"],
    "medrecon": [
        "subject_id,stay_id,charttime,name,gsn,ndc,etc_rn,etccode,etcdescription",
        "10004235,33876543,2196-02-24 12:44:00,aspirin,004380,,1,,",
    ],
    "patients": ["subject_id,gender,anchor_age,anchor_year,anchor_year_group", "10004235,M,91,2192,2011 - 2013"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tables of one stay that looks like MIMIC-IV-ED and isn't in its demo."""
    tables = tmp_path / "ed"
    tables.mkdir()
    for name, lines in ROWS.items():
        (tables / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tables


def attestation(**changes: Any) -> dict[str, Any]:
    """A whole block for the test server; a key set to None is left out."""
    whole = {
        "user": "A. Researcher",
        "date": TODAY,
        "provider": "127.0.0.1",
        "model": MODEL,
        "zero_retention": True,
        "no_training": True,
        "no_human_review": True,
        "agreement_ref": "contract 12, section 4",
    }
    return {key: value for key, value in {**whole, **changes}.items() if value is not None}


def raw_config(source: Path, url: str, provenance: str, attested: Any = None, **model: Any) -> dict[str, Any]:
    """A run in which one hosted model has every role."""
    return {
        "data": {"source": str(source), "provenance": provenance},
        "models": {"far": {"backend": "openai", "model": MODEL, "base_url": url, **model}},
        "pairings": [{"nurse": "far", "patient": "far", "judge": "far"}],
        "simulation": {"max_turns": 2, "min_questions": 1},
        "governance": {"hosted_attestation": attested},
    }


def played(config: Config, case: Case, journal: Path) -> list[dict[str, Any]]:
    """The episodes of the configuration's first pairing on one case, as a job plays them."""
    given = runtime(config)
    setup = make_setup(
        resolve(config, config.expanded()[0]),
        Pool(personas("nurse"), "nurse"),
        Pool(personas("patient"), "patient"),
        given["models"],
        attestations=given["attestations"],
    )
    return list(run([(case, 0)], setup, journal, 1, Limits()))


def test_a_pseudonym_is_a_keyed_hash_that_is_a_case_id() -> None:
    salt = bytes(range(32))
    made = pseudonym("30115042", salt)
    assert made == hmac.new(salt, b"30115042", hashlib.sha256).hexdigest()[:16]
    assert CASE_ID.fullmatch(made)
    assert made != pseudonym("30115043", salt)
    assert made != pseudonym("30115042", bytes(32))


def test_a_salt_is_made_once_and_is_the_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal" / "export.salt"
    salt = load_salt(path)
    assert len(salt) == 32
    assert load_salt(path) == salt
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert load_salt(tmp_path / "other" / "export.salt") != salt


def test_jobs_that_ask_for_a_salt_at_the_same_time_get_the_same(tmp_path: Path) -> None:
    salts: list[bytes] = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        salts.append(load_salt(tmp_path / "export.salt"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(salts) == 8
    assert len(set(salts)) == 1


@pytest.mark.parametrize("content", ["", "abc", "00" * 31, "not hex"])
def test_a_file_without_a_salt_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "export.salt").write_text(content)
    with pytest.raises(InputError, match="64 hex digits"):
        load_salt(tmp_path / "export.salt")


# -- where data may go

AMISS: dict[str, tuple[Any, str]] = {
    "none": (None, "governance.hosted_attestation isn't there for provider '127.0.0.1', model 'vendor/model-7b'"),
    "empty": ([], "governance.hosted_attestation isn't there"),
    "provider": (attestation(provider="openai"), "is for provider 'openai', model 'vendor/model-7b', and not for"),
    "model": (attestation(model="vendor/model"), "is for provider '127.0.0.1', model 'vendor/model', and not for"),
    "expired": (attestation(date=TODAY - dt.timedelta(days=181)), r"expired after .* \(180 days\)"),
    "to come": (attestation(date=TODAY + dt.timedelta(days=1)), "which is to come"),
    "one of two": ([attestation(provider="a"), attestation(model="b")], "and not for"),
}
FAULTY = {
    **{
        name: (attestation(**{name: None}), f"governance.hosted_attestation.{name}: is required")
        for name in attestation()
    },
    **{
        f"{name} false": (attestation(**{name: False}), f"governance.hosted_attestation.{name}: Input should be True")
        for name in ("zero_retention", "no_training", "no_human_review")
    },
    "blank": (attestation(agreement_ref=" "), "governance.hosted_attestation.agreement_ref: "),
    "in a list": ([attestation(), attestation(user=None)], r"governance.hosted_attestation\[1\].user: is required"),
    "unknown key": (attestation(expires="never"), "governance.hosted_attestation.expires: unknown key"),
    "no date": (attestation(date="soon"), "governance.hosted_attestation.date: "),
}


@pytest.mark.parametrize("name", AMISS)
@pytest.mark.parametrize("declared", ["mimic_iv_ed", "deidentified", "synthetic"])
def test_without_a_fitting_attestation_nothing_is_planned_and_nothing_is_sent(
    folder: Path, tmp_path: Path, name: str, declared: str
) -> None:
    attested, said = AMISS[name]
    with FaultServer() as server:
        raw = raw_config(folder, server.url, declared, attested)
        with pytest.raises(InputError, match=said) as caught:
            check_files(check_config(raw))
        assert "may not be sent to the hosted model 'far'" in str(caught.value)
        assert "pairings[0].nurse" in str(caught.value)
        # The plan's check passed by, the one before each request still holds.
        config = Config.model_validate(raw)
        [case] = load_cases(folder)
        with pytest.raises(StopRun, match=said):
            played(config, case.model_copy(update={"provenance": "deidentified"}), tmp_path / "journal")
        assert server.asked == []


@pytest.mark.parametrize("name", FAULTY)
def test_an_attestation_that_is_not_whole_is_an_error_that_names_the_key(folder: Path, name: str) -> None:
    attested, said = FAULTY[name]
    with pytest.raises(InputError, match=said):
        check_config(raw_config(folder, "http://127.0.0.1:9/v1", "mimic_iv_ed", attested))


@pytest.mark.parametrize("days", [0, 180])
@pytest.mark.parametrize("listed", [False, True])
def test_a_whole_attestation_lets_credentialed_data_go_and_no_prompt_holds_an_id_or_a_time(
    folder: Path, tmp_path: Path, days: int, listed: bool
) -> None:
    block = attestation(date=TODAY - dt.timedelta(days=days))
    with FaultServer() as server:
        attested = [attestation(model="another"), block] if listed else block
        config = check_config(raw_config(folder, server.url, "mimic_iv_ed", attested))
        assert check_files(config) == "mimic_iv_ed"
        [case] = load_cases(folder)
        assert case.provenance == "mimic_iv_ed"
        assert case.age == 95
        [episode] = played(config, case, tmp_path / "journal")
    assert episode["status"] in ("ok", "skipped")
    assert server.asked
    sent = json.dumps([call.body for call in server.asked])
    assert "Abdominal pain" in sent
    assert "90 years old" in sent
    for hidden in ("10004235", "33876543", "24181354", "2196", "12:15", "95 years", "CAPE VERDEAN", "ADMITTED"):
        assert hidden not in sent


def test_no_attestation_lets_identifiable_data_go(tmp_path: Path) -> None:
    source = tmp_path / "mine.jsonl"
    source.write_text(json.dumps({"case_id": "a", "chief_complaint": "Fall", "acuity": 3}) + "\n", encoding="utf-8")
    with FaultServer() as server:
        raw = raw_config(source, server.url, "identifiable", attestation())
        with pytest.raises(InputError, match="no attestation is accepted for identifiable data"):
            check_config(raw)
        with pytest.raises(StopRun, match="no attestation is accepted for identifiable data"):
            played(Config.model_validate(raw), a_case(provenance="identifiable"), tmp_path / "journal")
        assert server.asked == []


def test_an_attestation_of_openrouter_is_for_its_host(folder: Path) -> None:
    raw = raw_config(folder, "unused", "mimic_iv_ed", attestation(provider="openrouter.ai"))
    raw["models"] = {"far": {"backend": "openrouter", "model": MODEL}}
    config = check_config(raw)
    assert check_files(config) == "mimic_iv_ed"
    setup = make_setup(resolve(config, config.expanded()[0]), *(Pool(personas(r), r) for r in ("nurse", "patient")), {})
    assert setup.seats["nurse"].backend.provider == "openrouter.ai"  # type: ignore[attr-defined]


def test_an_attestation_changes_no_key_and_no_specification(folder: Path) -> None:
    made = []
    for attested in (None, attestation()):
        config = check_config(raw_config(folder, "http://127.0.0.1:9/v1", "mimic_iv_ed", attested, local=True))
        pools = [Pool(personas(role), role) for role in ("nurse", "patient")]
        resolved = resolve(config, config.expanded()[0])
        made.append(make_setup(resolved, *pools, {}, attestations=runtime(config)["attestations"]))
    assert made[0].spec == made[1].spec
    assert made[0].seats["nurse"].digest == made[1].seats["nurse"].digest
    assert made[1].seats["judge"].attestations


@pytest.mark.parametrize(("provenance", "told"), [("deidentified", 90), ("synthetic", 97), (None, 97)])
def test_ages_over_90_are_one_group_where_the_data_is_not_open(provenance: str | None, told: int) -> None:
    case = a_case(age=97, provenance=provenance)
    assert facts_for("patient", case, age_group="older", unwell="").age == told


# -- files


def rights(folder: Path) -> tuple[set[int], set[int]]:
    """The rights of its files, and those of it and its folders."""
    paths = [folder, *folder.rglob("*")]
    return tuple({p.stat().st_mode & 0o777 for p in paths if p.is_dir() is kind} for kind in (False, True))  # type: ignore[return-value]


@pytest.fixture
def umask() -> Any:
    """The usual umask, whatever this machine's is."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize(("provenance", "expected"), [("mimic_iv_ed", ({0o600}, {0o700})), ("x", ({0o644}, {0o755}))])
def test_cases_that_are_not_open_data_are_the_owners_alone(
    folder: Path, tmp_path: Path, umask: None, provenance: str, expected: Any
) -> None:
    source = folder
    if provenance == "x":
        source = tmp_path / "own.jsonl"
        source.write_text(json.dumps({"case_id": "a", "chief_complaint": "Fall", "acuity": 3}) + "\n", encoding="utf-8")
    build_cases(source, tmp_path / "out", shards=2, provenance="synthetic")
    assert rights(tmp_path / "out") == expected
    assert os.umask(0o022) == 0o022


def test_what_the_command_writes_of_such_cases_is_the_owners_alone_and_carries_the_notice(
    folder: Path, tmp_path: Path, umask: None
) -> None:
    out = tmp_path / "runs" / "run.jsonl"
    command = [sys.executable, "-m", "triagesim.cli", "--model", "agenda", "--cases", folder, "--out", out]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert rights(out.parent) == ({0o600}, {0o700})
    assert {"run.jsonl", "run.jsonl.journal", "run.NOTICE.txt"} == {path.name for path in out.parent.iterdir()}
    assert "data use agreement" in (out.parent / "run.NOTICE.txt").read_text(encoding="utf-8")


def test_folders_of_an_earlier_run_are_closed(tmp_path: Path, umask: None) -> None:
    (tmp_path / "results").mkdir()
    close_folders(tmp_path / "results", tmp_path / "none")
    assert (tmp_path / "results").stat().st_mode & 0o777 == 0o700


def test_open_data_and_data_of_unknown_provenance_leave_the_umask(umask: None) -> None:
    with private_files(["synthetic", "mimic_iv_ed_demo", None]):
        assert os.umask(0o022) == 0o022
    with private_files(["synthetic", "deidentified"]):
        assert os.umask(0o077) == 0o077
    assert os.umask(0o022) == 0o022


def test_the_notice_holds_the_terms_of_every_provenance_among_the_cases() -> None:
    entries = load_yaml("notices.yaml")["provenances"]
    assert entries.keys() == {"mimic_iv_ed_demo", "mimic_iv_ed", "deidentified", "identifiable"}
    plain = " ".join(notice(["synthetic"]).split())
    assert plain == load_yaml("notices.yaml")["simulation"]
    both = " ".join(notice(["mimic_iv_ed_demo", "identifiable", "synthetic"]).split())
    assert entries["mimic_iv_ed_demo"]["attribution"] in both
    assert entries["identifiable"]["notice"] in both
    assert entries["mimic_iv_ed"]["notice"] not in both
    assert all(len(line) <= 100 for line in notice(entries).splitlines())


def test_the_demo_alone_asks_for_an_attribution() -> None:
    [line] = attributions(["synthetic", "mimic_iv_ed_demo", "mimic_iv_ed"])
    assert "MIMIC-IV-ED Demo" in line
    assert "Open Database License (ODbL) 1.0" in line
