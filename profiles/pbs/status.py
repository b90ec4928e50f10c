#!/usr/bin/env python3
"""Say of one PBS job whether it is running, success or failed.

Snakemake ends the whole workflow if this exits with anything but 0, so a doubt counts as running, for a while.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

STATE = Path(".snakemake/pbs")
SILENT, FORGOTTEN = "silent", "forgotten"
GRACE_S = {SILENT: 3600, FORGOTTEN: 60}  # a server restarts; a shared file system shows an exit file late
ENDED = {"F", "C", "X"}
BY_ITSELF = 92  # substate of a job that simply ended: a deleted one has 91, and often exit status 0


class Answer(NamedTuple):
    """What the server says of a job; its state is PBS's letter, SILENT (no answer) or FORGOTTEN (unknown job)."""

    state: str
    code: int | None = None
    substate: int | None = None
    comment: str = ""


def number(job: str) -> str:
    """The part of an id that qsub, qstat and the job itself agree on (`46` of `46.server`)."""
    return job.split(".")[0]


def attributes(text: str, job: str) -> dict[str, Any]:
    """The attributes that `qstat -f` printed for ``job``, keys in lower case; empty if it isn't there.

    Read as JSON, else line by line: Torque knows no JSON, some servers break theirs on odd environment variables, and
    Slurm's qstat also prints job 4 when it is asked for job 46.
    """
    try:
        (found,) = json.loads(text)["Jobs"].values()
        return {key.lower(): value for key, value in found.items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        blocks = re.split(r"^Job Id:\s*", text, flags=re.M)
        block = next((each for each in blocks if re.match(rf"{re.escape(number(job))}\b", each)), blocks[0])
        pairs = re.findall(r'\b(job_state|substate|exit_status|comment)"?\s*[:=]\s*"?([^"\n]*)', block, re.I)
        return {key.lower(): value.strip(" ,") for key, value in reversed(pairs)}


def ask(job: str) -> Answer:
    """Ask the server, in PBS Pro's way and, where qstat doesn't know that, in Torque's."""
    for options in (["-x", "-f", "-F", "json"], ["-f"]):
        try:
            command = ["qstat", *options, job]
            reply = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            return Answer(SILENT)
        said = attributes(reply.stdout, job)
        if said.get("job_state"):
            try:
                code, substate = (int(said[key]) if key in said else None for key in ("exit_status", "substate"))
            except (TypeError, ValueError):
                print(f"no status of job {job}: qstat says {said!r:.300}", file=sys.stderr)
                return Answer(SILENT)
            # Slurm's qstat calls a job U that ran out of memory or lost its node.
            state = "C" if options == ["-f"] and said["job_state"] == "U" else str(said["job_state"])
            return Answer(state, code, substate, str(said.get("comment", "")))
        if reply.returncode in (35, 153) or "Unknown Job" in reply.stderr:
            return Answer(FORGOTTEN)
        if not re.search("unknown option|usage", reply.stdout + reply.stderr, re.I):
            break
    return Answer(SILENT)


def exit_code(job: str) -> int | None:
    """The exit code that the job script left at its end; None until then."""
    try:
        return int((STATE / f"{number(job)}.exit").read_text())
    except (OSError, ValueError):
        return None


def is_live(job: str) -> bool:
    """Whether the job still waits or runs, as far as anybody can tell."""
    return exit_code(job) is None and ask(job).state not in ENDED | {FORGOTTEN}


def in_grace(job: str, why: str) -> bool:
    """Whether the job has been SILENT or FORGOTTEN for less than the grace; the first call starts it."""
    marker = STATE / f"{number(job)}.{why}"
    try:
        began = float(marker.read_text())
    except (OSError, ValueError):  # it isn't there, or a kill left it empty
        began = time.time()
        STATE.mkdir(parents=True, exist_ok=True)
        marker.write_text(str(began))
    return time.time() - began < GRACE_S[why]


def verdict(job: str) -> str:
    """`running`, `success` or `failed`; the reason of a failure goes to stderr."""
    said = ask(job)
    code = exit_code(job) if said.code is None else said.code
    by_itself = said.state != "F" or said.substate in (None, BY_ITSELF)
    if said.state not in ENDED | set(GRACE_S):
        for why in GRACE_S:
            (STATE / f"{number(job)}.{why}").unlink(missing_ok=True)
        if said.state != "Q" or "can never run" not in said.comment.lower():
            return "running"
        subprocess.run(["qdel", job], capture_output=True, timeout=30)
        reason = said.comment
    elif code is None and by_itself:
        why = SILENT if said.state == SILENT else FORGOTTEN
        if in_grace(job, why):
            return "running"
        reason = f"no exit code, and the server has been {why} about it for {GRACE_S[why]} s"
    elif code == 0 and by_itself:
        return "success"
    else:
        reason = said.comment or f"exit code {code}"
    print(f"job {job} failed: {reason} (its output is in logs/pbs)", file=sys.stderr)
    return "failed"


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for Snakemake, which cancels the jobs
    try:
        print(verdict(sys.argv[1]))
    except Exception as error:
        print(f"no status of job {sys.argv[1:]}: {error!r}", file=sys.stderr)
        print("running")
