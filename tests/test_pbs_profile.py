"""The PBS profile: what qsub is asked, what qstat's answers mean, and Snakemake's own run through both."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROFILE = ROOT / "profiles" / "pbs"
RECORDED = ROOT / "tests" / "data" / "qstat"  # answers of OpenPBS 23.06 to qstat -x -f -F json
PRO, SLURM = "pbs_version = 23.06.06", "Unknown option: version"
LOST: dict[str, Any] = {"stderr": "qstat: Unknown Job Id 46.server", "code": 153}
MUTE: dict[str, Any] = {"stderr": "qstat: cannot connect to server", "code": 111}

# Each fake command notes its arguments, then does what its variable part says.
NOTE = f"""#!{sys.executable}
import json, os, subprocess, sys
from pathlib import Path
HERE = Path(__file__).resolve().parent
NAME, WORDS = Path(__file__).name, sys.argv[1:]
with open(HERE / f"{{NAME}}.calls", "a") as calls:
    print(json.dumps(WORDS), file=calls)
"""
# A server that answers what the test has put down: a file `answer` for each command.
FIXED = """
reply = json.loads((HERE / f"{NAME}.answer").read_text())
if WORDS == ["--version"]:
    sys.exit(reply["version"])
if NAME == "qstat" and "-x" in WORDS and reply.get("lines"):
    sys.exit("Unknown option: x")
print(reply.get("stdout", ""))
print(reply.get("stderr", ""), file=sys.stderr)
sys.exit(reply.get("code", 0))
"""
# A server that runs the script in the background, away from the submitting folder as PBS does.
RUNNING_QSUB = """
number = len((HERE / "qsub.calls").read_text().splitlines())
log = open(WORDS[WORDS.index("-o") + 1], "w")
environment = os.environ | {"PBS_JOBID": f"{number}.server", "PBS_O_WORKDIR": os.getcwd()}
job = f"bash {WORDS[-1]!r}; echo $? > {HERE}/{number}.new; mv {HERE}/{number}.new {HERE}/{number}.code"
subprocess.Popen(["sh", "-c", job], cwd=HERE, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                 start_new_session=True)
print(f"{number}.server")
"""
RUNNING_QSTAT = """
if WORDS == ["--version"]:
    sys.exit("pbs_version = 23.06.06")
code = HERE / (WORDS[-1].split(".")[0] + ".code")
job = {"job_state": "R", "substate": 42}
if code.exists():
    exit_status = int(code.read_text())
    job = {"job_state": "F", "substate": 93 if exit_status else 92, "Exit_status": exit_status}
print(json.dumps({"Jobs": {WORDS[-1]: job}}))
"""
TOY = """
rule all:
    input: "second.txt"
    localrule: True
rule first:
    output: "first.txt"
    resources: gpu=1, gpu_model="H200", ncpus=8, mem_mb=128000, runtime=90
    shell:
        "touch started; test {config[broken]} = no;"
        " while [ ! -e release ]; do sleep 0.1; done; echo one > {output}"
rule second:
    input: "first.txt"
    output: "second.txt"
    shell: "cat {input} > {output}; echo two >> {output}"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: empty, with a folder of commands that come before the system's."""
    (tmp_path / "bin").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("SNAKEMAKE_PROFILE", raising=False)
    install(tmp_path, qsub=FIXED, qstat=FIXED, qdel=FIXED)
    answer("qsub", stdout="46.server")
    answer("qdel")
    answer("qstat", **LOST)
    return tmp_path


def install(folder: Path, **commands: str) -> None:
    for name, code in commands.items():
        path = folder / "bin" / name
        path.write_text(NOTE + code)
        path.chmod(0o755)


def answer(name: str, version: str = PRO, **reply: Any) -> None:
    Path("bin", f"{name}.answer").write_text(json.dumps({"version": version} | reply))


def calls(name: str) -> list[list[str]]:
    path = Path("bin", f"{name}.calls")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def reported(job: str = "46.server", **attributes: Any) -> dict[str, str]:
    """What `qstat -f -F json` prints of one job."""
    return {"stdout": json.dumps({"pbs_version": "23.06.06", "Jobs": {job: {"Job_Name": "smk-x"} | attributes}})}


def status(job: str = "46.server") -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROFILE / "status.py", job], capture_output=True, text=True, timeout=60)


