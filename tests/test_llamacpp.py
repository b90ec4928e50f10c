"""The embedded language model: what it is asked for, and that the real one keeps to it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from triagesim.answers import NurseStep, PatientReply, nurse_step
from triagesim.backends.llamacpp import LlamaCpp
from triagesim.cases import VITALS
from triagesim.errors import AnswerError, BackendError, InputError
from triagesim.fetch import fetch
from triagesim.grammar import MAX_ITEMS, bounded
from triagesim.requests import Answer, CallName, Request, Role

MODEL = "smollm2-135m-instruct"
WORKFLOW = Path(__file__).parent.parent / "workflow"
#: Seconds after which something that should end has hung.
HUNG = 120
STRING = {"type": "string"}


class Essay(Answer):
    """An answer that takes this model minutes."""

    parts: list[str]

    @classmethod
    def grammar(cls) -> dict[str, Any]:
        part = {"type": "string", "minLength": 3000, "maxLength": 3500}
        return {
            "type": "object",
            "properties": {"parts": {"type": "array", "items": part, "minItems": 8}},
            "required": ["parts"],
            "additionalProperties": False,
        }


class Unenforceable(Answer):
    """An answer whose grammar llguidance can't hold."""

    text: str

    @classmethod
    def grammar(cls) -> dict[str, Any]:
        return {"type": "string", "pattern": "(?=a)b"}


def ask(
    answer: type[Answer],
    text: str = "Nurse: What brings you in today?",
    *,
    role: Role = "nurse",
    seed: int = 1,
    **sampling: float,
) -> Request:
    name = CallName("case-1-0", role, turn=seed)
    return Request(name, role, [{"role": "user", "content": text}], answer, sampling, seed)


def strings_in(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for part in value.values():
                yield from strings_in(part)
        case list():
            for part in value:
                yield from strings_in(part)


def test_every_string_and_list_of_a_schema_gets_a_bound() -> None:
    schema = {
        "anyOf": [{"type": "object", "properties": {"said": STRING}}, {"$ref": "#/$defs/Flags"}],
        "$defs": {"Flags": {"type": "array", "items": {"type": ["string", "null"]}}},
    }
    assert bounded(schema, 50) == {
        "anyOf": [
            {"type": "object", "properties": {"said": {"type": "string", "maxLength": 50}}},
            {"$ref": "#/$defs/Flags"},
        ],
        "$defs": {
            "Flags": {
                "type": "array",
                "items": {"type": ["string", "null"], "maxLength": 50},
                "maxItems": MAX_ITEMS,
            }
        },
    }


@pytest.mark.parametrize(("own", "used"), [(20, 20), (5000, 240)])
def test_the_tighter_of_two_bounds_counts(own: int, used: int) -> None:
    assert bounded({**STRING, "maxLength": own}, 240) == {**STRING, "maxLength": used}


def test_a_list_keeps_its_own_bound() -> None:
    assert bounded({"type": "array", "items": {"type": "null"}, "maxItems": 0}, 240)["maxItems"] == 0


@pytest.mark.parametrize("schema", [{"type": "string", "enum": ["low", "high"]}, {"type": "string", "const": "end"}])
def test_fixed_words_get_no_bound(schema: dict[str, Any]) -> None:
    assert bounded(schema, 1) == schema


def test_what_the_decoder_would_ignore_is_left_out_but_a_field_may_be_called_so() -> None:
    schema = {"type": "object", "properties": {"not": {"type": "array", "uniqueItems": True}}, "not": {"const": 1}}
    assert bounded(schema, 9) == {
        "type": "object",
        "properties": {"not": {"type": "array", "maxItems": MAX_ITEMS}},
    }


leaves = st.sampled_from([STRING, {"type": "integer"}, {"type": "array", "items": STRING}, {"enum": ["a", None]}])
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"anyOf": parts}),
        st.dictionaries(st.sampled_from(["a", "not", "type"]), inner).map(
            lambda parts: {"type": "object", "properties": parts}
        ),
        inner.map(lambda part: {"type": "array", "items": part, "uniqueItems": True}),
    ),
    max_leaves=10,
)


