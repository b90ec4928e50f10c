"""VLLM without an engine: what it is, what it refuses, what it would start with; and the real one, where there is one.

The real engine's tests (`tests/real_vllm/real_engine.py`) run under the Python of an environment that was made with
`envs/vllm-cpu.txt`: `TRIAGESIM_VLLM_PYTHON`, else `.venv-vllm` in the repository.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triagesim import VLLM
from triagesim.answers import PatientReply
from triagesim.backends import load_backend, orphans
from triagesim.backends.agenda import Agenda
from triagesim.backends.vllm import MEMORY, split_memory
from triagesim.backends.vllm_engine import device_defaults
from triagesim.errors import InputError
from triagesim.jsonl import digest
from triagesim.requests import CallName, Request

ROOT = Path(__file__).parent.parent
#: Seconds in which a process that should end has ended.
GONE = 20.0
#: Seconds that all tests on the real engine may take.
HUNG = 1800

REAL = "tests/real_vllm/real_engine.py"
PYTHON = Path(os.environ.get("TRIAGESIM_VLLM_PYTHON", ROOT / ".venv-vllm" / "bin" / "python")).absolute()


def a_folder(path: Path, **files: str | bytes) -> Path:
    """A model's folder; a file is called as its key with the last _ as the dot."""
    path.mkdir(parents=True)
    content = {"config_json": "{}", "model_safetensors": bytes(100_000), **files}
    for name, value in content.items():
        data = value.encode() if isinstance(value, str) else value
        (path / ".".join(name.rsplit("_", 1))).write_bytes(data)
    return path


def test_a_hub_id_keeps_its_name_and_any_colon_in_it() -> None:
    backend = load_backend("vllm:org/model-7b:v2", max_model_len=4096)
    assert isinstance(backend, VLLM)
    assert backend.model == "vllm:org/model-7b:v2"
    assert (backend.local, backend.reads, backend.label, backend.spare) == (True, "messages", None, True)


@pytest.mark.parametrize(
    "options",
    [
        {"max_model_len": 2048},
        {"quantization": "fp8"},
        {"revision": "v2"},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"max_string": 100},
        {"enforce_eager": True},
    ],
)
def test_what_can_change_an_answer_is_identity(options: dict[str, Any]) -> None:
    assert digest(VLLM("org/model", **options).identity) != digest(VLLM("org/model").identity)


def test_where_and_how_fast_it_runs_is_no_identity() -> None:
    options = {
        "gpu_memory_utilization": 0.4,
        "tensor_parallel_size": 2,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 99,
    }
    assert VLLM("org/model", **options, max_model_len=None).identity == VLLM("org/model").identity


def test_a_folder_goes_by_its_name_and_content_wherever_it_lies(tmp_path: Path) -> None:
    here, there = (VLLM(str(a_folder(tmp_path / place / "own-7b"))) for place in ("a", "b"))
    assert here.model == "vllm:own-7b"
    assert here.identity == there.identity
    assert str(tmp_path) not in json.dumps(here.identity)
    assert here.arguments["model"] == str(tmp_path / "a" / "own-7b")


@pytest.mark.parametrize(
    "change",
    [
        {"config_json": '{"hidden_size": 2}'},
        {"generation_config_json": '{"temperature": 0.6}'},
        {"chat_template_jinja": "{{ messages }}"},
        {"model_safetensors": bytes(100_001)},
        {"model_safetensors": bytes(99_990) + b"fine-tuned"},
    ],
)
def test_another_model_in_the_same_place_is_another_one(tmp_path: Path, change: dict[str, Any]) -> None:
    base = VLLM(str(a_folder(tmp_path / "a" / "model"))).identity
    assert VLLM(str(a_folder(tmp_path / "b" / "model", **change))).identity != base


def test_a_readme_in_the_folder_is_no_identity(tmp_path: Path) -> None:
    base = VLLM(str(a_folder(tmp_path / "a" / "model"))).identity
    assert VLLM(str(a_folder(tmp_path / "b" / "model", README_md="words"))).identity == base


@pytest.mark.parametrize("path", ["/no/such/folder", "./gone", "~/gone-model"])
def test_a_path_that_is_no_folder_is_refused(path: str) -> None:
    with pytest.raises(InputError, match="there is no model folder"):
        VLLM(path)


def test_an_unknown_sampling_option_is_an_error_that_lists_the_known() -> None:
    request = Request(CallName("a-0", "nurse", 1), "nurse", [], PatientReply, {"temprature": 1}, 1)
    with pytest.raises(InputError, match="'temprature'; known are frequency_penalty, max_tokens"):
        asyncio.run(VLLM("org/model").complete(request))


def test_answers_keep_white_space_out_unless_the_user_says_otherwise() -> None:
    given = VLLM("org/model", structured_outputs_config={"backend": "guidance"}).arguments
    assert given["structured_outputs_config"] == {"backend": "guidance", "disable_any_whitespace": True}
    assert VLLM("org/model").arguments["structured_outputs_config"]["backend"] == "xgrammar"


def test_prompts_are_read_whole_on_a_cpu_alone() -> None:
    assert device_defaults(cpu=True)["enable_chunked_prefill"] is False
    assert "enable_chunked_prefill" not in device_defaults(cpu=False)