def verdict(job: str = "46.server") -> str:
    """The one word that status.py prints; it always exits with 0."""
    done = status(job)
    assert done.returncode == 0
    return done.stdout.removesuffix("\n")


def leave_exit_code(code: int, job: str = "46") -> None:
    Path(".snakemake/pbs").mkdir(parents=True, exist_ok=True)
    Path(f".snakemake/pbs/{job}.exit").write_text(f"{code}\n")


def job(**changes: Any) -> dict[str, Any]:
    """The properties of a job, as Snakemake writes them."""
    resources = {"mem_mb": 128000, "runtime": 120, "ncpus": 8, "gpu": 1, "disk_mb": 1000, "tmpdir": "<TBD>"}
    return {
        "type": "single",
        "rule": "simulate",
        "input": ["cases.jsonl"],
        "output": ["episodes.jsonl"],
        "wildcards": {"pairing": "a.b", "shard": "3-of-20"},
        "params": {"script": "simulate.py"},
        "threads": 1,
        "resources": resources | changes.pop("resources", {}),
        "jobid": 7,
    } | changes


def submit(properties: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    Path("job.sh").write_text(f"#!/bin/bash\n# properties = {json.dumps(properties)}\ntrue\n")
    return subprocess.run([PROFILE / "submit.py", "job.sh"], capture_output=True, text=True, timeout=60)


def limits(properties: dict[str, Any]) -> list[str]:
    """The -l options of the one call of qsub that submitting the job makes."""
    done = submit(properties)
    assert (done.returncode, done.stdout) == (0, "46.server\n"), done.stderr
    (words,) = calls("qsub")
    return [words[place + 1] for place, word in enumerate(words) if word == "-l"]


# What qsub is asked


def test_pbs_pro_gets_one_select_chunk_and_the_walltime_apart(here: Path) -> None:
    assert limits(job(resources={"gpu_model": "H200"})) == [
        "select=1:ncpus=8:mem=128000mb:ngpus=1:gpu_model=H200",
        "walltime=02:00:00",
    ]


def test_a_job_without_a_gpu_asks_for_none_and_for_no_model_of_one(here: Path) -> None:
    assert limits(job(resources={"gpu": 0, "gpu_model": "H200"}))[0] == "select=1:ncpus=8:mem=128000mb"


def test_torque_and_slurm_get_everything_in_one_option(here: Path) -> None:
    answer("qstat", version=SLURM, **LOST)
    assert limits(job(resources={"runtime": 90})) == ["nodes=1:ppn=8:gpus=1,mem=128000mb,walltime=01:30:00"]


def test_a_gpu_model_that_torque_cannot_be_told_is_said_to_be_dropped(here: Path) -> None:
    answer("qstat", version=SLURM, **LOST)
    assert "gpu_model=H200" in submit(job(resources={"gpu_model": "H200"})).stderr


def test_threads_beyond_ncpus_are_asked_for(here: Path) -> None:
    assert limits(job(threads=12))[0].startswith("select=1:ncpus=12:")


def test_without_a_runtime_the_server_decides_the_walltime(here: Path) -> None:
    without = job()
    del without["resources"]["runtime"]
    assert limits(without) == ["select=1:ncpus=8:mem=128000mb:ngpus=1"]


def test_queue_and_project_are_passed_on(here: Path) -> None:
    submit(job(resources={"queue": "gpuq", "project": "ab12"}))
    (words,) = calls("qsub")
    assert words[words.index("-q") + 1] == "gpuq"
    assert words[words.index("-P") + 1] == "ab12"


def test_each_job_has_a_short_name_its_own_log_and_never_starts_twice(here: Path) -> None:
    submit(job(rule="generate_personas"))
    (words,) = calls("qsub")
    assert words[-1] == "job.sh"
    assert words[words.index("-N") + 1] == "smk-generate_pe"
    assert words[words.index("-o") + 1] == str(here / "logs/pbs/generate_personas.a.b.3-of-20.log")
    assert words[words.index("-r") + 1] == "n"
    assert (here / "logs/pbs").is_dir()


def test_a_further_try_has_a_log_of_its_own(here: Path) -> None:
    begun(gained=True)
    submit(job(resources={"attempt": 2}))
    words = calls("qsub")[-1]
    assert words[words.index("-o") + 1] == str(here / "logs/pbs/simulate.a.b.3-of-20.try-2.log")


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_the_server_s_log_is_as_private_as_the_run_s_files(here: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        submit(job())
    finally:
        os.umask(before)
    (words,) = calls("qsub")
    assert words[words.index("-W") + 1] == f"umask={mask:03o}"


# What a job gets of the environment


def exported() -> dict[str, str]:
    """What the jobs find in their environment file."""
    path = Path(".snakemake/pbs/environment.sh")
    assert path.stat().st_mode & 0o777 == 0o600
    done = subprocess.run(["env", "-i", "bash", "-c", f". {path}; env -0"], capture_output=True, text=True, check=True)
    return dict(each.split("=", 1) for each in done.stdout.rstrip("\0").split("\0"))


def test_the_server_is_told_no_variable_but_the_walltime(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-never-in-a-job-record")
    submit(job(resources={"runtime": 90}))
    (words,) = calls("qsub")
    assert "-V" not in words
    assert [words[place + 1] for place, word in enumerate(words) if word == "-v"] == ["TRIAGESIM_WALLTIME=5400"]
    assert "sk-never" not in json.dumps(words)


def test_a_job_finds_the_named_variables_and_no_secret(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"LD_LIBRARY_PATH": "/opt/cuda lib/$x'", "HF_HOME": "/scratch/a", "CONDA_PREFIX": "/opt/c\nd"}
    hidden = {"HF_TOKEN": "a", "OPENAI_API_KEY": "b", "CONDA_PASSWORD": "c", "https_proxy": "http://me:pw@proxy:3128"}
    for name, value in (given | hidden | {"MY_OWN": "d", "http_proxy": "http://proxy:3128"}).items():
        monkeypatch.setenv(name, value)
    submit(job())
    found = exported()
    assert given.items() <= found.items()
    assert found["http_proxy"] == "http://proxy:3128"
    assert not found.keys() & {*hidden, "MY_OWN"}
    assert found["PATH"].endswith(os.environ["PATH"])  # what starts python3 may put folders of its own before it


def test_a_secret_that_is_named_for_the_jobs_is_refused(here: Path) -> None:
    shutil.copytree(PROFILE, here / "own")
    with (here / "own/environment.txt").open("a") as names:
        names.write("OPENAI_API_KEY\n")
    Path("job.sh").write_text(f"# properties = {json.dumps(job())}\n")
    done = subprocess.run([here / "own/submit.py", "job.sh"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert "OPENAI_API_KEY looks like a secret; jobs read keys from .env" in done.stderr
    assert calls("qsub") == []


# Tries


def begun(gained: bool) -> None:
    """The first try of a job, which is over now."""
    submit(job(resources={"attempt": 1}))
    if gained:
        Path(".snakemake/pbs/46.gained").touch()
    leave_exit_code(1)
    answer("qsub", stdout="47.server")


def test_a_job_that_got_on_is_tried_again(here: Path) -> None:
    begun(gained=True)
    assert submit(job(resources={"attempt": 2})).stdout == "47.server\n"


def test_a_job_that_gained_nothing_is_not_tried_again_and_says_where_to_look(here: Path) -> None:
    begun(gained=False)
    done = submit(job(resources={"attempt": 2}))
    assert (done.returncode, done.stdout) == (1, "")
    assert "job 46.server gained nothing or ended in an error" in done.stderr
    assert "logs/pbs/simulate.a.b.3-of-20.log says why" in done.stderr
    assert len(calls("qsub")) == 1


def test_a_new_start_of_snakemake_tries_whatever_came_before(here: Path) -> None:
    begun(gained=False)
    assert submit(job(resources={"attempt": 1})).stdout == "47.server\n"


def test_a_group_of_jobs_is_submitted_too(here: Path) -> None:
    group = {"type": "group", "groupid": "scores", "jobid": "f0e1", "input": None, "output": None, "threads": 2}
    assert limits(group | {"resources": {"mem_mb": 500, "runtime": 5}}) == [
        "select=1:ncpus=2:mem=500mb",
        "walltime=00:05:00",
    ]
    assert str(here / "logs/pbs/scores.f0e1.log") in calls("qsub")[0]


def test_only_the_id_is_printed_whatever_a_hook_of_the_site_says(here: Path) -> None:
    answer("qsub", stdout="Project ab12: 40 units left\n46.server\n")
    assert submit(job()).stdout == "46.server\n"


@pytest.mark.parametrize(
    "reply",
    [{"stderr": "qsub: Unknown queue", "code": 170}, {"stdout": "No partition gpuq", "code": 1}, {"stdout": "thanks"}],
)
def test_a_refused_job_ends_with_what_qsub_said(here: Path, reply: dict[str, Any]) -> None:
    answer("qsub", **reply)
    done = submit(job())
    assert done.returncode == 1
    assert done.stdout == ""
    assert str(reply.get("stderr", reply.get("stdout"))) in done.stderr


@pytest.mark.parametrize(("minutes", "walltime"), [(1, "00:01:00"), (59, "00:59:00"), (2885, "48:05:00")])
def test_minutes_become_hours_minutes_and_seconds(here: Path, minutes: int, walltime: str) -> None:
    assert limits(job(resources={"runtime": minutes}))[1] == f"walltime={walltime}"


# Jobs that outlive a killed Snakemake


def test_a_live_job_of_a_killed_run_is_taken_over(here: Path) -> None:
    submit(job())
    answer("qsub", stdout="47.server")
    answer("qstat", **reported(job_state="R", substate=42))
    again = submit(job())
    assert again.stdout == "46.server\n"
    assert "taken over" in again.stderr
    assert len(calls("qsub")) == 1


def test_a_job_is_taken_over_while_the_server_does_not_answer(here: Path) -> None:
    submit(job())
    answer("qstat", **MUTE)
    assert submit(job()).stdout == "46.server\n"
    assert len(calls("qsub")) == 1


def test_another_shard_is_not_taken_for_the_live_one(here: Path) -> None:
    submit(job())
    answer("qsub", stdout="47.server")
    answer("qstat", **reported(job_state="R", substate=42))
    assert submit(job(wildcards={"pairing": "a.b", "shard": "4-of-20"})).stdout == "47.server\n"


@pytest.mark.parametrize("ended", [reported(job_state="F", substate=91, Exit_status=0), LOST])
def test_a_job_that_is_over_is_submitted_again(here: Path, ended: dict[str, Any]) -> None:
    submit(job())
    answer("qsub", stdout="47.server")
    answer("qstat", **ended)
    assert submit(job()).stdout == "47.server\n"


def test_a_job_that_left_its_exit_code_is_over_whatever_the_server_says(here: Path) -> None:
    submit(job())
    leave_exit_code(1)
    answer("qsub", stdout="47.server")
    answer("qstat", **reported(job_state="E", substate=51))
    assert submit(job()).stdout == "47.server\n"


def change_parameters(properties: dict[str, Any]) -> None:
    properties["params"] = {"script": "other.py"}


def change_input(properties: dict[str, Any]) -> None:
    os.utime("cases.jsonl", (1, 1))


@pytest.mark.parametrize("change", [change_parameters, change_input])
def test_a_live_job_with_other_work_is_neither_taken_over_nor_doubled(
    here: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    Path("cases.jsonl").touch()
    changed = job()
    submit(job())
    answer("qstat", **reported(job_state="Q", substate=10))
    change(changed)
    done = submit(changed)
    assert (done.returncode, done.stdout) == (1, "")
    assert "qdel 46.server" in done.stderr
    assert len(calls("qsub")) == 1


def test_the_exit_code_of_an_older_job_with_the_same_number_is_dropped(here: Path) -> None:
    leave_exit_code(0)
    os.utime(".snakemake/pbs/46.exit", (1, 1))
    submit(job())
    assert verdict() == "running"


# What qstat's answers mean


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"job_state": "Q", "substate": 10, "comment": "Not Running: Not enough free nodes"}, "running"),
        ({"job_state": "H", "substate": 20}, "running"),
        ({"job_state": "R", "substate": 42, "comment": "Job run at Mon Nov 30"}, "running"),
        ({"job_state": "E", "substate": 50}, "running"),
        ({"job_state": "F", "substate": 92, "Exit_status": 0}, "success"),
        ({"job_state": "F", "Exit_status": 0}, "success"),
        ({"job_state": "F", "substate": 93, "Exit_status": 7}, "failed"),
        ({"job_state": "F", "substate": 93, "Exit_status": -29, "comment": "exceeded resource walltime"}, "failed"),
        ({"job_state": "F", "substate": 91, "Exit_status": 0, "comment": "terminated by user"}, "failed"),
        ({"job_state": "F", "substate": 91, "Exit_status": 271}, "failed"),
        ({"job_state": "F", "substate": 91}, "failed"),
    ],
)
def test_a_pbs_pro_state_is_read_right(here: Path, attributes: dict[str, Any], expected: str) -> None:
    answer("qstat", **reported(**attributes))
    done = status()
    assert (done.returncode, done.stdout) == (0, f"{expected}\n")
    if expected == "failed":
        assert attributes.get("comment", "46.server") in done.stderr


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *[("H", "running"), ("R", "running"), ("F_ok", "success"), ("F_exit7", "failed"), ("F_walltime", "failed")],
        *[("F_qdel", "failed"), ("F_qdel_trap", "failed"), ("Q", "failed")],  # Q asks for a GPU that isn't there
    ],
)
def test_what_a_real_server_answered_is_read_right(here: Path, name: str, expected: str) -> None:
    recorded = (RECORDED / f"{name}.json").read_text()
    ((number, attributes),) = json.loads(recorded)["Jobs"].items()
    answer("qstat", stdout=recorded)
    done = status(number)
    assert (done.returncode, done.stdout) == (0, f"{expected}\n")
    if expected == "failed":
        assert attributes["comment"] in done.stderr
    assert (calls("qdel") == [[number]]) == (name == "Q")


