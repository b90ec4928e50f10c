"""The workflow through `snakemake --cores 8 --profile pbs` against a real scheduler: Slurm with its PBS commands.

`tests/cluster/scheduler.sh install` brings the packages; the tests start and stop the scheduler themselves. Without it
they are skipped, but for CI, where that is an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fault_server import FaultServer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SCHEDULER = Path(__file__).with_name("scheduler.sh")
COMMANDS = ("munged", "slurmctld", "slurmd", "qsub", "qstat", "qdel")
COMMAND = ("snakemake", "--cores", "8", "--profile", "pbs")
QUICK = ("--seconds-between-status-checks", "1", "--latency-wait", "10")
NOT_COPIED = ("results", "journal", "logs", "tests", "benchmarks", "*.egg-info", "__pycache__", "build", ".*")
SHARD = "results/episodes/{}/{}-of-{}.jsonl"
FAR = SHARD.format("far", 1, 1)


def why_not() -> str | None:
    """Why there can be no scheduler here; None if there can."""
    if missing := [name for name in COMMANDS if not shutil.which(name)]:
        return f"no {', '.join(missing)}: run tests/cluster/scheduler.sh install, as root"
    return "the scheduler is started by root alone" if os.geteuid() else None


@pytest.fixture(scope="session", autouse=True)
def scheduler() -> Iterator[None]:
    """Slurm, running; stopped afterwards if it wasn't up before."""
    if reason := why_not():
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    said = subprocess.run([SCHEDULER, "start"], capture_output=True, text=True, timeout=120, check=True).stdout
    configuration = subprocess.run([SCHEDULER, "conf"], capture_output=True, text=True, check=True).stdout.strip()
    os.environ["SLURM_CONF"] = configuration
    yield
    if said.strip() == "started":
        subprocess.run([SCHEDULER, "stop"], capture_output=True, timeout=120, check=True)
    del os.environ["SLURM_CONF"]


def environment(**more: str) -> dict[str, str]:
    """The environment of somebody at the login node."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SNAKEMAKE", "TRIAGESIM_"))}
    return {**kept, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]), **more}


class Site:
    """A working folder at the cluster: the repository and a configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._older = {job for job, _, _ in queue()}

    def configure(self, **sections: Any) -> None:
        """Write the run's configuration: two cases, the baseline, one shard, unless said otherwise."""
        config = {
            "data": {"source": "resources/cases/examples.jsonl", "provenance": "synthetic", "select": {"sample": 2}},
            "models": {"agenda": {"backend": "agenda"}},
            "pairings": [{"nurse": "agenda", "patient": "agenda"}],
            "shards": 1,
            "audio": {"max_dialogues": 0},
            **sections,
        }
        (self.folder / "config/config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        """The documented command, begun; `words` follow it."""
        return subprocess.Popen(
            [*COMMAND, *QUICK, *words],
            cwd=self.folder,
            env=environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str, expect: int = 0, **more: str) -> str:
        """The documented command to its end; what it printed."""
        return finish(self.start(*words, **more), expect)

    def locally(self, *words: str) -> None:
        """The same workflow without the cluster."""
        done = subprocess.run(
            ["snakemake", "--cores", "2", *words], cwd=self.folder, env=environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def jobs(self, rule: str = "simulate") -> list[str]:
        """The ids of the jobs of a rule from this folder, oldest first."""
        known = {job for job, name, where in queue() if (where, name) == (str(self.folder), f"smk-{rule}")}
        return sorted(known - self._older, key=int)

    def driver(self, shard: str = "1-of-1") -> int:
        """The process that simulates a shard of the far pairing, or did so last."""
        return int((self.folder / f"journal/far/locks/{shard}.lock").read_text(encoding="utf-8").split()[1])

    def cut(self, server: FaultServer, *calls: int, shard: str = "1-of-1") -> None:
        """Let the driver's time be over when each of these calls has come; it never gets an answer."""

        def watch() -> None:
            for number in calls:
                server.wait_for(lambda number=number: len(server.asked) >= number, timeout=250)
                os.kill(self.driver(shard), signal.SIGALRM)

        threading.Thread(target=watch, daemon=True).start()

    def state(self, job: str) -> str:
        """Slurm's own word for how a job is, such as COMPLETED or TIMEOUT."""
        return shown(job)["JobState"]


def queue() -> list[list[str]]:
    """Id, name and folder of every job that Slurm knows, ended ones too."""
    command = ["squeue", "-h", "-t", "all", "-o", "%i %j %Z"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.split(" ", 2) for line in lines]


def finish(process: subprocess.Popen[str], expect: int = 0) -> str:
    said = process.communicate(timeout=280)[0]
    assert process.returncode == expect, said
    return said


def shown(job: str) -> dict[str, str]:
    """What Slurm shows of a job."""
    text = subprocess.run(["scontrol", "show", "job", "-dd", job], capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r"(\S+?)=(\S*)", text))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder in which cases and personas are there already."""
    folder = tmp_path_factory.mktemp("prepared") / "site"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
    site = Site(folder)
    site.configure()
    site.locally("results/cases/cases.csv", "results/personas/nurse.jsonl", "results/personas/patient.jsonl")
    return folder


@pytest.fixture
def site(prepared: Path, tmp_path: Path) -> Site:
    """A fresh copy of the prepared folder."""
    return Site(Path(shutil.copytree(prepared, tmp_path / "site", symlinks=True)))


def far(server: FaultServer) -> dict[str, Any]:
    """Sections of a configuration whose nurse is behind a server, one call at a time."""
    model = {"backend": "openai", "model": "m", "base_url": server.url, "local": True, "identity": "made by a test"}
    return {
        "models": {"agenda": {"backend": "agenda"}, "own": model},
        "pairings": [{"name": "far", "nurse": "own", "patient": "agenda", "max_turns": 4}],
        "runtime": {"concurrency": 1, "speculation": "off"},
    }


@pytest.fixture(scope="module")
def undisturbed(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The shard of the far pairing as an uninterrupted run without a cluster makes it."""
    site = Site(Path(shutil.copytree(prepared, tmp_path_factory.mktemp("undisturbed") / "site", symlinks=True)))
    with FaultServer() as server:
        site.configure(**far(server))
        site.locally(FAR)
        assert len(server.asked) > 14
    return (site.folder / FAR).read_bytes()


