"""A simulate job: the shards that it does on one set of engines, what it asks of a machine, and when it stops."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from actors import Puppet, a_case, personas
from triagesim.calls import Seat
from triagesim.config import check_config
from triagesim.demand import CPUS_PER_GPU, MB_OF_LLAMACPP, MB_OF_OTHERS, MB_PER_GPU, Demand, demand
from triagesim.drive import Plan, TooManyErrors, write_shards
from triagesim.engine import as_backend, close_backends
from triagesim.environment import GAINED, JOB_END, time_limit
from triagesim.episode import Setup
from triagesim.errors import StopRun
from triagesim.journal import shard_lock
from triagesim.pairing import resolve
from triagesim.personas import Pool
from triagesim.requests import Completion, Request

ROOT = Path(__file__).parents[1]


class Engine:
    """A backend that notes how often it was loaded, and answers as `Puppet` does.

    Args:
        sour: episodes whose name begins with this get no valid answer.
    """

    reads = "messages"
    local = True
    label = None
    spare = False

    def __init__(self, sour: str = "none") -> None:
        self.model = "engine"
        self.identity = {"model": "engine"}
        self.starts = 0
        self._puppet, self._sour = Puppet(), sour

    async def start(self) -> None:
        self.starts += 1

    async def complete(self, request: Request) -> Completion:
        spoilt = request.name.episode.startswith(self._sour)
        return Completion("{}" if spoilt else self._puppet.answer(request), model=self.model)

    async def close(self) -> None:
        pass


def plans(folder: Path, engine: Engine, shards: int = 3) -> list[Plan]:
    """Shards of two cases each, on one engine."""
    seat = Seat(as_backend(engine))
    pools = Pool(personas("nurse"), "nurse"), Pool(personas("patient"), "patient")
    setup = Setup({"nurse": seat, "patient": seat}, *pools, max_turns=3)
    return [
        Plan(
            [(a_case(f"{number}-{name}"), 0) for name in "ab"],
            setup,
            folder / f"{number}-of-{shards}.jsonl",
            folder / "journal",
            f"shard {number}",
            usage=folder / f"{number}-of-{shards}.json",
        )
        for number in range(1, shards + 1)
    ]


def written(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.json*")}


def test_shards_that_share_a_job_load_the_engine_once_and_give_the_same_bytes(tmp_path: Path) -> None:
    together, apart = Engine(), Engine()
    write_shards(plans(tmp_path / "together", together))
    for plan in plans(tmp_path / "apart", apart):
        write_shards([plan])
        close_backends()  # a job of its own
    assert (together.starts, apart.starts) == (1, 3)
    assert len(written(tmp_path / "together")) == 6
    assert written(tmp_path / "together") == written(tmp_path / "apart")


def test_shards_that_are_done_are_written_whatever_becomes_of_the_others(tmp_path: Path) -> None:
    with pytest.raises(TooManyErrors, match="shard 2: 2 of 2 episodes failed"):
        write_shards(plans(tmp_path, Engine(sour="2-")))
    assert {name for name in written(tmp_path) if name.endswith("l")} == {"1-of-3.jsonl", "3-of-3.jsonl"}


def test_a_shard_without_cases_is_written_empty_beside_others(tmp_path: Path) -> None:
    first, second, _ = plans(tmp_path, Engine())
    first.jobs = []
    write_shards([first, second])
    assert first.out.read_bytes() == b""
    assert len(second.out.read_bytes().splitlines()) == 2


def test_no_shard_of_a_job_is_begun_while_another_driver_holds_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine()
    made = plans(tmp_path, engine)
    holder, ours = os.pipe()
    child = os.fork()
    if child == 0:  # a lock of this process would let this process in
        with shard_lock(tmp_path / "journal/locks/3-of-3.lock"):
            os.write(ours, b"x")
            signal.pause()
        os._exit(0)
    os.read(holder, 1)
    monkeypatch.setattr("triagesim.journal.shard_lock.__wrapped__.__defaults__", (0.0,))
    try:
        with pytest.raises(StopRun, match="another driver works on this shard"):
            write_shards(made)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert engine.starts == 0
    assert written(tmp_path) == {}


# What a job asks for


def asks(*models: dict[str, Any]) -> Demand:
    """The demand of a pairing of these as nurse, patient and judge."""
    named = {f"m{number}": model for number, model in enumerate(models)}
    roles = dict(zip(("nurse", "patient", "judge"), [*named, "m0"][: max(2, len(named))], strict=False))
    config = check_config(
        {"data": {"source": "x.jsonl", "provenance": "synthetic"}, "models": named, "pairings": [roles]}
    )
    return demand(each.options for each in resolve(config, config.expanded()[0]).models.values())


AGENDA, HOSTED = {"backend": "agenda"}, {"backend": "openrouter", "model": "a/b"}
SMALL = {"backend": "llamacpp", "model": "smollm2-135m-instruct"}


def gpu_model(name: str, **options: int) -> dict[str, Any]:
    return {"backend": "vllm", "model": f"hub/{name}", **options}


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ([AGENDA], Demand(1, 0, MB_OF_OTHERS)),
        ([HOSTED, AGENDA], Demand(1, 0, MB_OF_OTHERS)),
        ([{**SMALL, "threads": 5}], Demand(5, 0, MB_OF_LLAMACPP)),
        ([gpu_model("a")], Demand(CPUS_PER_GPU, 1, MB_PER_GPU)),
        ([gpu_model("a"), gpu_model("b"), HOSTED], Demand(CPUS_PER_GPU, 1, MB_PER_GPU)),
        ([gpu_model("a", tensor_parallel_size=4)], Demand(4 * CPUS_PER_GPU, 4, 4 * MB_PER_GPU)),
        (
            [gpu_model("a", tensor_parallel_size=2, pipeline_parallel_size=2), gpu_model("b")],
            Demand(4 * CPUS_PER_GPU, 4, 4 * MB_PER_GPU),
        ),
        ([gpu_model("a"), SMALL], Demand(CPUS_PER_GPU, 1, MB_PER_GPU + MB_OF_LLAMACPP)),
    ],
)
def test_a_job_asks_for_what_its_models_take(models: list[dict[str, Any]], expected: Demand) -> None:
    assert asks(*models) == expected


PLANNED = {
    "models": {
        "agenda": {"backend": "agenda"},
        "big": gpu_model("a", tensor_parallel_size=2),
        "far": HOSTED,
        "small": {**SMALL, "threads": 6},
    },
    "pairings": [{"nurse": name, "patient": name} for name in ("agenda", "big", "far", "small")],
    "audio": {"max_dialogues": 0, "pairings": None},
    "shards": 4,
}


def planned(folder: Path, *words: str, **changes: Any) -> dict[str, str]:
    """What the plan says of the job of each pairing's first shard: its threads and resources."""
    (folder / "run.yaml").write_text(json.dumps(PLANNED | changes), encoding="utf-8")
    command = [sys.executable, "-m", "snakemake", "-n", "--cores", "8", *words, "--directory", str(folder)]
    done = subprocess.run(
        [*command, "--configfile", str(folder / "run.yaml")], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = [text for text in done.stdout.split("\nrule ")[1:] if text.startswith("simulate")]
    said = "\n".join(jobs)
    return {
        found["pairing"]: f"{found['threads'] or 1} {found['resources']}"
        for found in re.finditer(
            r"wildcards: pairing=(?P<pairing>\w+)(, shard=1-of-4)?\n( +threads: (?P<threads>\d+)\n)?"
            r" +resources: (?P<resources>.*)",
            said,
        )
    }


@pytest.mark.slow
def test_on_a_workstation_no_two_jobs_share_a_gpu_and_others_go_on_beside_one(tmp_path: Path) -> None:
    threads = {name: int(text.split()[0]) for name, text in planned(tmp_path).items()}
    assert threads == {"agenda": 1, "far": 1, "big": 5, "small": 8}


@pytest.mark.slow
def test_on_a_cluster_jobs_ask_for_cores_and_gpus_and_count_as_one_thread(tmp_path: Path) -> None:
    asked = planned(tmp_path, "--profile", str(ROOT / "pbs"))
    expected = {"agenda": (1, 0), "far": (1, 0), "big": (16, 2), "small": (6, 0)}
    assert asked.keys() == expected.keys()
    for name, (cores, gpus) in expected.items():
        assert asked[name].startswith("1 ")
        assert {f"ncpus={cores}", f"gpu={gpus}", "runtime=120"} <= set(asked[name].split(", "))


@pytest.mark.slow
def test_what_is_set_for_simulate_counts_where_shards_share_a_job(tmp_path: Path) -> None:
    given = ["--set-resources", "simulate:runtime=60", "simulate:gpu_model=H200"]
    asked = planned(tmp_path, "--profile", str(ROOT / "pbs"), *given, shards_per_job=3)
    assert {"gpu=2", "runtime=60", "gpu_model=H200"} <= set(asked["big"].split(", "))


# When a job stops


@pytest.mark.parametrize(
    ("left", "configured", "expected"),
    [
        (7200, None, 7200 - 300),  # five minutes before a two-hour walltime
        (3600, None, 3600 - 180),
        (60, None, 60 - 20),
        (7200, 600, 600),
        (60, 600, 60 - 20),
        (5, None, 0),
        (None, 600, 600),
        (None, None, None),
    ],
)
def test_a_batch_job_stops_in_time_before_its_walltime(
    monkeypatch: pytest.MonkeyPatch, left: int | None, configured: int | None, expected: int | None
) -> None:
    monkeypatch.delenv(JOB_END, raising=False)
    if left is not None:
        monkeypatch.setenv(JOB_END, str(time.time() + left))
    found = time_limit(configured)
    assert found is None if expected is None else found == pytest.approx(expected, abs=1)


def test_the_first_new_answer_is_noted_and_a_replay_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "replay"):
        monkeypatch.setenv(GAINED, str(tmp_path / name))
        write_shards(plans(tmp_path / "shards", Engine(), shards=1))
    assert (tmp_path / "first").exists()
    assert not (tmp_path / "replay").exists()


@pytest.mark.parametrize(("ending", "code", "kept"), [("raise StopRun('no credit')", 3, False), ("pause()", 75, True)])
def test_what_was_gained_counts_for_a_job_out_of_time_and_not_after_an_error(
    tmp_path: Path, ending: str, code: int, kept: bool
) -> None:
    gained = tmp_path / "gained"
    gained.touch()
    script = (
        "from signal import pause\nfrom triagesim.console import command\nfrom triagesim.drive import stoppable\n"
        f"from triagesim.errors import StopRun\ndef main():\n  with stoppable(0.2):\n    {ending}\ncommand(main)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow"), GAINED: str(gained)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert gained.exists() is kept
