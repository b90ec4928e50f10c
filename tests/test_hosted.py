"""Models over HTTP: what is sent, what each answer and each fault of a server becomes, and that no key gets out."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Generator, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from types import coroutine
from typing import Any, Literal

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors import a_case, seats
from fault_server import FAULTS, Fault, FaultServer, instance
from triagesim import simulate
from triagesim.answers import NurseStep, PatientReply, nurse_step
from triagesim.backends.hosted import MAX_TOKENS, OpenAICompatible, OpenRouter, object_in, strict_schema
from triagesim.cases import VITALS
from triagesim.errors import AnswerError, BackendError, InputError, StopRun
from triagesim.fetch import locate
from triagesim.judging import Appearance, Edit, InSitu, LineCheck, NurseLineCheck, Reading, Script
from triagesim.requests import Answer, CallName, Completion, Request

KEY = "plain-key-0123456789"
MODEL = "smollm2-135m-instruct"
STEPS = [
    nurse_step(("check_vital", "log_red_flag", "utterance", "end"), VITALS, heard_reply=True),
    nurse_step(("check_vital", "utterance"), ("o2sat",), heard_reply=False),
    nurse_step(("end",), (), heard_reply=False),
]
SHAPES = [*STEPS, PatientReply, InSitu, Script, Appearance, LineCheck, NurseLineCheck, Reading, Edit]


@pytest.fixture(autouse=True)
def no_keys_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No key of the machine's, in an empty working folder."""
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)


def ask(
    answer: type[Answer] = PatientReply, text: str = "Where does it hurt?", seed: int = 1, **sampling: Any
) -> Request:
    messages = [{"role": "system", "content": "Answer in JSON."}, {"role": "user", "content": text}]
    return Request(CallName("case-1-0", "patient", turn=1), "patient", messages, answer, sampling, seed)


async def answers(backend: Any, *requests: Request) -> list[Any]:
    """What each request gets, all at once: a completion or an exception."""
    await backend.start()
    try:
        return await asyncio.gather(*map(backend.complete, requests), return_exceptions=True)
    finally:
        await backend.close()


def outcome(server: FaultServer, *requests: Request, **options: Any) -> Any:
    """What the first request gets from a backend of its own."""
    backend = OpenAICompatible("m", **{"base_url": server.url, "api_key": KEY, **options})
    return asyncio.run(answers(backend, *(requests or (ask(),))))[0]


def sent(
    *faults: str, backend: Any = OpenAICompatible, request: Request | None = None, **options: Any
) -> dict[str, Any]:
    """The last body that a server got."""
    with FaultServer(*faults) as server:
        asyncio.run(answers(backend("m", base_url=server.url, api_key=KEY, **options), request or ask()))
        return server.asked[-1].body


# The schema