@pytest.mark.parametrize("name", ["F_ok", "F_exit7"])
def test_the_request_of_the_recorded_job_is_what_we_ask_for(here: Path, name: str) -> None:
    (attributes,) = json.loads((RECORDED / f"{name}.json").read_text())["Jobs"].values()
    asked, walltime = limits(job(resources={"gpu_model": "H200", "mem_mb": 128 * 1024}))

    def chunk(text: str) -> dict[str, str]:
        return dict(part.split("=") for part in text.removeprefix("select=").removeprefix("1:").split(":"))

    granted = chunk(attributes["schedselect"])
    assert chunk(asked) | {"mem": "128gb"} == granted
    if name == "F_ok":
        assert walltime == f"walltime={attributes['Resource_List']['walltime']}"


def test_a_deleted_job_failed_though_it_left_exit_code_zero(here: Path) -> None:
    leave_exit_code(0)
    answer("qstat", **reported(job_state="F", substate=91, Exit_status=0))
    assert verdict() == "failed"


def test_a_request_that_can_never_run_fails_with_the_reason_and_leaves_the_queue(here: Path) -> None:
    reason = "Can Never Run: Insufficient amount of resource: gpu_model (A100 != H200)"
    answer("qstat", **reported(job_state="Q", substate=10, comment=reason))
    done = status()
    assert done.stdout == "failed\n"
    assert reason in done.stderr
    assert calls("qdel") == [["46.server"]]


