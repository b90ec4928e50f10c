"""The engine loop under bad company: dropped iterators, broken backends, outages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from actors import Puppet, a_case, personas
from triagesim import simulate
from triagesim.engine import close_backends, loop
from triagesim.governance import redact
from triagesim.journal import read_records
from triagesim.requests import Request

ROOT = Path(__file__).parents[1]
CASES = [a_case(f"c{number}") for number in range(8)]


def run(llm: Any, journal: Path | None = None, **options: Any) -> list[dict[str, Any]]:
    options = {"nurse_personas": personas("nurse"), "patient_personas": personas("patient"), **options}
    return list(simulate(CASES, nurse_llm=llm, patient_llm=llm, journal=journal, **options))


@pytest.mark.parametrize("ending", ["", "raise ValueError('a bug of the user')"])
def test_a_script_that_leaves_an_iterator_unfinished_still_exits(tmp_path: Path, ending: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from actors import *\nfrom triagesim import simulate\n"
        "llm = Puppet()\n"
        "episodes = simulate([a_case(f'c{n}') for n in range(500)], nurse_llm=llm, patient_llm=llm,\n"
        "    nurse_personas=personas('nurse'), patient_personas=personas('patient'), concurrency=2)\n"
        f"print(next(episodes)['status'])\n{ending}\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "workflow"), str(ROOT / "tests")])}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "ok\n"
    assert done.returncode == (1 if ending else 0)


@pytest.mark.parametrize("failure", [SystemExit("no key"), KeyboardInterrupt(), RuntimeError("no")])
def test_whatever_a_backend_raises_ends_episodes_and_not_the_loop(
    failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triagesim.calls.PAUSE", 0)

    class Broken(Puppet):
        def complete(self, requests: list[Request]) -> list[str | Exception]:
            raise failure

    assert {episode["status"] for episode in run(Broken())} == {"error"}
    assert {episode["status"] for episode in run(Puppet())} == {"ok"}


def test_after_an_outage_no_answered_call_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triagesim.calls.PAUSE", 0)

    class Failing(Puppet):
        answered: list[str] = []  # noqa: RUF012

        def complete(self, requests: list[Request]) -> list[str | Exception]:
            if len(self.answered) > 30:
                return [ConnectionError("no route") for _ in requests]
            self.answered += [str(request.name) for request in requests]
            return super().complete(requests)

    failing, mended = Failing(), Puppet()
    assert "error" in {episode["status"] for episode in run(failing, tmp_path)}
    resumed = run(mended, tmp_path)
    assert {str(request.name) for request in mended.requests}.isdisjoint(failing.answered)
    by_id = lambda episodes: sorted(json.dumps(e) for e in episodes)  # noqa: E731
    assert by_id(resumed) == by_id(run(Puppet()))


def test_half_a_surrogate_pair_in_an_answer_is_kept_as_a_bad_answer(tmp_path: Path) -> None:
    class Odd(Puppet):
        def answer(self, request: Request) -> str:
            return "\ud800" if request.name.episode == "c1-0" else super().answer(request)

    states = {episode["episode_id"]: episode["status"] for episode in run(Odd(), tmp_path)}
    assert states.pop("c1-0") == "error"
    assert set(states.values()) == {"ok"}
    assert any(record.get("text") == "?" for record in read_records(tmp_path))


def test_no_key_reaches_an_artifact_or_a_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triagesim.calls.PAUSE", 0)
    monkeypatch.setenv("SOME_API_KEY", "abcdef-secret-99")

    class Leaky(Puppet):
        def complete(self, requests: list[Request]) -> list[str | Exception]:
            raise RuntimeError("Authorization: Bearer sk-live-abc123 with abcdef-secret-99")

    episodes = run(Leaky(), tmp_path)
    stored = json.dumps(episodes) + "".join(path.read_text("utf-8") for path in tmp_path.rglob("*.jsonl"))
    assert "[key]" in stored
    assert "sk-live" not in stored
    assert "abcdef-secret" not in stored
    assert redact("a plain text about a key") == "a plain text about a key"


def test_simulations_of_several_threads_share_one_loop() -> None:
    results: list[int] = []

    def one() -> None:
        results.append(len(run(Puppet())))

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [8] * 6
    assert sum(thread.name == "triagesim" for thread in threading.enumerate()) == 1


def test_a_start_that_failed_is_tried_again_by_the_next_run() -> None:
    class Late(Puppet):
        identity = {"model": "late"}  # noqa: RUF012
        reads = "messages"
        local = True
        label = None
        spare = True
        starts = 0

        async def start(self) -> None:
            self.starts += 1
            if self.starts == 1:
                raise ValueError("no memory")

        async def complete(self, request: Request) -> Any:  # type: ignore[override]
            from triagesim.requests import Completion

            return Completion(self.answer(request))

        async def close(self) -> None:
            pass

    llm = Late()
    with pytest.raises(ValueError, match="no memory"):
        run(llm)
    assert {episode["status"] for episode in run(llm)} == {"ok"}
    assert llm.starts == 2


def test_a_backend_that_hangs_keeps_no_task_once_backends_are_closed() -> None:
    begun = threading.Event()

    class Hanging(Puppet):
        async def complete(self, requests: list[Request]) -> list[str | Exception]:  # type: ignore[override]
            begun.set()
            await asyncio.Event().wait()
            return []

    episodes = simulate(
        [a_case()],
        nurse_llm=Hanging(),
        patient_llm=Puppet(),
        nurse_personas=personas("nurse"),
        patient_personas=personas("patient"),
    )

    def wait() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            list(episodes)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert begun.wait(30)
    close_backends()
    waiting.join(30)
    left = asyncio.run_coroutine_threadsafe(_tasks(), loop()).result(30)
    assert not [task for task in left if "_serve" in repr(task)]


async def _tasks() -> set[asyncio.Task[Any]]:
    await asyncio.sleep(0)
    return asyncio.all_tasks()