def objects_in(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        yield from (found for part in schema.values() for found in objects_in(part))
    elif isinstance(schema, list):
        yield from (found for part in schema for found in objects_in(part))


@pytest.mark.parametrize("answer", SHAPES)
def test_a_schema_keeps_to_what_strict_modes_take(answer: type[Answer]) -> None:
    schema = strict_schema(answer)
    assert schema["type"] == "object"
    for node in objects_in({"root": schema}):
        if node.get("type") == "object":
            assert node.keys() == {"type", "properties", "required", "additionalProperties"}
            assert node["required"] == list(node["properties"])
            assert node["additionalProperties"] is False
        elif isinstance(node.get("type"), str):
            assert node.keys() <= {"type", "items", "enum"}


@pytest.mark.parametrize("answer", SHAPES)
def test_a_schema_has_the_fields_of_its_answer_in_their_order(answer: type[Answer]) -> None:
    assert list(strict_schema(answer)["properties"]) == list(answer.model_fields)


def test_a_step_may_name_only_its_own_actions_and_vitals() -> None:
    fields = strict_schema(STEPS[1])["properties"]
    assert fields["action"] == {"type": "string", "enum": ["check_vital", "utterance"]}
    assert fields["vital"] == {"anyOf": [{"type": "string", "enum": ["o2sat"]}, {"type": "null"}]}
    assert fields["understood"] == {"type": "null"}


@given(st.sampled_from(SHAPES), st.integers())
def test_what_the_played_server_answers_is_valid(answer: type[Answer], seed: int) -> None:
    for schema in (strict_schema(answer), answer.model_json_schema()):
        value = instance(schema, random.Random(seed))
        answer.model_validate(value)
        if issubclass(answer, NurseStep):
            assert (value["action"] == "log_red_flag") == bool(value["red_flags"])
            assert (value["action"] == "check_vital") == bool(value["vital"])


# What is sent


def test_a_request_says_what_was_asked_and_always_how_long_an_answer_may_be() -> None:
    body = sent(request=ask(seed=77))
    assert body.keys() == {"model", "messages", "seed", "max_tokens", "response_format"}
    assert (body["model"], body["seed"], body["max_tokens"]) == ("m", 77, MAX_TOKENS)
    assert body["response_format"]["json_schema"] == {
        "name": "PatientReply",
        "strict": True,
        "schema": strict_schema(PatientReply),
    }


def test_sampling_is_passed_on() -> None:
    sampling = {"temperature": 0.2, "top_p": 0.9, "top_k": 5, "stop": ["\n"], "max_tokens": 9}
    body = sent(request=ask(**sampling))
    assert {name: body[name] for name in sampling} == sampling


def test_openrouter_is_asked_for_providers_that_keep_to_all_of_it_and_for_the_cost() -> None:
    body = sent(backend=OpenRouter)
    assert body["provider"] == {"require_parameters": True}
    assert body["usage"] == {"include": True}


def test_own_fields_come_on_top_and_a_null_leaves_one_out() -> None:
    extra = {"provider": {"order": ["a"], "require_parameters": False}, "seed": None, "transforms": []}
    body = sent(backend=OpenRouter, extra_body=extra)
    assert body["provider"] == {"order": ["a"], "require_parameters": False}
    assert body["transforms"] == []
    assert "seed" not in body


@pytest.mark.parametrize(
    ("backend", "reasoning", "field", "value"),
    [
        (OpenRouter, "low", "reasoning", {"effort": "low"}),
        (OpenRouter, {"max_tokens": 500}, "reasoning", {"max_tokens": 500}),
        (OpenAICompatible, "none", "reasoning_effort", "none"),
        (OpenAICompatible, {"summary": "auto"}, "reasoning", {"summary": "auto"}),
    ],
)
def test_reasoning_goes_where_the_endpoint_looks_for_it(backend: Any, reasoning: Any, field: str, value: Any) -> None:
    body = sent(backend=backend, reasoning=reasoning)
    assert {name: found for name, found in body.items() if name.startswith("reasoning")} == {field: value}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reasoning": "a lot"}, "reasoning is 'a lot'; expected low"),
        ({"extra_body": {"stream": True}}, "extra_body may not hold 'stream'"),
        ({"max_workers": 0}, "max_workers is 1 or more"),
        ({"timeout": 0}, "timeout above 0"),
        ({"base_url": "127.0.0.1:8000/v1"}, "is no address"),
        ({"base_url": f"http://me:{KEY}@host/v1"}, "holds a password"),
        ({"base_url": f"http://host/v1?key={KEY}"}, "holds a password or a query"),
    ],
)
def test_a_wrong_option_is_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        OpenAICompatible("m", **{"base_url": "http://host/v1", **options})
    assert KEY not in str(caught.value)


def test_an_unknown_sampling_option_is_an_error_before_anything_is_sent() -> None:
    with FaultServer() as server:
        error = outcome(server, ask(temprature=1))
        assert server.asked == []
    assert isinstance(error, InputError)
    assert "'temprature'; known are frequency_penalty, max_tokens" in str(error)


# Identity and keys


def test_identity_holds_what_can_change_an_answer_and_nothing_else() -> None:
    base = OpenAICompatible("m", base_url="http://a/v1").identity
    moved = OpenAICompatible("m", base_url="http://b/v1", api_key=KEY, local=True, max_workers=2, timeout=5)
    assert moved.identity == base
    for change in ({"identity": "rev 2"}, {"reasoning": "low"}, {"extra_body": {"a": 1}}):
        assert OpenAICompatible("m", base_url="http://a/v1", **change).identity != base
    assert OpenRouter("m").identity != base


def test_ids_with_slashes_and_colons_stay_whole() -> None:
    backend = OpenRouter("vendor/model-8b:free")
    assert backend.model == "openrouter:vendor/model-8b:free"
    assert (backend.local, backend.reads, backend.label) == (False, "messages", None)
    assert OpenAICompatible("a:b", base_url="http://x/v1", local=True).local is True


def test_a_missing_key_is_named_when_the_first_answer_is_needed() -> None:
    with pytest.raises(InputError, match=r"no key; set OPENROUTER_API_KEY .*\.env"):
        asyncio.run(OpenRouter("m").start())


def test_a_server_that_wants_no_key_is_sent_none() -> None:
    with FaultServer() as server:
        assert isinstance(outcome(server, api_key=None, local=True), Completion)
        assert server.asked[0].authorization == ""