@pytest.mark.parametrize(("code", "expected"), [(93, "failed"), (92, "success")])
def test_json_that_an_odd_variable_broke_is_read_all_the_same(here: Path, code: int, expected: str) -> None:
    whole = reported(job_state="F", substate=code, Exit_status=code - 92, Variable_List={"X": "odd"})["stdout"]
    for text in (whole, json.dumps(json.loads(whole), indent=1)):
        answer("qstat", stdout=text.replace('"odd"', '"o"d\\d"'))
        assert verdict() == expected


def lines(number: int, **attributes: Any) -> str:
    """One job as Torque prints it."""
    return f"Job Id:\t{number}\n" + "".join(f"\t{key} = {value}\n" for key, value in attributes.items())


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [("Q", None, "running"), ("R", None, "running"), ("C", 0, "success"), ("C", 1, "failed"), ("C", 143, "failed")],
)
def test_slurm_tells_the_state_and_the_exit_file_the_rest(
    here: Path, state: str, code: int | None, expected: str
) -> None:
    answer("qstat", lines=True, stdout=lines(46, job_state=state))
    if code is not None:
        leave_exit_code(code)
    assert verdict("46") == expected


@pytest.mark.parametrize(("code", "expected"), [(0, "success"), (271, "failed")])
def test_torque_tells_the_exit_status(here: Path, code: int, expected: str) -> None:
    answer("qstat", lines=True, stdout=lines(46, job_state="C", exit_status=code))
    assert verdict() == expected


