#!/usr/bin/env python3
"""Submit one Snakemake job script through qsub, and print the job's id and nothing else.

A Snakemake that was killed has forgotten its jobs and would submit them again. So each job that is submitted is noted
under STATE, and one that still waits or runs and does just this work is taken over instead.

A job is tried again (the profile's `retries`) only if its last try gained something and ended for want of time or with
its machine: a further two-hour chunk of a long shard, not the same error once more.

The server gets no variable of the environment but the walltime: anybody may read there what qsub exports. What
environment.txt names goes into a file that only its owner can read, and the job reads that.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from status import FORGOTTEN, SILENT, STATE, is_live, number

LOGS = Path("logs/pbs")
NAMES = Path(__file__).resolve().with_name("environment.txt")
ENVIRONMENT = STATE / "environment.sh"
SECRET = re.compile("key|token|secret|passw|credential|cookie", re.I)
LOGIN_IN_URL = re.compile(r"://[^/\s]*:[^/\s]*@")


def digest(value: object) -> str:
    """A short name for what ``value`` holds."""
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:24]


def read_properties(script: Path) -> dict[str, Any]:
    """What Snakemake wrote about the job into its script."""
    found = re.search(r"^# properties = (.*)$", script.read_text(encoding="utf-8"), re.M)
    if not found:
        sys.exit(f"{script}: no line '# properties = ...': the profile's jobscript.sh must keep it")
    properties: dict[str, Any] = json.loads(found[1])
    return properties


def title(job: dict[str, Any]) -> str:
    """The job in words: its rule and wildcards, or its group."""
    words = [job["rule"], *job["wildcards"].values()] if "rule" in job else [job["groupid"], job["jobid"]]
    return plain(".".join(map(str, words)))[:200]


def plain(text: str) -> str:
    """A text as a name that every file system and server takes."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)


def attempt(job: dict[str, Any]) -> int:
    """Which try of this run it is, from 1."""
    return int(job["resources"].get("attempt", 1))


def log_of(job: dict[str, Any]) -> Path:
    """Where the server puts what the job prints: one file a try."""
    return LOGS / f"{title(job)}{f'.try-{attempt(job)}' if attempt(job) > 1 else ''}.log"


def note_of(job: dict[str, Any]) -> Path:
    """Where the submitted job is noted: one place for a rule and its wildcards, or a group."""
    parts = [job["rule"], job["wildcards"]] if "rule" in job else [job["groupid"], job["jobid"]]
    return STATE / f"{digest(parts)}.job"


def work_of(job: dict[str, Any]) -> str:
    """A hash of what the job works on. Two jobs with the same one make the same files."""
    inputs = [Path(each) for each in job["input"] or []]  # Snakemake names none of more than 100
    times = [(str(each), each.stat().st_mtime_ns if each.exists() else None) for each in inputs]
    return digest([times, job.get("params")])


def is_pbs_pro() -> bool:
    """Whether the server speaks `select`: PBS Pro and OpenPBS do, Torque and Slurm's qsub don't."""
    said = subprocess.run(["qstat", "--version"], capture_output=True, text=True)
    return "pbs_version" in said.stdout + said.stderr


def hms(minutes: float) -> str:
    """Minutes as HH:MM:SS."""
    seconds = round(minutes * 60)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def seconds(job: dict[str, Any]) -> int:
    """The walltime that the job asks for; 0 where the server decides."""
    return round(job["resources"].get("runtime", 0) * 60)


def limits(job: dict[str, Any], pbs_pro: bool) -> list[str]:
    """The job's resources as `-l` options."""
    resources = job["resources"]
    cpus, gpus = max(job["threads"], resources.get("ncpus", 1)), resources.get("gpu", 0)
    memory = [f"mem={resources['mem_mb']}mb"]
    walltime = [f"walltime={hms(resources['runtime'])}"] if "runtime" in resources else []
    model = resources.get("gpu_model") if gpus else None
    if not pbs_pro:
        if model:
            print(f"gpu_model={model} is not passed on: this qsub has no select; name a queue instead", file=sys.stderr)
        nodes = ":".join([f"nodes=1:ppn={cpus}", *([f"gpus={gpus}"] if gpus else [])])
        return ["-l", ",".join([nodes, *memory, *walltime])]  # Slurm's qsub reads the last -l only
    chunk = [f"select=1:ncpus={cpus}", *memory]
    chunk += [f"ngpus={gpus}"] if gpus else []
    chunk += [f"gpu_model={model}"] if model else []
    return [word for limit in (":".join(chunk), *walltime) for word in ("-l", limit)]


