"""What VLLM does with a real engine and a small real model; `tests/test_vllm.py` runs this where vLLM is installed.

TRIAGESIM_VLLM_MODEL=<folder> python -m pytest -o addopts= tests/real_vllm/real_engine.py
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from actors import a_case, personas
from triagesim import VLLM
from triagesim.answers import PatientReply, nurse_step
from triagesim.backends import orphans
from triagesim.calls import Seat
from triagesim.cases import VITALS
from triagesim.engine import close_backends, loop, ready
from triagesim.episode import Setup
from triagesim.errors import AnswerError, BackendError, InputError, StopRun
from triagesim.judging import Appearance, Edit, InSitu, LineCheck, NurseLineCheck, Reading, Script
from triagesim.personas import Pool
from triagesim.requests import Answer, CallName, Completion, Request
from triagesim.resources import SCHEMAS
from triagesim.simulation import run as play

MODEL = os.environ["TRIAGESIM_VLLM_MODEL"]
DRIVER = Path(__file__).with_name("driver.py")
#: Seconds after which something that should end has hung.
HUNG = 180
#: Seconds in which a stopped run is gone, and what a killed one leaves.
GONE = 10.0
CONTEXT = 3072
OPTIONS: dict[str, Any] = {"max_model_len": CONTEXT, "gpu_memory_utilization": 0.2, "enforce_eager": True}


def ask(
    answer: type[Answer], text: str = "Nurse: What brings you in today?", seed: int = 1, **sampling: Any
) -> Request:
    """A request."""
    name = CallName("case-1-0", "nurse", turn=seed)
    return Request(name, "nurse", [{"role": "user", "content": text}], answer, sampling, seed)


def on_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine on the engine loop."""
    return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, HUNG), loop()).result()


def wait_until_gone(processes: list[int], within: float) -> None:
    """Fail when one of the processes still runs then."""
    deadline = time.monotonic() + within
    while left := [process for process in processes if orphans.start_of(process) is not None]:
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def backend() -> Iterator[VLLM]:
    """An engine that the tests share, until the last one closes it."""
    backend = VLLM(MODEL, max_string=60, **OPTIONS)
    on_loop(ready(backend))
    yield backend
    close_backends()


def test_every_answer_type_keeps_to_its_schema_in_compact_json(backend: VLLM) -> None:
    judging = (InSitu, Script, Appearance, LineCheck, NurseLineCheck, Reading, Edit)
    requests = [ask(form, seed=seed, max_tokens=2000) for seed, form in enumerate((PatientReply, *judging))]

    async def answers() -> list[Completion]:
        return await asyncio.gather(*map(backend.complete, requests))

    for request, done in zip(requests, on_loop(answers()), strict=True):
        request.output_type.model_validate_json(done.text)
        # xgrammar lets a model put a space behind a comma, and no other white space anywhere.
        compact = json.dumps(json.loads(done.text), ensure_ascii=False, separators=(",", ":"))
        assert done.text.replace(", ", ",") == compact.replace(", ", ",")


@pytest.mark.parametrize("heard_reply", [True, False])
def test_only_an_open_action_is_taken_and_it_is_whole(backend: VLLM, heard_reply: bool) -> None:
    async def answers() -> list[Completion]:
        return await asyncio.gather(*(backend.complete(ask(form, max_tokens=1000)) for form in forms.values()))

    actions = ("check_vital", "log_red_flag", "utterance", "end")
    forms = {
        action: nurse_step((action,), tuple(VITALS) if action == "check_vital" else (), heard_reply)  # type: ignore[arg-type]
        for action in actions
    }
    for (action, form), done in zip(forms.items(), on_loop(answers()), strict=True):
        step = form.model_validate_json(done.text)
        assert step.action == action
        assert (step.understood is not None) == heard_reply


def test_usage_and_model_come_with_the_answer_and_a_prompt_is_not_read_twice(backend: VLLM) -> None:
    request = ask(PatientReply, "You have had a sore throat for two days. " * 40)
    on_loop(backend.complete(request))
    again = on_loop(backend.complete(request))
    assert again.usage.prompt > again.usage.cached > 100
    assert again.usage.completion > 0
    assert (again.finish_reason, again.model) == ("stop", backend.model)