@pytest.mark.parametrize(
    "line",
    [
        f"OPENROUTER_API_KEY={KEY}",
        f"export OPENROUTER_API_KEY={KEY}  # mine",
        f'OPENROUTER_API_KEY = "{KEY}" # mine',
        f"OPENROUTER_API_KEY='{KEY}'\r",
        f"# OPENROUTER_API_KEY=old-one\nOPENROUTER_API_KEY=old\nOPENROUTER_API_KEY={KEY}\nOTHER=x",
        f"\ufeffOPENROUTER_API_KEY={KEY}",
    ],
)
def test_a_key_may_stand_in_dotenv(line: str) -> None:
    Path(".env").write_text(line, encoding="utf-8", newline="")
    with FaultServer() as server:
        asyncio.run(answers(OpenRouter("m", base_url=server.url), ask()))
        assert server.asked[0].authorization == f"Bearer {KEY}"


def test_a_hash_inside_a_key_is_no_comment() -> None:
    Path(".env").write_text("OPENROUTER_API_KEY=abc#def\n", encoding="utf-8")
    with FaultServer() as server:
        asyncio.run(answers(OpenRouter("m", base_url=server.url), ask()))
        assert server.asked[0].authorization == "Bearer abc#def"


def test_the_argument_counts_before_the_environment_and_that_before_dotenv(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".env").write_text("OPENAI_API_KEY=from-file\n", encoding="utf-8")
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    with FaultServer() as server:
        outcome(server, api_key="from-argument")
        outcome(server, api_key=None)
        monkeypatch.delenv("OPENAI_API_KEY")
        outcome(server, api_key=None)
        keys = [call.authorization.partition(" ")[2] for call in server.asked]
    assert keys == ["from-argument", "from-environment", "from-file"]


def test_a_file_of_keys_that_the_run_names_counts_instead_of_dotenv(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".env").write_text("OPENAI_API_KEY=from-dotenv\n", encoding="utf-8")
    Path("keys").write_text("OPENAI_API_KEY=from-keys\n", encoding="utf-8")
    Path("keys").chmod(0o600)
    monkeypatch.setenv("TRIAGESIM_KEY_FILE", "keys")
    with FaultServer() as server:
        outcome(server, api_key=None)
        assert server.asked[0].authorization == "Bearer from-keys"


@pytest.mark.parametrize(("mode", "said"), [(0o640, "others may read keys; chmod 600 keys"), (None, "is no file keys")])
def test_a_file_of_keys_is_there_and_its_owner_s_alone(
    monkeypatch: pytest.MonkeyPatch, mode: int | None, said: str
) -> None:
    if mode:
        Path("keys").touch()
        Path("keys").chmod(mode)
    monkeypatch.setenv("TRIAGESIM_KEY_FILE", "keys")
    with pytest.raises(InputError, match=said):
        asyncio.run(OpenRouter("m").start())


@pytest.mark.parametrize("key", ["two words", "schlüssel", "line\nbreak"])
def test_what_can_be_no_key_is_refused_without_repeating_it(key: str) -> None:
    with pytest.raises(InputError, match="characters that no key has") as caught:
        asyncio.run(OpenRouter("m", api_key=key).start())
    assert key not in str(caught.value)


@pytest.mark.parametrize("fault", ["bad_key", "bad_key_text"])
@pytest.mark.parametrize("where", ["argument", "dotenv"])
def test_a_key_that_the_server_echoes_gets_no_further(fault: str, where: str) -> None:
    Path(".env").write_text(f"OPENAI_API_KEY={KEY}\n", encoding="utf-8")
    with FaultServer(fault) as server:
        error = outcome(server, api_key=KEY if where == "argument" else None)
        assert server.asked[0].authorization == f"Bearer {KEY}"
    assert isinstance(error, StopRun)
    assert "401" in str(error)
    assert "Set OPENAI_API_KEY" in str(error)
    assert KEY not in str(error)
    assert error.__cause__ is None


def test_a_key_is_in_no_identity_and_no_repr() -> None:
    backend = OpenRouter("m", api_key=KEY)
    asyncio.run(backend.start())
    assert KEY not in repr(backend) + repr(backend.identity) + repr(backend._clients)
    asyncio.run(backend.close())


# What each fault becomes