class Overrun:
    """A run of the far pairing whose seventh call never comes back, with a walltime of a minute.

    Args:
        hangs: whether its driver is stopped then, and so can't end before its walltime.
    """

    def __init__(self, folder: Path, hangs: bool) -> None:
        self.site = Site(folder)
        self._server = FaultServer("hang@7")
        with contextlib.ExitStack() as entered:
            entered.enter_context(self._server)
            self.site.configure(**far(self._server))
            self._running = self.site.start(FAR, "--set-resources", "simulate:runtime=1")
            self._leave = entered.pop_all()
        if hangs:
            threading.Thread(target=self._hang, daemon=True).start()

    def _hang(self) -> None:
        self._server.wait_for(lambda: len(self._server.asked) >= 7, timeout=200)
        os.kill(self.site.driver(), signal.SIGSTOP)

    def end(self) -> None:
        """Leave nothing behind where no test waited for it."""
        if self._running.poll() is None:
            os.killpg(self._running.pid, signal.SIGKILL)
            self._running.communicate()
            self._leave.close()

    def finish(self) -> tuple[Site, str, int]:
        """The site, what the run printed, and how often the server was asked for any one thing at most."""
        with self._leave:
            return self.site, finish(self._running), max(self._server.counts.values())


@pytest.fixture(scope="module", autouse=True)
def overrunning(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Overrun]]:
    """Runs that take more than a minute each, nearly all of it waiting: they begin before the first test."""
    folders = {name: tmp_path_factory.mktemp(name) / "site" for name in ("hanging", "waiting")}
    for folder in folders.values():
        shutil.copytree(prepared, folder, symlinks=True)
    runs = {name: Overrun(folder, hangs=name == "hanging") for name, folder in folders.items()}
    yield runs
    for run in runs.values():
        run.end()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_whole_run_gives_the_bytes_of_a_run_without_a_cluster(site: Site, tmp_path: Path) -> None:
    other = Site(Path(shutil.copytree(site.folder, tmp_path / "other", symlinks=True)))
    said = site.run()
    other.locally("results/metrics/summary.csv", "results/pool.jsonl")
    for part in ("cases", "episodes", "metrics", "pairings", "personas", "scores", "usage"):
        made = contents(other.folder / "results" / part)
        assert made
        assert made.items() <= contents(site.folder / "results" / part).items()
    assert (site.folder / "results/pool.jsonl").exists()
    assert "results/metrics/summary.csv" in said
    assert [site.state(job) for job in site.jobs()] == ["COMPLETED"]
    logs = {path.name for path in (site.folder / "logs/pbs").iterdir()}
    assert {"simulate.agenda.1-of-1.log", "score.agenda.1-of-1.log", "select_pool.log"} <= logs