def shares(*backends: Any) -> list[float | None]:
    """What `split_memory` makes of them."""
    split_memory(backends)
    return [backend.arguments.get("gpu_memory_utilization") for backend in backends if isinstance(backend, VLLM)]


def test_models_share_the_memory_evenly_and_asking_twice_changes_nothing() -> None:
    nurse, patient, judge = VLLM("org/a"), VLLM("org/b"), VLLM("org/c")
    assert shares(nurse) == [MEMORY]
    assert shares(nurse, patient, judge, Agenda(), nurse) == shares(nurse, patient, judge, nurse)
    assert shares(nurse, patient, judge) == [pytest.approx(0.3)] * 3


def test_a_share_that_the_user_gave_stays_and_the_others_get_the_rest() -> None:
    given, nurse, patient = VLLM("org/a", gpu_memory_utilization=0.5), VLLM("org/b"), VLLM("org/c")
    assert shares(given, nurse, patient) == [0.5, pytest.approx(0.2), pytest.approx(0.2)]


def test_two_models_that_the_user_gave_nothing_left_for_are_an_error() -> None:
    with pytest.raises(InputError, match=r"org/b: the other models take 0\.88 of the device's memory"):
        split_memory([VLLM("org/a", gpu_memory_utilization=0.88), VLLM("org/b")])


def test_a_missing_package_is_an_error_that_says_how_to_install_it(tmp_path: Path) -> None:
    code = (
        "import sys, asyncio\n"
        "sys.modules['vllm'] = None\n"
        "from triagesim.backends.vllm import VLLM\n"
        "assert 'torch' not in sys.modules\n"
        "try: asyncio.run(VLLM('org/model').start())\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow"), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.startswith("InputError backend vllm needs the package vllm: pip install vllm")
    assert "envs/vllm-cpu.txt" in done.stdout
    assert not list(tmp_path.iterdir())


def test_closing_needs_no_start() -> None:
    asyncio.run(VLLM("org/model").close())


# Starts a process with the mark that starts one without; prints their numbers when both are there.
PARENT = """
import os, subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
print(os.getpid(), subprocess.Popen(sleep, env={}).pid, flush=True)
time.sleep(600)
"""
OWNER = """
import os, subprocess, sys
stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
watcher = subprocess.Popen([sys.executable, "-I", "-S", sys.argv[1], str(os.getpid()), "a-mark", sys.argv[3]])
marked = {**os.environ, "TRIAGESIM_ENGINE": "a-mark"}
parent = subprocess.Popen([sys.executable, "-c", sys.argv[2]], env=marked, stdout=subprocess.PIPE, text=True)
print(stranger.pid, watcher.pid, parent.stdout.readline(), flush=True)
input()
"""


def wait_for(condition: Callable[[], bool]) -> None:
    """Fail when it doesn't come true."""
    deadline = time.monotonic() + GONE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ignores(process: int, number: signal.Signals) -> bool:
    """Whether a process has chosen to ignore a signal."""
    [mask] = [line.split()[1] for line in orphans.read(process, "status").splitlines() if line.startswith(b"SigIgn")]
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_an_owner_that_is_killed_takes_its_marked_processes_along_and_no_other(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, orphans.__file__, PARENT, str(a_folder(tmp_path / "left"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        stranger, *processes = map(int, owner.stdout.readline().split())
        assert len(processes) == 3
        assert all(map(orphans.start_of, [stranger, *processes]))
        # A batch system sends SIGTERM to all of a job.
        wait_for(lambda: ignores(processes[0], signal.SIGTERM))
        os.kill(processes[0], signal.SIGTERM)
        owner.kill()
    wait_for(lambda: not any(map(orphans.start_of, processes)))
    assert not (tmp_path / "left").exists()
    assert orphans.start_of(stranger)
    os.kill(stranger, signal.SIGKILL)


def test_a_process_is_known_after_its_parent_died_and_nobody_else_is_taken_for_it() -> None:
    marked = {**os.environ, "TRIAGESIM_ENGINE": "b-mark"}
    family = orphans.Family(os.getpid(), "b-mark")
    with subprocess.Popen([sys.executable, "-c", PARENT], env=marked, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        processes = list(map(int, parent.stdout.readline().split()))
        family.look()
        parent.kill()
    assert family.alive() == processes[1:]
    family.kill()
    assert not any(map(orphans.start_of, processes))


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason=f"no vLLM environment: {PYTHON} isn't there (see CONTRIBUTING.md)")
def test_the_real_engine_does_what_is_promised() -> None:
    subprocess.run([PYTHON, "tests/make_vllm_model.py"], cwd=ROOT, check=True, timeout=HUNG)
    model = PYTHON.parent.parent / "models" / "smollm2-135m-instruct"
    command = [
        PYTHON,
        "-m",
        "pytest",
        "-o",
        "addopts=",
        "--confcutdir=tests/real_vllm",  # the tests' own conftest.py needs what this environment hasn't
        "-p",
        "no:cacheprovider",
        "-ra",
        "tests/real_vllm/real_engine.py",
    ]
    environment = {**os.environ, "TRIAGESIM_VLLM_MODEL": str(model)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HUNG, check=False)
    assert done.returncode == 0, done.stdout[-20_000:]