@given(schemas)
def test_bounding_leaves_its_argument_alone_and_twice_is_once(schema: dict[str, Any]) -> None:
    before = json.dumps(schema)
    once = bounded(schema, 100)
    assert json.dumps(schema) == before
    assert bounded(once, 100) == once


def test_identity_holds_what_can_change_an_answer_and_nothing_else() -> None:
    base = LlamaCpp(MODEL).identity
    assert LlamaCpp(MODEL, slots=1, threads=1).identity == base
    assert LlamaCpp(MODEL, max_string=100).identity != base
    assert LlamaCpp(MODEL, context=2048).identity != base


def test_a_catalogue_model_says_what_it_is() -> None:
    backend = LlamaCpp(MODEL)
    assert (backend.model, backend.label, backend.local) == (f"llamacpp:{MODEL}", "demo-quality model", True)


def test_a_file_of_ones_own_goes_by_its_name_and_carries_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "own-7b.gguf"
    file.write_bytes(b"GGUF")
    backend = LlamaCpp(str(file))
    assert (backend.model, backend.label) == ("llamacpp:own-7b", None)
    assert str(tmp_path) not in json.dumps(backend.identity)


@pytest.mark.parametrize("name", ["smollm9", "kokoro-82m-int8"])
def test_a_name_that_is_no_language_model_of_the_catalogue_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(InputError, match=rf"no language model '{name}'.*{MODEL}.*\.gguf"):
        LlamaCpp(name)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no model file .*gone\.gguf"):
        LlamaCpp(str(tmp_path / "gone.gguf"))


def test_a_model_that_was_not_fetched_is_an_error_that_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIAGESIM_CACHE", str(tmp_path))
    with pytest.raises(InputError, match=rf"fetch\.py --model {MODEL}"):
        asyncio.run(LlamaCpp(MODEL).start())


def test_closing_needs_no_start() -> None:
    asyncio.run(LlamaCpp(MODEL).close())


@pytest.mark.slow
def test_a_file_that_is_no_model_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF" + bytes(200))
    with pytest.raises(InputError, match=r"can't load .*broken\.gguf"):
        asyncio.run(LlamaCpp(str(file)).start())


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def backend(runner: asyncio.Runner) -> Iterator[LlamaCpp]:
    fetch(MODEL, progress=False)
    backend = LlamaCpp(MODEL, context=2048, max_string=60)
    runner.run(backend.start())
    yield backend
    runner.run(backend.close())


@pytest.mark.slow
def test_eight_at_once_keep_to_the_schema_of_their_step(runner: asyncio.Runner, backend: LlamaCpp) -> None:
    step = nurse_step(("check_vital", "log_red_flag"), ("o2sat", "sbp"), heard_reply=True)
    types: list[type[NurseStep] | type[PatientReply]] = [step, PatientReply] * 4
    requests = [ask(answer, seed=seed, temperature=1.5) for seed, answer in enumerate(types)]

    async def answers() -> list[str]:
        return [done.text for done in await asyncio.gather(*map(backend.complete, requests))]

    for answer, text in zip(types, runner.run(answers()), strict=True):
        answer.model_validate_json(text)
        assert text == json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))
        assert max(map(len, strings_in(json.loads(text)))) <= 60


@pytest.mark.slow
@pytest.mark.parametrize("action", ["check_vital", "log_red_flag", "utterance", "end"])
def test_only_an_open_action_is_taken(runner: asyncio.Runner, backend: LlamaCpp, action: Any) -> None:
    step = nurse_step((action,), VITALS if action == "check_vital" else (), heard_reply=False)
    done = runner.run(backend.complete(ask(step)))
    assert step.model_validate_json(done.text).action == action


@pytest.mark.slow
def test_usage_and_model_come_with_the_answer(runner: asyncio.Runner, backend: LlamaCpp) -> None:
    request = ask(PatientReply, "You have had a sore throat for two days. " * 20, role="patient")
    runner.run(backend.complete(request))
    again = runner.run(backend.complete(request))
    assert again.usage.prompt > again.usage.cached > 0
    assert again.usage.completion > 0
    assert (again.finish_reason, again.model) == ("stop", f"llamacpp:{MODEL}")