RATE, STOP, ASK_OTHER = "rate_limit", StopRun, AnswerError
CASES: dict[str, tuple[Any, str]] = {
    "rate_limit": (RATE, "429 Rate limit exceeded"),
    "rate_limit_date": (RATE, "429"),
    "rate_limit_reset": (RATE, "429"),
    "no_quota": (STOP, "exceeded your current quota.*Add credit"),
    "no_credit": (STOP, "402 .*can only afford 3395.*Add credit, or set a lower max_tokens"),
    "busy_budget": (RATE, "402 in-flight budget"),
    "bad_key": (STOP, "401 .*Set OPENAI_API_KEY"),
    "bad_key_text": (STOP, "401"),
    "forbidden": (STOP, "403 Key limit exceeded.*account may use"),
    "flagged": (ASK_OTHER, "403 Your input was flagged"),
    "unknown_model": (STOP, "404 The model `zz` does not exist.*Check the model's id and base_url"),
    "no_provider": (STOP, "No provider of this model takes every field.*require_parameters: false"),
    "timed_out": ("timeout", "408"),
    "too_long": (ASK_OTHER, "context_length_exceeded.*doesn't fit"),
    "too_long_vllm": (ASK_OTHER, "maximum context length is 2048"),
    "limit_too_large": (ASK_OTHER, "maximum context length is 2048.*lower max_tokens"),
    "too_long_llamacpp": (ASK_OTHER, "exceed_context_size"),
    "too_large": (ASK_OTHER, "413"),
    "bad_request": (STOP, "400 .*'temperature'.*Check sampling"),
    "unprocessable": (STOP, "422 .*Check sampling"),
    "server_error": ("server", "500 Internal error"),
    "overloaded": ("server", "503 Overloaded"),
    "gateway_page": ("server", "524$"),
    "moved": (STOP, "301.*base_url"),
    "body_400": (STOP, "400 Provider returned error"),
    "body_401": (STOP, "401"),
    "body_402": (STOP, "402"),
    "body_403": (STOP, "403"),
    "body_404": (STOP, "404"),
    "body_429": (RATE, "429 Provider returned error; Too Many Requests"),
    "body_502": ("server", "502"),
    "body_word": ("server", "502 upstream failed; server_error"),
    "choice_error": (RATE, "429 busy"),
    "finish_error": ("server", "broke off"),
    "no_choice": ("empty", "without a choice"),
    "empty": ("empty", "without text"),
    "null_content": ("empty", "without text"),
    "filtered": (ASK_OTHER, "content filter"),
    "page": ("server", "no JSON object"),
    "events": ("server", "no JSON object"),
    "half_json": ("server", "no JSON object"),
    "deep_json": ("server", "no JSON object"),
    "not_utf8": ("server", "no JSON object"),
    "bad_gzip": ("connection", "decompress"),
    "cut_chunks": ("connection", "closed"),
    "cut_length": ("connection", "closed"),
    "endless": ("server", "over 8388608 bytes"),
    "huge": ("server", "over 8388608 bytes"),
    "reset": ("connection", "."),
    "silence": ("connection", "disconnected"),
}
ANSWERED = {"no_schema", "no_schema_422", "other_limit", "all_reasoning", "refusal", "fenced", "chatty", "thinking"}
ANSWERED |= {"cut_thought", "from_a_file", "spoken", "two_objects", "listed", "parts", "another"}


def test_every_fault_that_can_be_played_is_tested() -> None:
    assert {*CASES, *ANSWERED, "hang", "die"} == FAULTS.keys()


@pytest.mark.parametrize("fault", CASES)
def test_a_fault_becomes_what_the_caller_should_do_about_it(fault: str) -> None:
    expected, words = CASES[fault]
    with FaultServer(fault) as server:
        error = outcome(server)
        assert len(server.asked) == 1, "the caller retries, not the backend"
    if isinstance(expected, str):
        assert isinstance(error, BackendError), error
        assert error.kind == expected
    else:
        assert type(error) is expected, error
    with pytest.raises(type(error), match=words):
        raise error
    assert str(error).startswith("openai:m: ")
    assert len(str(error)) < 700
    assert "took pills" not in str(error)


@pytest.mark.parametrize(
    ("fault", "least", "most"),
    [
        ("rate_limit", 7, 7),
        ("busy_budget", 3, 3),
        ("overloaded", 11, 11),
        ("rate_limit_date", 60, 90),
        ("rate_limit_reset", 30, 60),
    ],
)
def test_the_wait_that_a_server_asks_for_is_handed_on(fault: str, least: float, most: float) -> None:
    with FaultServer(fault) as server:
        assert least <= outcome(server).retry_after <= most


def test_a_fault_that_asks_for_no_wait_has_none() -> None:
    with FaultServer("body_429") as server:
        assert outcome(server).retry_after is None