def test_the_state_of_job_4_is_not_taken_for_that_of_job_46(here: Path) -> None:
    answer("qstat", lines=True, stdout=lines(4, job_state="C") + "\n" + lines(46, job_state="R"))
    leave_exit_code(0, "46")
    assert verdict("46") == "running"


# No answer, or no word of the job


def begin_waiting(why: str, seconds_ago: float) -> None:
    Path(".snakemake/pbs").mkdir(parents=True, exist_ok=True)
    Path(f".snakemake/pbs/46.{why}").write_text(str(time.time() - seconds_ago))


@pytest.mark.parametrize(("code", "expected"), [(0, "success"), (1, "failed")])
@pytest.mark.parametrize("reply", [LOST, MUTE, {"lines": True} | LOST])
def test_the_exit_file_decides_where_the_server_says_nothing(
    here: Path, reply: dict[str, Any], code: int, expected: str
) -> None:
    leave_exit_code(code)
    answer("qstat", **reply)
    assert verdict() == expected


@pytest.mark.parametrize(
    ("reply", "why", "grace"),
    [
        (LOST, "forgotten", 60),
        (MUTE, "silent", 3600),
        ({"lines": True, "stdout": lines(46, job_state="C")}, "forgotten", 60),
        ({"lines": True, "stdout": lines(46, job_state="U")}, "forgotten", 60),
    ],
)
def test_a_job_without_news_runs_until_the_grace_is_over(
    here: Path, reply: dict[str, Any], why: str, grace: int
) -> None:
    answer("qstat", **reply)
    assert verdict() == "running"
    begin_waiting(why, grace - 30)
    assert verdict() == "running"
    begin_waiting(why, grace + 30)
    done = status()
    assert done.stdout == "failed\n"
    assert why in done.stderr