def test_the_same_seed_alone_gives_the_same_answer_and_another_seed_another(backend: VLLM) -> None:
    texts = [on_loop(backend.complete(ask(PatientReply, seed=seed, temperature=0.7))).text for seed in (5, 5, 6)]
    assert texts[0] == texts[1] != texts[2]


def test_a_prompt_that_does_not_fit_costs_one_answer_and_no_more(backend: VLLM) -> None:
    async def both() -> list[Any]:
        calls = [backend.complete(ask(PatientReply, text)) for text in ("word " * CONTEXT, "Where does it hurt?")]
        return await asyncio.gather(*calls, return_exceptions=True)

    too_long, good = on_loop(both())
    assert isinstance(too_long, AnswerError)
    assert f"may have {CONTEXT}; set a larger max_model_len" in str(too_long)
    PatientReply.model_validate_json(good.text)


def test_an_answer_gets_the_room_that_its_prompt_leaves_and_says_when_it_is_cut(backend: VLLM) -> None:
    short = on_loop(backend.complete(ask(Script, max_tokens=5)))
    assert (short.finish_reason, short.usage.completion) == ("length", 5)
    full = on_loop(backend.complete(ask(Script, "word " * (CONTEXT - 60), max_tokens=1000)))
    assert full.finish_reason == "length"
    assert full.usage.prompt + full.usage.completion == CONTEXT


def test_a_sampling_value_that_cannot_be_is_an_error_that_names_it(backend: VLLM) -> None:
    with pytest.raises(InputError, match=r"sampling of vllm:.*temperature"):
        on_loop(backend.complete(ask(PatientReply, temperature=-1.0)))


def test_a_cancelled_call_leaves_the_engine(backend: VLLM) -> None:
    async def cancel() -> int:
        assert backend.engine is not None
        llm = backend.engine.llm
        calls = [asyncio.ensure_future(backend.complete(ask(Script, seed=seed, max_tokens=2000))) for seed in range(3)]
        while llm.get_num_unfinished_requests() < 3:
            await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        left: int = llm.get_num_unfinished_requests()
        return left

    assert on_loop(cancel()) == 0
    PatientReply.model_validate_json(on_loop(backend.complete(ask(PatientReply))).text)