def test_a_failing_job_fails_the_run_says_why_and_is_not_tried_again(site: Site) -> None:
    with FaultServer() as server:
        sections = far(server)
        sections["runtime"]["key_file"] = "nowhere/keys"
        site.configure(**sections)
        said = site.run(FAR, expect=1)
    assert "runtime.key_file: there is no file nowhere/keys" in said
    (job,) = site.jobs()
    assert f"job {job} failed: exit code 1" in said
    assert f"job {job} gained nothing or ended in an error, so no further one is submitted" in said
    assert not (site.folder / FAR).exists()


def test_a_shard_in_three_chunks_is_three_jobs_and_the_same_bytes(site: Site, undisturbed: bytes) -> None:
    with FaultServer("hang@7,14") as server:  # each time nothing more comes until the job's time is over
        sections = far(server)
        sections["runtime"]["time_limit"] = 12
        site.configure(**sections)
        said = site.run(FAR)
        assert max(server.counts.values()) == 2  # the two calls that hung, once more
        assert sum(count - 1 for count in server.counts.values()) == 2
    assert said.count("the time limit is over; every answer so far is kept") >= 2
    assert [site.state(job) for job in site.jobs()] == ["FAILED", "FAILED", "COMPLETED"]
    assert (site.folder / FAR).read_bytes() == undisturbed
    logs = sorted(path.name for path in (site.folder / "logs/pbs").iterdir())
    assert logs == [f"simulate.far.1-of-1.{part}log" for part in ("", "try-2.", "try-3.")]


def test_a_chunk_that_gained_nothing_ends_the_chain_and_a_new_start_goes_on(site: Site, undisturbed: bytes) -> None:
    with FaultServer("hang@7,8") as server:
        site.configure(**far(server))
        site.cut(server, 7, 8)
        said = site.run(FAR, expect=1)
        _, second = site.jobs()
        assert f"job {second} gained nothing or ended in an error, so no further one is submitted" in said
        assert "logs/pbs/simulate.far.1-of-1.try-2.log says why" in said
        site.run(FAR)
    assert len(site.jobs()) == 3
    assert (site.folder / FAR).read_bytes() == undisturbed


def test_a_finished_shard_is_not_touched_by_the_chunks_of_another(site: Site) -> None:
    done, going = (SHARD.format("far", number, 2) for number in (1, 2))
    data = {"source": "resources/cases/examples.jsonl", "provenance": "synthetic"}
    with FaultServer() as server:
        site.configure(**far(server), shards=2, data=data)
        site.locally(done)
        asked = set(server.counts)
    before = (site.folder / done).stat().st_mtime_ns
    with FaultServer("hang@7") as server:
        site.configure(**far(server), shards=2, data=data)
        site.cut(server, 7, shard="2-of-2")
        site.run(done, going)
        assert not asked & set(server.counts)
    assert len(site.jobs()) == 2
    assert (site.folder / done).stat().st_mtime_ns == before


def test_a_deleted_job_is_reported(site: Site) -> None:
    with FaultServer(held=True) as server:
        site.configure(**far(server))
        running = site.start(FAR)
        server.wait_for(lambda: len(server.asked) > 0)
        (job,) = site.jobs()
        subprocess.run(["qdel", job], check=True)
        said = finish(running, expect=1)
    assert f"job {job} failed" in said
    assert site.state(job) == "CANCELLED"
    assert site.jobs() == [job]


def test_a_job_outlives_the_kill_of_snakemake_and_is_taken_over(site: Site, undisturbed: bytes) -> None:
    with FaultServer(held=True) as server:
        site.configure(**far(server))
        killed = site.start(FAR)
        server.wait_for(lambda: len(server.asked) > 0)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.communicate(timeout=60)
        (job,) = site.jobs()
        site.run("--unlock")
        restarted = site.start(FAR)
        assert restarted.stdout
        said = ""
        while "taken over" not in said:
            said = restarted.stdout.readline()
            assert said, "the restarted run ended without it"
        assert f"job {job} of an earlier run still does this, taken over" in said
        server.release()
        finish(restarted)
        assert set(server.counts.values()) == {1}
    assert site.jobs() == [job]
    assert (site.folder / FAR).read_bytes() == undisturbed