def test_a_server_that_is_back_starts_a_new_grace(here: Path) -> None:
    begin_waiting("silent", 3590)
    answer("qstat", **reported(job_state="R", substate=42))
    assert verdict() == "running"
    answer("qstat", **MUTE)
    assert verdict() == "running"
    assert time.time() - float(Path(".snakemake/pbs/46.silent").read_text()) < 3000


def test_a_missing_qstat_is_no_answer(here: Path) -> None:
    Path("bin/qstat").write_text("#!/nowhere\n")
    assert verdict() == "running"
    assert Path(".snakemake/pbs/46.silent").exists()


GARBLED = [
    json.dumps({"Jobs": {"46.server": {"job_state": "F", "Exit_status": "what"}}}),
    json.dumps({"Jobs": {"46.server": {"job_state": "F", "Exit_status": [0]}}}),
    json.dumps({"Jobs": {"46.server": None}}),
    json.dumps({"Jobs": []}),
    json.dumps([1]),
    "5",
    "[" * 20_000,
    "\x00\x1b[31mJob Id: 46.server\n    job_state = \n",
    "<html>busy</html>",
]


@pytest.mark.parametrize("said", GARBLED, ids=range(len(GARBLED)))
def test_an_unreadable_answer_is_no_answer_for_a_while_and_the_job_s_own_code_counts(here: Path, said: str) -> None:
    answer("qstat", stdout=said)
    done = status()
    assert (done.returncode, done.stdout) == (0, "running\n")
    assert "Traceback" not in done.stderr
    Path(".snakemake/pbs/46.silent").write_text("0")
    assert verdict() == "failed"
    leave_exit_code(0)
    assert verdict() == "success"


def test_a_grace_whose_beginning_was_lost_begins_again(here: Path) -> None:
    answer("qstat", stdout="")
    assert verdict() == "running"
    Path(".snakemake/pbs/46.silent").write_text("")
    assert verdict() == "running"
    assert float(Path(".snakemake/pbs/46.silent").read_text()) > 0


@pytest.mark.parametrize("note", ["", "{", "[]", "5", "{}", '{"job": "46.server"}', '{"work": 1}'])
def test_a_note_that_cannot_be_read_is_none(here: Path, note: str) -> None:
    assert submit(job()).returncode == 0
    (noted,) = Path(".snakemake/pbs").glob("*.job")
    noted.write_text(note)
    done = submit(job())
    assert (done.returncode, done.stdout, done.stderr) == (0, "46.server\n", "")