@pytest.mark.slow
def test_a_prompt_that_does_not_fit_costs_one_answer_and_no_more(runner: asyncio.Runner, backend: LlamaCpp) -> None:
    async def both() -> list[Any]:
        calls = [backend.complete(ask(PatientReply, text)) for text in ("word " * 3000, "Where does it hurt?")]
        return await asyncio.gather(*calls, return_exceptions=True)

    too_long, good = runner.run(both())
    assert isinstance(too_long, AnswerError)
    assert "2048" in str(too_long)
    PatientReply.model_validate_json(good.text)


@pytest.mark.slow
def test_an_answer_cut_at_its_limit_says_so(runner: asyncio.Runner, backend: LlamaCpp) -> None:
    cut = runner.run(backend.complete(ask(PatientReply, max_tokens=5)))
    assert (cut.finish_reason, cut.usage.completion) == ("length", 5)


@pytest.mark.slow
def test_an_answer_that_no_grammar_held_is_left_to_the_engine_s_check(
    runner: asyncio.Runner, backend: LlamaCpp
) -> None:
    free = runner.run(backend.complete(ask(Unenforceable)))
    with pytest.raises(ValidationError):
        Unenforceable.model_validate_json(free.text)


@pytest.mark.slow
def test_an_unknown_sampling_option_is_an_error(runner: asyncio.Runner, backend: LlamaCpp) -> None:
    with pytest.raises(InputError, match="'temprature'; known are max_tokens, temperature"):
        runner.run(backend.complete(ask(PatientReply, temprature=1)))


@pytest.mark.slow
def test_the_port_answers_nobody_without_the_key(backend: LlamaCpp) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}).encode()
    url = f"{backend._server.listening_address}/v1/chat/completions"
    assert url.startswith("http://127.0.0.1:")
    for headers in ({}, {"Authorization": "Bearer guess"}):
        with pytest.raises(HTTPError) as caught:
            urlopen(HttpRequest(url, body, {"Content-Type": "application/json", **headers}), timeout=HUNG)
        assert caught.value.code == 401


@pytest.mark.slow
def test_a_cancelled_call_frees_its_slot_and_close_stops_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    fetch(MODEL, progress=False)
    backend = LlamaCpp(MODEL, slots=1, context=8192, max_string=4000)
    running = asyncio.Event()
    stopped: list[str] = []
    generate = backend._generate

    def watched(*args: Any) -> Any:
        loop.call_soon_threadsafe(running.set)
        try:
            return generate(*args)
        except BackendError as error:
            stopped.append(str(error))
            raise

    async def go() -> list[Any]:
        nonlocal loop
        loop = asyncio.get_running_loop()
        await backend.start()
        first = asyncio.create_task(backend.complete(ask(Essay, max_tokens=7000)))
        await running.wait()
        first.cancel()
        second = await asyncio.wait_for(backend.complete(ask(PatientReply, max_tokens=5)), HUNG)
        assert second.finish_reason == "length"
        assert first.cancelled()
        assert len(stopped) == 1
        running.clear()
        rest = [asyncio.create_task(backend.complete(ask(Essay, max_tokens=7000))) for _ in range(3)]
        await running.wait()
        await asyncio.wait_for(backend.close(), HUNG)
        await backend.close()
        return await asyncio.gather(*rest, return_exceptions=True)

    loop: asyncio.AbstractEventLoop
    monkeypatch.setattr(backend, "_generate", watched)
    assert [str(outcome) for outcome in asyncio.run(go())] == [f"{backend.model}: stopped before the end"] * 3


@pytest.mark.slow
def test_a_process_ends_although_nobody_closed_the_model() -> None:
    fetch(MODEL, progress=False)
    code = (
        "import asyncio, triagesim.backends.llamacpp as m\n"
        f"backend = m.LlamaCpp({MODEL!r}, slots=1, context=512)\n"
        "asyncio.run(backend.start())\n"
        "print('started')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=HUNG,
        check=False,
        env={**os.environ, "PYTHONPATH": str(WORKFLOW)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")