def umask() -> int:
    """What this process takes from the mode of new files."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def command(job: dict[str, Any], script: Path, pbs_pro: bool) -> list[str]:
    """The whole call of qsub."""
    name = plain(f"smk-{job.get('rule', job.get('groupid'))}")[:15]  # older servers take no longer name
    log = log_of(job).resolve()
    # With -v, Slurm's qsub exports nothing else; the others don't anyway.
    options = ["-v", f"TRIAGESIM_WALLTIME={seconds(job)}", "-S", "/bin/bash", "-r", "n", "-N", name]
    # Data that isn't open makes Snakemake's files the owner's alone; the server's log must not be looser.
    options += ["-j", "oe", "-o", str(log), "-W", f"umask={umask():03o}", *limits(job, pbs_pro)]
    for option, resource in (("-q", "queue"), ("-P", "project")):
        if job["resources"].get(resource):
            options += [option, str(job["resources"][resource])]
    return ["qsub", *options, str(script)]


def environment() -> str:
    """Shell lines that set what environment.txt names, as far as it is set here.

    A name with `*` stands for all that fit, but for those that look like a secret. So does a value with a login in it.
    """
    lines = (line.split("#")[0].strip() for line in NAMES.read_text(encoding="utf-8").splitlines())
    patterns = [line for line in lines if line]
    for name in patterns:
        if SECRET.search(name):
            sys.exit(f"{NAMES}: {name} looks like a secret; jobs read keys from .env or runtime.key_file")
    wanted = {name for pattern in patterns for name in fnmatch.filter(os.environ, pattern)}
    fit = sorted(name for name in wanted if not SECRET.search(name) and not LOGIN_IN_URL.search(os.environ[name]))
    return "".join(f"export {name}={shlex.quote(os.environ[name])}\n" for name in fit)


def write_environment() -> None:
    """Put the jobs' environment where they find it and nobody else may read it."""
    text = environment()
    if ENVIRONMENT.exists() and ENVIRONMENT.read_text(encoding="utf-8") == text:
        return
    new = ENVIRONMENT.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(ENVIRONMENT)


def last_job(job: dict[str, Any]) -> dict[str, Any] | None:
    """The note of the job that last did this; None without one, or where it can't be read."""
    try:
        note: dict[str, Any] = json.loads(note_of(job).read_text())
        return {key: note[key] for key in ("job", "work", "log")}
    except (OSError, ValueError, LookupError, TypeError):
        return None


def check_gain(job: dict[str, Any]) -> None:
    """Refuse another try after one that got no further or ended in an error of its own."""
    note = last_job(job)
    if attempt(job) > 1 and note is not None and not (STATE / f"{number(note['job'])}.gained").exists():
        sys.exit(
            f"{title(job)}: job {note['job']} gained nothing or ended in an error, so no further one is "
            f"submitted; {note['log']} says why. Mend that and run again"
        )


def adopted(job: dict[str, Any]) -> str | None:
    """The id of a live job of an earlier run that does the same work; None if none is live.

    Exits with an error if one is live that writes the same files from other inputs or parameters.
    """
    note = last_job(job)
    if note is None or not is_live(note["job"]):
        return None
    if note["work"] != work_of(job):
        sys.exit(
            f"{title(job)}: job {note['job']} of an earlier run is still live and makes the same files from other "
            f"inputs or parameters; wait for it or stop it (qdel {note['job']}), then run again"
        )
    print(f"{title(job)}: job {note['job']} of an earlier run still does this, taken over", file=sys.stderr)
    return str(note["job"])


def submit(job: dict[str, Any], script: Path) -> str:
    """Hand the job to qsub, note it and return its id."""
    for folder in (LOGS, STATE):
        folder.mkdir(parents=True, exist_ok=True)
    check_gain(job)
    write_environment()
    work = work_of(job)
    done = subprocess.run(command(job, script, is_pbs_pro()), capture_output=True, text=True)
    ids = re.findall(r"^\s*(\d+(?:\.\S+)?)\s*$", done.stdout, re.M)
    if done.returncode or not ids:
        sys.exit(f"{title(job)}: qsub failed with exit code {done.returncode}: {done.stdout}{done.stderr}".rstrip())
    new_id: str = ids[-1]
    note = note_of(job).with_suffix(".new")
    note.write_text(json.dumps({"job": new_id, "work": work, "log": str(log_of(job))}))
    note.replace(note_of(job))
    for kind in ("exit", "gained", SILENT, FORGOTTEN):  # of an older job, where a server counts from 1 again
        old = STATE / f"{number(new_id)}.{kind}"
        if old.exists() and old.stat().st_mtime < script.stat().st_mtime:
            old.unlink()
    return new_id


def main() -> None:
    """Submit the script that is named on the command line, or take over the job that already does its work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # between qsub and the note, Ctrl-C would lose a job
    script = Path(sys.argv[1])
    job = read_properties(script)
    print(adopted(job) or submit(job, script))


if __name__ == "__main__":
    main()