@pytest.mark.parametrize("name", ["a b", "-x", "x;rm -rf ~", "$(id)", "../../x", "é\n#PBS -q all", "x" * 300])
def test_no_name_of_a_group_or_a_wildcard_is_more_than_a_name(here: Path, name: str) -> None:
    group = {"groupid": name, "jobid": name, "input": [], "threads": 1, "resources": {"mem_mb": 1}}
    for properties in (group, job(wildcards={"pairing": name, "shard": name})):
        assert submit(properties).returncode == 0
    for words in calls("qsub"):
        assert re.fullmatch(r"smk-[A-Za-z0-9._-]{1,11}", words[words.index("-N") + 1])
        log = Path(words[words.index("-o") + 1])
        assert log.parent == Path("logs/pbs").resolve()
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,204}", log.name)


# The job's script and its end


@pytest.mark.parametrize("variable", ["PBS_JOBID", "SLURM_JOB_ID"])
@pytest.mark.parametrize("code", [0, 3])
def test_a_job_leaves_its_exit_code_in_the_submitting_folder(
    here: Path, monkeypatch: pytest.MonkeyPatch, variable: str, code: int
) -> None:
    for name in ("PBS_JOBID", "SLURM_JOB_ID", "PBS_O_WORKDIR"):
        monkeypatch.delenv(name, raising=False)
    leave_environment()
    Path("script").write_text((PROFILE / "jobscript.sh").read_text().format(properties="{}", exec_job=f"(exit {code})"))
    start = here / "bin" if variable == "PBS_JOBID" else here
    environment = os.environ | {variable: "46.server", "PBS_O_WORKDIR": str(here)}
    done = subprocess.run(["bash", here / "script"], cwd=start, env=environment, capture_output=True, timeout=60)
    assert done.returncode == code
    assert Path(".snakemake/pbs/46.exit").read_text() == f"{code}\n"


@pytest.mark.parametrize(("walltime", "left"), [("7200", 7200), ("0", None), (None, None)])
def test_a_job_knows_what_it_is_told_and_when_its_walltime_ends(here: Path, walltime: str | None, left: int) -> None:
    leave_environment("export HF_HOME=/scratch/hub\n")
    wanted = 'echo "$HF_HOME ${TRIAGESIM_JOB_END:-0} $(date +%s) $TRIAGESIM_GAINED" > told'
    script = (PROFILE / "jobscript.sh").read_text().format(properties="{}", exec_job=wanted)
    given = {"PBS_JOBID": "46.server"} | ({"TRIAGESIM_WALLTIME": walltime} if walltime else {})
    subprocess.run(["bash", "-c", script], env=os.environ | given, check=True, timeout=60)
    home, end, now, gained = Path("told").read_text().split()
    assert (home, gained) == ("/scratch/hub", str(here / ".snakemake/pbs/46.gained"))
    assert (int(end) == 0) if left is None else (0 <= int(now) + left - int(end) < 60)


def leave_environment(text: str = "") -> None:
    """What submit.py leaves for the jobs."""
    Path(".snakemake/pbs").mkdir(parents=True)
    Path(".snakemake/pbs/environment.sh").write_text(text)


def test_a_job_that_is_told_to_stop_leaves_143(here: Path) -> None:
    leave_environment()
    script = (PROFILE / "jobscript.sh").read_text().format(properties="{}", exec_job="kill $$; echo went on")
    done = subprocess.run(
        ["bash", "-c", script], env=os.environ | {"PBS_JOBID": "46.server"}, capture_output=True, text=True, timeout=60
    )
    assert "went on" not in done.stdout
    assert Path(".snakemake/pbs/46.exit").read_text() == "143\n"


def test_cancelling_does_not_wait_for_a_slow_server(here: Path) -> None:
    slow = '#!/bin/sh\nwhile [ ! -e answering ]; do sleep 0.1; done; echo "$@" > deleted.new; mv deleted.new deleted\n'
    Path("bin/qdel").write_text(slow)
    subprocess.run([PROFILE / "cancel.sh", "46.server", "47.server"], check=True, timeout=30)
    assert not Path("deleted").exists()
    Path("answering").touch()
    wait_for_file(Path("deleted"))
    assert Path("deleted").read_text() == "46.server 47.server\n"