def test_episodes_are_whole_and_a_second_run_asks_nothing(
    backend: VLLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def episodes() -> list[dict[str, Any]]:
        seat = Seat(backend, "compact", {"temperature": 0.3, "max_tokens": 600})
        pools = [Pool(personas(role), role) for role in ("nurse", "patient")]
        setup = Setup({"nurse": seat, "patient": seat}, *pools, max_turns=2, min_questions=1, seed=3)
        jobs = [(a_case("case-a"), 0), (a_case("case-b", chief_complaint="Abdominal pain"), 0)]
        return sorted(play(jobs, setup, tmp_path, 2), key=lambda episode: str(episode["episode_id"]))

    first = episodes()
    schema = json.loads((SCHEMAS / "episode.schema.json").read_text(encoding="utf-8"))
    for episode in first:
        jsonschema.validate(episode, schema)
        assert (episode["status"], episode["error"]) == ("ok", None)
        assert episode["models"] == {"nurse": backend.model, "patient": backend.model}
    asked: list[Request] = []
    monkeypatch.setattr(backend, "complete", asked.append)
    assert episodes() == first
    assert not asked


def test_closing_ends_calls_in_flight_and_every_process(backend: VLLM) -> None:
    async def close() -> tuple[float, Any]:
        call = asyncio.ensure_future(backend.complete(ask(Script, max_tokens=2000)))
        while not engine.llm.get_num_unfinished_requests():
            await asyncio.sleep(0)
        began = time.monotonic()
        await backend.close()
        took = time.monotonic() - began
        return took, (await asyncio.gather(call, return_exceptions=True))[0]

    engine = backend.engine
    assert engine is not None
    processes = engine.processes()
    assert len(processes) >= 2
    took, outcome = on_loop(close())
    assert took < 8
    assert isinstance(outcome, BackendError)
    wait_until_gone(processes, 0)
    assert not [child for child in orphans.children(os.getpid()) if b"orphans.py" in orphans.read(child, "cmdline")]


def test_a_dead_engine_stops_the_run_and_says_why() -> None:
    async def die() -> list[Any]:
        await backend.start()
        engine = backend.engine
        assert engine is not None
        call = asyncio.ensure_future(backend.complete(ask(Script, max_tokens=2000)))
        while not engine.llm.get_num_unfinished_requests():
            await asyncio.sleep(0)
        processes.extend(engine.processes())
        os.kill(max(processes), signal.SIGKILL)
        first = await asyncio.gather(call, return_exceptions=True)
        return first + await asyncio.gather(backend.complete(ask(Edit)), return_exceptions=True)

    processes: list[int] = []
    backend = VLLM(MODEL, **OPTIONS)
    outcomes = on_loop(die())
    on_loop(backend.close())
    for outcome in outcomes:
        assert isinstance(outcome, StopRun)
        assert not outcome.mark
        assert "engine died (" in str(outcome)
        assert "died unexpectedly" in str(outcome)
        assert "Every answer so far is kept" in str(outcome)
    wait_until_gone(processes, 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_modle_len": 5}, r"no engine argument 'max_modle_len' \(did you mean max_model_len\?\)"),
        ({"max_model_len": 10**6}, r"max_model_len \(1000000\) is greater than"),
        ({"gpu_memory_utilization": 1.0, "max_model_len": 512}, r"ValueError: .*emory"),
    ],
)
def test_an_engine_that_cannot_be_is_an_error_in_vllm_s_own_words(options: dict[str, Any], said: str) -> None:
    backend = VLLM(MODEL, **options)
    with pytest.raises(InputError, match=said):
        on_loop(backend.start())
    assert backend.engine is None


def test_a_folder_that_holds_no_model_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"vllm:{tmp_path.name}: vLLM can't load it: .*config"):
        on_loop(VLLM(str(tmp_path)).start())


def start_driver(episodes: int = 50, errors: int | None = None) -> subprocess.Popen[str]:
    """A run in a process of its own."""
    folders = [str(Path(__file__).parent.parent), str(Path(__file__).parents[2] / "workflow")]
    return subprocess.Popen(
        [sys.executable, str(DRIVER), MODEL, str(episodes)],
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_no_process(number: signal.Signals) -> None:
    with start_driver() as driver:
        assert driver.stdout is not None
        processes = json.loads(driver.stdout.readline())
        processes += orphans.children(driver.pid)
        assert len(processes) >= 3
        driver.send_signal(number)
        code = driver.wait(GONE)
    assert code == (128 + number if number == signal.SIGTERM else -number)
    wait_until_gone(processes, GONE if number == signal.SIGKILL else 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_stopped_while_it_loads_leaves_no_process(number: signal.Signals) -> None:
    with start_driver() as driver:
        seen: set[int] = set()
        deadline = time.monotonic() + HUNG
        # The watcher, the tracker of shared memory, and then the engine.
        while len(seen) < 3:
            assert time.monotonic() < deadline
            seen |= set(orphans.children(driver.pid))
            time.sleep(0.02)
        driver.send_signal(number)
        code = driver.wait(GONE)
    assert code == (128 + number if number == signal.SIGTERM else -number)
    wait_until_gone(list(seen), GONE)


def test_a_run_that_nobody_closed_ends_without_a_word_and_leaves_no_process() -> None:
    with start_driver(episodes=0, errors=subprocess.PIPE) as driver:
        said, errors = driver.communicate(timeout=HUNG)
    assert driver.returncode == 0
    assert "ERROR" not in errors
    assert "Traceback" not in errors
    wait_until_gone(json.loads(said), 1)