def test_long_words_of_a_server_are_cut_after_the_key_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    echo = {"error": {"code": 401, "message": "x" * 290 + KEY + "y" * 500}}
    monkeypatch.setitem(FAULTS, "bad_key", lambda call: type(FAULTS["moved"](call))(401, json.dumps(echo).encode()))
    with FaultServer("bad_key") as server:
        text = str(outcome(server))
    assert KEY[:8] not in text
    assert "[key]" in text
    assert "yyyyyyyy" not in text


def test_nobody_at_the_address_is_a_lost_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    error = asyncio.run(answers(OpenAICompatible("m", base_url=url), ask()))[0]
    assert isinstance(error, BackendError)
    assert error.kind == "connection"
    assert url in str(error)


def test_a_server_that_never_answers_is_left_after_the_time_limit() -> None:
    with FaultServer("hang") as server:
        error = outcome(server, timeout=1)
        server.wait_for(lambda: server.asked[0].abandoned)
    assert isinstance(error, BackendError)
    assert (error.kind, "within 1 s" in str(error)) == ("timeout", True)


def test_a_proxy_of_the_cluster_is_not_asked_for_a_server_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with FaultServer() as server:
        assert isinstance(outcome(server), Completion)


def test_a_proxy_that_cannot_be_used_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "ftp://proxy:1")
    with pytest.raises(InputError, match="a proxy or certificate variable"):
        asyncio.run(OpenRouter("m", api_key=KEY).start())


# What an answer becomes


@pytest.mark.parametrize("fault", ["", "fenced", "chatty", "thinking", "two_objects", "parts"])
def test_the_answer_is_found_in_what_stands_around_it(fault: str) -> None:
    with FaultServer(*filter(None, [fault])) as server:
        done = outcome(server)
    PatientReply.model_validate_json(done.text)
    assert done.finish_reason == "stop"