def wait_for_file(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.1)


# Through Snakemake


def snakemake(*words: str) -> list[str]:
    return [sys.executable, "-m", "snakemake", "--cores", "8", "--profile", "pbs", *words]


@pytest.fixture
def toy(here: Path) -> Iterator[Path]:
    """A two-rule workflow and a server that really runs what it is given; rule `first` waits for the file `release`."""
    install(here, qsub=RUNNING_QSUB, qstat=RUNNING_QSTAT)
    (here / "Snakefile").write_text(TOY)
    (here / "pbs").symlink_to(PROFILE)
    yield here
    (here / "release").touch()


def toy_command(*words: str, broken: str = "no", poll: int = 1) -> list[str]:
    quick = ["--seconds-between-status-checks", str(poll), "--latency-wait", "5", "--config", f"broken={broken}"]
    return snakemake(*words, *quick)


def run_toy(*words: str, broken: str = "no") -> subprocess.CompletedProcess[str]:
    return subprocess.run(toy_command(*words, broken=broken), capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_snakemake_runs_a_workflow_through_the_profile(toy: Path) -> None:
    (toy / "release").touch()
    done = run_toy()
    assert done.returncode == 0, done.stderr
    assert (toy / "second.txt").read_text() == "one\ntwo\n"
    first, second = calls("qsub")
    assert "select=1:ncpus=8:mem=128000mb:ngpus=1:gpu_model=H200" in first
    assert "walltime=01:30:00" in first
    assert "select=1:ncpus=1:mem=4000mb" in second
    assert sorted(path.name for path in (toy / "logs/pbs").iterdir()) == ["first.log", "second.log"]
    assert (toy / ".snakemake/pbs/2.exit").read_text() == "0\n"


@pytest.mark.slow
def test_snakemake_reports_a_job_that_failed(toy: Path) -> None:
    done = run_toy(broken="yes")
    assert done.returncode == 1
    assert "Error in rule first" in done.stderr
    assert "job 1.server failed: exit code 1" in done.stderr
    assert len(calls("qsub")) == 1


@pytest.mark.slow
def test_a_job_survives_the_kill_of_snakemake_and_is_not_submitted_twice(toy: Path) -> None:
    with start_toy() as killed:
        wait_for_file(toy / "started")
        os.killpg(killed.pid, signal.SIGKILL)
    assert run_toy("--unlock").returncode == 0
    with start_toy("--rerun-incomplete") as restarted:
        wait_for("job 1.server of an earlier run still does this", restarted)
        (toy / "release").touch()
        said = restarted.communicate(timeout=300)[1]
    assert restarted.returncode == 0, said
    assert (toy / "second.txt").read_text() == "one\ntwo\n"
    assert [words[words.index("-N") + 1] for words in calls("qsub")] == ["smk-first", "smk-second"]


@pytest.mark.slow
def test_an_interrupted_snakemake_deletes_its_jobs(toy: Path) -> None:
    # What a shell starts in the background inherits that SIGINT is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupted = start_toy(poll=10)  # while it polls, Snakemake has no list of what to cancel
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        wait_for_file(toy / "started")
        os.killpg(interrupted.pid, signal.SIGINT)
        interrupted.communicate(timeout=300)
    finally:
        interrupted.kill()
    wait_for_file(toy / "bin" / "qdel.calls")
    assert calls("qdel") == [["1.server"]]


def start_toy(*words: str, poll: int = 1) -> subprocess.Popen[str]:
    command = toy_command(*words, poll=poll)
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(words: str, process: subprocess.Popen[str]) -> None:
    assert process.stderr
    said = []
    for line in process.stderr:
        said.append(line)
        if words in line:
            return
    raise AssertionError("".join(said))


@pytest.mark.slow
def test_the_documented_command_plans_the_whole_run_from_a_fresh_copy(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns(".*", "results", "journal", "logs", "__pycache__", "benchmarks")
    shutil.copytree(ROOT, tmp_path / "copy", symlinks=True, ignore=ignored)
    done = subprocess.run(snakemake("-n"), cwd=tmp_path / "copy", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "simulate" in done.stdout