def test_shards_that_share_a_job_are_cut_and_go_on_as_one(site: Site, tmp_path: Path) -> None:
    shards = [SHARD.format("far", number, 4) for number in range(1, 5)]
    data = {"source": "resources/cases/vignettes.jsonl", "provenance": "synthetic", "select": {"sample": 6}}
    other = Site(Path(shutil.copytree(site.folder, tmp_path / "other", symlinks=True)))
    with FaultServer() as server:
        other.configure(**far(server), shards=4, data=data)
        other.locally(*shards)
    with FaultServer("hang@20") as server:
        site.configure(**far(server), shards=4, shards_per_job=4, data=data)
        site.cut(server, 20, shard="4-of-4")
        site.run(*shards)
        assert sum(count - 1 for count in server.counts.values()) == 1
    assert [site.state(job) for job in site.jobs("simulate_1")] == ["FAILED", "COMPLETED"]
    assert contents(site.folder / "results/episodes") == contents(other.folder / "results/episodes")
    assert contents(site.folder / "results/usage") == contents(other.folder / "results/usage")


def test_a_driver_that_hangs_is_ended_by_the_walltime_and_the_next_job_goes_on(
    overrunning: dict[str, Overrun], undisturbed: bytes
) -> None:
    site, said, most = overrunning["hanging"].finish()
    first, second = site.jobs()
    assert (site.state(first), site.state(second)) == ("TIMEOUT", "COMPLETED"), said
    assert most == 2
    assert (site.folder / FAR).read_bytes() == undisturbed


def test_a_job_stops_by_itself_before_its_walltime(overrunning: dict[str, Overrun], undisturbed: bytes) -> None:
    site, said, most = overrunning["waiting"].finish()
    first, second = site.jobs()
    assert (site.state(first), site.state(second)) == ("FAILED", "COMPLETED"), said
    assert "the time limit is over; every answer so far is kept" in said
    assert most == 2
    assert (site.folder / FAR).read_bytes() == undisturbed


def test_no_key_reaches_the_scheduler_and_the_job_has_it_all_the_same(site: Site) -> None:
    login, kept = "sk-of-the-login-shell-1234", "sk-of-the-file-5678"
    (site.folder / ".env").write_text(f"OPENAI_API_KEY={kept}\n", encoding="utf-8")
    with FaultServer(held=True) as server:
        site.configure(**far(server))
        running = site.start(
            FAR, "--set-resources", "simulate:gpu=1", OPENAI_API_KEY=login, HF_TOKEN=login, HF_HOME="/scratch/hub"
        )
        server.wait_for(lambda: len(server.asked) > 0)
        (job,) = site.jobs()
        record = shown(job)
        assert record["TresPerNode"] == "gres:gpu:1"
        qstat = subprocess.run(["qstat", "-f", job], capture_output=True, text=True, check=True).stdout
        script = subprocess.run(["scontrol", "write", "batch_script", job, "-"], capture_output=True, text=True).stdout
        inside = Path("/proc", str(site.driver()), "environ").read_text(encoding="utf-8")
        server.release()
        finish(running)
        assert {call.authorization for call in server.asked} == {f"Bearer {kept}"}
    told = {"record": json.dumps(record), "qstat": qstat, "script": script, "environment": inside}
    base = Path(os.environ["SLURM_CONF"]).parent
    kinds = [base / "state", base / "spool", site.folder / ".snakemake", site.folder / "logs", site.folder / "journal"]
    told |= {
        str(path): path.read_text(errors="replace") for kind in kinds for path in kind.rglob("*") if path.is_file()
    }
    assert "HF_HOME=/scratch/hub" in inside
    assert [name for name, text in told.items() if login in text or kept in text] == []


def test_forty_jobs_are_done_and_each_once(site: Site) -> None:
    site.configure(shards=40, data={"source": "resources/cases/vignettes.jsonl", "provenance": "synthetic"})
    shards = [SHARD.format("agenda", number, 40) for number in range(1, 41)]
    site.run(*shards)
    assert [site.state(job) for job in site.jobs()] == ["COMPLETED"] * 40
    episodes = [line for shard in shards for line in (site.folder / shard).read_text(encoding="utf-8").splitlines()]
    assert len(episodes) == 48