@pytest.mark.parametrize(
    ("fault", "start"), [("spoken", "**Nurse:** Where"), ("listed", '[{"'), ("refusal", "I can't help")]
)
def test_what_is_no_answer_is_left_for_the_caller_to_ask_again(fault: str, start: str) -> None:
    with FaultServer(fault) as server:
        assert outcome(server).text.startswith(start)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": "{\\"b\\": 1}"}', '{"a": "{\\"b\\": 1}"}'),
        ('"just {text}"', '"just {text}"'),
        ('{"a": "</think>"}', '{"a": "</think>"}'),
        ('{"a": {"b": 1}, "c": ', '{"a": {"b": 1}, "c": '),
        ('Use {braces}: {"a": {"b": 1}}.', '{"a": {"b": 1}}'),
        ('<think>{"a": 0}</think>{"a": 1}', '{"a": 1}'),
        ("{" * 5000, "{" * 5000),
        ('{"a":' * 100_000, '{"a":' * 100_000),
    ],
)
def test_only_a_whole_object_is_taken_out_of_prose(text: str, found: str) -> None:
    assert object_in(text) == found


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner)))
def test_json_stays_as_it_is(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert object_in(text) == text


@given(st.text())
def test_no_text_is_too_odd_to_look_into(text: str) -> None:
    assert object_in(text) in text


def test_tokens_cost_and_model_come_as_reported() -> None:
    with FaultServer() as server:
        done = outcome(server)
    assert done.model == "played/model-1"
    assert done.usage.prompt > done.usage.cached > 0
    assert done.usage.completion > 0
    assert done.usage.cost > 0


def test_a_model_that_the_server_names_by_its_path_goes_by_its_file() -> None:
    with FaultServer("from_a_file") as server:
        assert outcome(server).model == "own-7b.gguf"


def test_a_cut_answer_says_so_and_one_that_was_all_reasoning_too() -> None:
    with FaultServer("all_reasoning@2") as server:
        cut = outcome(server, ask(max_tokens=2))
        nothing = outcome(server)
    assert (cut.finish_reason, len(cut.text)) == ("length", 8)
    assert (nothing.finish_reason, nothing.text) == ("length", "")


def test_a_thought_that_was_cut_is_no_answer() -> None:
    with FaultServer("cut_thought") as server:
        done = outcome(server)
    assert done.finish_reason == "length"
    assert done.text.startswith("<think>")


# Servers that want to be asked in another form


@pytest.mark.parametrize("fault", ["no_schema", "no_schema_422"])
def test_a_server_without_schemas_is_asked_for_json_from_then_on(
    fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with FaultServer(fault, held=True) as server:
        backend = OpenAICompatible("m", base_url=server.url, max_workers=4)

        async def go() -> list[Any]:
            first = asyncio.create_task(answers(backend, *(ask(seed=seed) for seed in range(4))))
            await asyncio.to_thread(server.wait_for, lambda: len(server.asked) == 4)
            server.release()
            return await first + await answers(backend, ask(seed=9))

        done = asyncio.run(go())
        formats = [call.body["response_format"]["type"] for call in server.asked]
    assert [type(one) for one in done] == [Completion] * 5
    assert formats == ["json_schema"] * 4 + ["json_object"] * 5
    assert capsys.readouterr().err.count("warning: openai:m doesn't take a JSON Schema") == 1


def test_a_server_that_wants_the_other_name_of_the_limit_is_given_it() -> None:
    with FaultServer("other_limit") as server:
        assert outcome(server, ask(max_tokens=300)).finish_reason == "stop"
        assert [call.body.get("max_completion_tokens") for call in server.asked] == [None, 300]
        assert "max_tokens" not in server.asked[1].body


# Many at once


def test_no_more_than_max_workers_are_in_flight_and_spare_says_when_there_is_room() -> None:
    with FaultServer(held=True) as server:
        backend = OpenAICompatible("m", base_url=server.url, max_workers=2)

        async def go() -> list[bool]:
            await backend.start()
            seen = [backend.spare]
            first = asyncio.create_task(backend.complete(ask(seed=0)))
            await asyncio.to_thread(server.wait_for, lambda: len(server.asked) == 1)
            seen.append(backend.spare)
            rest = [asyncio.create_task(backend.complete(ask(seed=seed))) for seed in range(1, 6)]
            await asyncio.to_thread(server.wait_for, lambda: len(server.asked) == 2)
            seen.append(backend.spare)
            server.release()
            await asyncio.gather(first, *rest)
            seen.append(backend.spare)
            await backend.close()
            return seen

        assert asyncio.run(go()) == [True, True, False, True]
        assert (len(server.asked), server.most_at_once) == (6, 2)


def test_waiting_for_a_place_does_not_count_as_waiting_for_an_answer() -> None:
    with FaultServer(latency=0.25) as server:
        backend = OpenAICompatible("m", base_url=server.url, max_workers=1, timeout=1.5)
        done = asyncio.run(answers(backend, *(ask(seed=seed) for seed in range(8))))
    assert [type(one) for one in done] == [Completion] * 8


def test_a_cancelled_call_closes_its_connection_and_gives_its_place_back() -> None:
    with FaultServer("hang@1") as server:
        backend = OpenAICompatible("m", base_url=server.url, max_workers=1)

        async def go() -> Completion:
            await backend.start()
            hanging = asyncio.create_task(backend.complete(ask()))
            await asyncio.to_thread(server.wait_for, lambda: len(server.asked) == 1)
            hanging.cancel()
            await asyncio.to_thread(server.wait_for, lambda: server.asked[0].abandoned)
            done = await backend.complete(ask())
            await backend.close()
            return done

        assert asyncio.run(go()).finish_reason == "stop"


def connections_to(port: int) -> int:
    """The connections of this process to a server."""
    return sum(bool(one.raddr) and one.raddr.port == port for one in psutil.Process().net_connections("tcp"))


@pytest.mark.parametrize("fault", ["hang", "reset", "silence", "cut_length", "endless", "bad_gzip"])
def test_a_call_that_gets_no_whole_answer_spoils_no_later_one(fault: str) -> None:
    with FaultServer(f"{fault}@2,3") as server:
        # As long as a call that is answered may take on a busy machine; two of the calls take all of it.
        backend = OpenAICompatible("m", base_url=server.url, max_workers=1, timeout=4)

        async def go() -> list[type]:
            await backend.start()
            got = [await asyncio.gather(backend.complete(ask()), return_exceptions=True) for _ in range(4)]
            await backend.close()
            return [type(one) for (one,) in got]

        assert asyncio.run(go()) == [Completion, BackendError, BackendError, Completion]
        assert connections_to(server.port) == 0


@coroutine
def cut_at(step: int, call: Coroutine[Any, Any, Completion]) -> Generator[Any, Any, int]:
    """A call, cancelled just as what it waits for the `step`-th time has come; the number of its waits if fewer."""
    task, waits = asyncio.current_task(), call.__await__()
    assert task is not None
    go_on: Callable[[], Any] = partial(next, waits)
    for number in count():
        try:
            waited_for = go_on()
        except StopIteration:
            return number
        if number == step:  # ahead of what wakes the task, so that it wakes cancelled
            if waited_for is None:
                task.get_loop().call_soon(task.cancel)
            else:
                waited_for.add_done_callback(lambda _: task.cancel())
        try:
            yield waited_for
        except BaseException as error:
            go_on = partial(waits.throw, error)
        else:
            go_on = partial(next, waits)
    raise AssertionError("unreachable")


@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.filterwarnings("error")
def test_a_call_that_is_cancelled_at_any_moment_spoils_no_later_one(connected: bool) -> None:
    with FaultServer() as server:
        backend = OpenAICompatible("m", base_url=server.url, max_workers=1, timeout=5)

        async def go() -> tuple[int, int]:
            for step in count():
                await backend.start()
                if connected:
                    await backend.complete(ask())
                task = asyncio.ensure_future(cut_at(step, backend.complete(ask())))
                await asyncio.wait({task})
                assert (await backend.complete(ask())).finish_reason == "stop"
                open_now = connections_to(server.port)
                await backend.close()
                assert asyncio.all_tasks() == {asyncio.current_task()}
                assert (open_now, connections_to(server.port)) == (1, 0)
                if not task.cancelled():
                    return step, task.result()
            raise AssertionError("unreachable")

        steps, waits = asyncio.run(go())
        gc.collect()
        assert steps == waits > 3


def test_closing_needs_no_start_may_come_twice_and_a_later_start_goes_on() -> None:
    with FaultServer() as server:
        backend = OpenAICompatible("m", base_url=server.url)

        async def go() -> list[Any]:
            await backend.close()
            await answers(backend, ask())
            await backend.close()
            return await answers(backend, ask())

        assert [done.finish_reason for done in asyncio.run(go())] == ["stop"]


# The played server itself


def test_the_same_request_gets_the_same_answer_and_is_counted() -> None:
    with FaultServer() as server:
        texts = [outcome(server, ask(seed=seed)).text for seed in (1, 1, 2)]
        assert sorted(server.counts.values()) == [1, 2]
    assert texts[0] == texts[1] != texts[2]


def test_a_fault_hits_the_calls_it_names() -> None:
    with FaultServer("server_error@2", Fault("rate_limit", marker="belly")) as server:
        kinds = [getattr(outcome(server, ask(text=text)), "kind", None) for text in ("a", "b", "my belly", "c")]
    assert kinds == [None, "server", "rate_limit", None]


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="no fault 'earthquake'; there are all_reasoning"):
        FaultServer("earthquake")


def test_the_server_runs_as_a_command_and_writes_down_what_it_was_asked(tmp_path: Path) -> None:
    script = Path(__file__).with_name("fault_server.py")
    options = ["--port-file", tmp_path / "port", "--record", tmp_path / "asked.jsonl", "--fault", "rate_limit@1"]
    with subprocess.Popen([sys.executable, script, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url == f"http://127.0.0.1:{(tmp_path / 'port').read_text().strip()}/v1"
            both = [asyncio.run(answers(OpenAICompatible("m", base_url=url), ask()))[0] for _ in range(2)]
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert isinstance(both[0], BackendError)
    assert isinstance(both[1], Completion)
    first, second = map(json.loads, (tmp_path / "asked.jsonl").read_text(encoding="utf-8").splitlines())
    assert (first["fault"], second["fault"]) == ("rate_limit", None)
    assert first["content"] == second["content"]
    assert first["body"]["messages"][1]["content"] == "Where does it hurt?"


# A real model server


class Observation(Answer):
    """An answer that a small model can't draw out."""

    seen: bool
    vital: Literal["o2sat", "sbp"] | None
    triage: Literal[1, 2, 3, 4, 5]
    confidence: Literal["low", "high"]


@pytest.fixture(scope="module")
def real_server() -> Iterator[str]:
    """The base URL of llama.cpp's own HTTP server, which wants the key KEY."""
    file = locate(MODEL)
    if file is None:
        pytest.skip(f"{MODEL} isn't on this machine: python workflow/scripts/fetch.py --model {MODEL}")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    xllamacpp = pytest.importorskip("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.model_alias = {MODEL}
    params.n_parallel, params.n_ctx, params.n_batch = 1, 512, 128
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    params.api_keys = [KEY]
    params.ui = False
    params.verbosity = 0
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/v1"
    del server


@pytest.mark.slow
def test_a_real_server_answers_in_the_form_that_was_asked_for(real_server: str) -> None:
    backend = OpenAICompatible(MODEL, base_url=real_server, api_key=KEY, local=True)
    done, longer = asyncio.run(answers(backend, ask(Observation, temperature=1.5), ask(max_tokens=3)))
    Observation.model_validate_json(done.text)
    assert done.model == MODEL
    assert done.usage.prompt > 0
    assert (longer.finish_reason, longer.usage.completion) == ("length", 3)


@pytest.mark.slow
def test_a_real_server_s_refusals_are_understood(real_server: str) -> None:
    right = OpenAICompatible(MODEL, base_url=real_server, api_key=KEY, local=True)
    wrong = OpenAICompatible(MODEL, base_url=real_server, api_key=secrets.token_hex(8), local=True)
    lost = OpenAICompatible(MODEL, base_url=f"{real_server}/nowhere", api_key=KEY, local=True)
    (too_long,) = asyncio.run(answers(right, ask(text="word " * 900)))
    assert isinstance(too_long, AnswerError)
    assert "512" in str(too_long)
    (refused,) = asyncio.run(answers(wrong, ask()))
    assert isinstance(refused, StopRun)
    assert "Set OPENAI_API_KEY" in str(refused)
    (not_there,) = asyncio.run(answers(lost, ask()))
    assert isinstance(not_there, StopRun)
    assert "base_url" in str(not_there)


# Whole episodes


def episodes(server: FaultServer, provenance: str = "synthetic", **options: Any) -> list[dict[str, Any]]:
    backend = OpenAICompatible("m", base_url=server.url, max_workers=4)
    made = simulate(
        [a_case(f"case-{number}", provenance=provenance) for number in range(3)],
        **seats(backend),
        max_turns=3,
        min_questions=1,
        **options,
    )
    return sorted(made, key=lambda episode: str(episode["episode_id"]))


def test_whole_episodes_are_played_against_a_server() -> None:
    with FaultServer() as server:
        done = episodes(server)
        assert set(server.counts.values()) == {1}
    assert [episode["status"] for episode in done] == ["ok"] * 3
    assert {episode["models"]["nurse"] for episode in done} == {"openai:m"}


def test_faults_that_pass_change_no_episode() -> None:
    with FaultServer() as server:
        calm = episodes(server)
    with FaultServer("server_error@1,4", "body_429@2", "silence@6") as server:
        assert episodes(server) == calm


class Unforgiving(OpenAICompatible):
    """A server whose every call must be answered at the first try."""

    async def complete(self, request: Request) -> Completion:
        try:
            return await super().complete(request)
        except BackendError as error:
            raise StopRun(f"{request.name}: {error}") from error


def test_a_judged_run_that_speculates_on_an_own_server_gets_every_answer() -> None:
    with FaultServer(latency=0.005) as server:
        backend = Unforgiving("m", base_url=server.url, local=True, max_workers=3, timeout=5)
        done = simulate(
            [a_case(f"case-{number}", provenance="synthetic") for number in range(8)],
            **seats(backend, backend),
            max_turns=3,
            min_questions=1,
            speculation="full",
            concurrency=1,
        )
        assert [episode["status"] in ("ok", "skipped") for episode in done] == [True] * 8
        assert server.most_at_once <= 3


def test_no_credit_stops_the_run_and_what_was_answered_is_not_asked_again(tmp_path: Path) -> None:
    with FaultServer("no_credit@9") as server, pytest.raises(StopRun, match="402"):
        episodes(server, journal=tmp_path / "journal", concurrency=1)
    first = {call.content for call in server.asked if call.fault is None}
    with FaultServer() as server:
        assert [episode["status"] for episode in episodes(server, journal=tmp_path / "journal")] == ["ok"] * 3
        assert not first & set(server.counts)


def test_credentialed_data_reaches_no_server_that_is_not_declared_local() -> None:
    with FaultServer() as server, pytest.raises(StopRun, match="may not be sent to openai:m"):
        episodes(server, provenance="mimic_iv_ed")
    assert server.asked == []


@pytest.mark.parametrize("local", ["false", "no", 1, None])
def test_only_a_plain_true_declares_a_server_local(local: Any) -> None:
    with pytest.raises(InputError, match="expected true or false"):
        OpenAICompatible("m", base_url="http://127.0.0.1:1/v1", local=local)


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "http://[::1/v1"},
        {"base_url": "http://127.0.0.1:99999/v1"},
        {"base_url": 5},
        {"base_url": "http://127.0.0.1/v1", "reasoning": ["x"]},
        {"base_url": "http://127.0.0.1/v1", "max_workers": 2.5},
        {"base_url": "http://127.0.0.1/v1", "api_key": 5},
    ],
)
def test_an_option_of_the_wrong_kind_is_one_clear_error(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="openai:m"):
        OpenAICompatible("m", **options)
