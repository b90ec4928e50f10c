"""A real HTTP server on loopback that answers chat completions validly, and plays the faults that real ones have.

An answer depends on the request alone (messages, schema, seed), so a run against this server can be repeated, killed
and resumed. In a test: `with FaultServer() as server: ... server.url, server.asked`. By hand: `--help`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from email.utils import formatdate
from hashlib import sha256
from pathlib import Path
from typing import Any

WORDS = ("it", "hurts", "since", "noon", "and", "breathing", "is", "hard", "the", "left", "arm", "feels", "numb")

#: Bytes of white space behind a huge answer.
HUGE = 200 << 20


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and with which calls.

    Attributes:
        name: a key of `FAULTS`.
        calls: numbers of the calls it hits, from 1; None: any.
        marker: a text that stands in the call's messages; None: any.
    """

    name: str
    calls: frozenset[int] | None = None
    marker: str | None = None

    def __post_init__(self) -> None:
        if self.name not in FAULTS:
            raise ValueError(f"no fault {self.name!r}; there are {', '.join(sorted(FAULTS))}")

    @classmethod
    def parsed(cls, text: str) -> Fault:
        """From `name`, `name@1,3` (the first and the third call) or `name~words in the prompt`."""
        name, _, numbers = text.partition("@")
        if numbers:
            return cls(name, frozenset(map(int, numbers.split(","))))
        name, _, marker = text.partition("~")
        return cls(name, marker=marker or None)

    def hits(self, call: Asked) -> bool:
        """Whether it is this call's turn."""
        prompt = json.dumps(call.body.get("messages"), ensure_ascii=False)
        return (self.calls is None or call.number in self.calls) and (self.marker or "") in prompt


@dataclass
class Asked:
    """A request as it came.

    Attributes:
        number: from 1, over the server's life.
        content: a hash of what was asked for: equal for two tries of one call.
        time: seconds since 1970 at its arrival.
        abandoned: whether the client went away before its answer.
        usage: what its answer says that it took (not in the record, which is written at the arrival).
    """

    number: int
    path: str
    authorization: str
    body: dict[str, Any]
    content: str
    time: float
    fault: str | None = None
    abandoned: bool = False
    usage: dict[str, Any] | None = None


@dataclass
class Reply:
    """A response; `cut` says how the connection ends before the body does."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: str | None = None


class FaultServer:
    """The server, in a thread of its own. Thread-safe to read from a test.

    Args:
        faults: the first that hits a call is played; the others are answered validly.
        latency: seconds before each answer.
        held: answer nobody until `release()`.
        record: a file that gets a JSON line for each request.
        signed: answers name the request's content as their model.
        retry_after: seconds, in place of a fault's own.

    Attributes:
        port: where it listens, once entered.
        asked: every request so far.
        most_at_once: the largest number of requests that were open together.
    """

    def __init__(
        self,
        *faults: Fault | str,
        latency: float = 0.0,
        held: bool = False,
        record: Path | None = None,
        port: int = 0,
        signed: bool = False,
        retry_after: float | None = None,
    ) -> None:
        self.faults = [Fault.parsed(given) if isinstance(given, str) else given for given in faults]
        self.latency = latency
        self.asked: list[Asked] = []
        self.most_at_once = 0
        self.port = port
        self._record = record
        self._held = held
        self._signed = signed
        self._retry_after = retry_after
        self._open = 0
        self._changed = threading.Condition()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> FaultServer:
        self._socket = socket.create_server(("127.0.0.1", self.port))
        self.port = self._socket.getsockname()[1]
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    @property
    def url(self) -> str:
        """The base URL for a client."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def counts(self) -> Counter[str]:
        """How often each content was asked for."""
        return Counter(call.content for call in self.asked)

    @property
    def sent(self) -> list[Asked]:
        """The requests that got an answer that was paid for."""
        return [call for call in self.asked if call.usage and not call.abandoned]

    def release(self) -> None:
        """Let the held requests be answered, and all later ones at once."""
        self._loop.call_soon_threadsafe(self._go.set)

    def wait_for(self, true: Callable[[], bool], timeout: float = 60) -> None:
        """Block until `true()`, which is looked at whenever a request comes, is answered or is abandoned."""
        with self._changed:
            if not self._changed.wait_for(true, timeout):
                raise TimeoutError(f"not within {timeout} s; {len(self.asked)} requests came")

    async def _serve(self) -> None:
        self._loop, self._stop, self._go = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        if not self._held:
            self._go.set()
        clients: set[asyncio.Task[None]] = set()

        async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            clients.add(task)
            try:
                with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                    while await self._exchange(reader, writer):
                        pass
            finally:
                clients.discard(task)
                writer.close()

        server = await asyncio.start_server(client, sock=self._socket, limit=2**22)
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in list(clients):
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its response; whether the connection stays."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        path = first.split(" ")[1]
        if not path.endswith("/chat/completions"):
            await _send(writer, _json({"data": [{"id": "any"}]}, 200 if path.endswith("/models") else 404))
            return True
        call = self._note(path, headers.get("authorization", ""), json.loads(body))
        try:
            gone = asyncio.ensure_future(reader.read(1))
            answer = asyncio.ensure_future(self._answer(call))
            done, _ = await asyncio.wait({gone, answer}, return_when=asyncio.FIRST_COMPLETED)
            if answer not in done:
                answer.cancel()
                call.abandoned = True
                return False
            gone.cancel()
            await asyncio.wait({gone})
            return await _send(writer, answer.result())
        finally:
            self._open -= 1
            with self._changed:
                self._changed.notify_all()

    def _note(self, path: str, authorization: str, body: dict[str, Any]) -> Asked:
        content = sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
        call = Asked(len(self.asked) + 1, path, authorization, body, content, time.time())
        call.fault = next((fault.name for fault in self.faults if fault.hits(call)), None)
        self.asked.append(call)
        self._open += 1
        self.most_at_once = max(self.most_at_once, self._open)
        if self._record:
            with self._record.open("a", encoding="utf-8") as file:
                known = {name: value for name, value in asdict(call).items() if name not in ("abandoned", "usage")}
                file.write(json.dumps(known) + "\n")
        with self._changed:
            self._changed.notify_all()
        return call

    async def _answer(self, call: Asked) -> Reply:
        await self._go.wait()
        if call.fault == "hang":
            await asyncio.Event().wait()
        await asyncio.sleep(self.latency)
        asked = self.asked[call.number - 2] if call.fault == "another" else call
        reply = call.fault and FAULTS[call.fault](asked)
        if reply and self._retry_after is not None and "Retry-After" in reply.headers:
            reply.headers["Retry-After"] = str(self._retry_after)
        if not reply:
            play = _with_model(call.content) if self._signed else lambda call: completion(call, valid_text(call.body))
            reply = play(call)
        with suppress(ValueError, AttributeError, RecursionError):
            call.usage = json.loads(reply.body).get("usage")
        return reply


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> bool:
    """Write a response, or as much of it as its fault allows; whether the connection stays."""
    if reply.cut == "reset":
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if reply.cut in ("reset", "silence"):
        return False
    headers = {"Content-Type": "application/json", "Content-Length": str(len(reply.body)), **reply.headers}
    headers["Date"] = formatdate(time.time(), usegmt=True)
    body = reply.body
    if reply.cut in ("chunks", "endless"):
        del headers["Content-Length"]
        headers["Transfer-Encoding"] = "chunked"
        body = f"{len(body):x}\r\n".encode() + body + b"\r\n"
    elif reply.cut == "length":
        body = body[: len(body) // 2]
    elif reply.cut == "huge":
        headers["Content-Length"] = str(len(body) + HUGE)
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {reply.status} Played\r\n{head}\r\n".encode() + body)
    await writer.drain()
    for _ in range(HUGE // 0x10000 if reply.cut == "huge" else 0):
        writer.write(b" " * 0x10000)
        await writer.drain()
    while reply.cut == "endless":
        writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        await writer.drain()
    return reply.cut is None


def valid_text(body: Mapping[str, Any]) -> str:
    """An answer that its schema and the nurse's cross-field rules allow, drawn by the request alone."""
    wanted = body.get("response_format") or {}
    schema = (wanted.get("json_schema") or {}).get("schema", {"type": "object", "properties": {}})
    asked = json.dumps([body.get("messages"), schema, body.get("seed")], sort_keys=True)
    return json.dumps(instance(schema, random.Random(asked)), ensure_ascii=False)


def instance(schema: Mapping[str, Any], chance: random.Random, definitions: Mapping[str, Any] | None = None) -> Any:
    """A random value that a JSON Schema allows (the part of the language that answers use)."""
    definitions = definitions or schema.get("$defs", {})
    if "$ref" in schema:
        return instance(definitions[schema["$ref"].rpartition("/")[2]], chance, definitions)
    if "anyOf" in schema:
        return instance(chance.choice(schema["anyOf"]), chance, definitions)
    if "const" in schema or "enum" in schema:
        return chance.choice(schema.get("enum", [schema.get("const")]))
    match schema["type"]:
        case "object":
            value = {name: instance(part, chance, definitions) for name, part in schema["properties"].items()}
            return _whole_step(value, schema["properties"], chance) if {"action", "vital"} <= value.keys() else value
        case "array":
            least, most = schema.get("minItems", 0), schema.get("maxItems", 2)
            return [
                instance(schema["items"], chance, definitions) for _ in range(chance.randint(least, max(least, most)))
            ]
        case "string":
            return " ".join(chance.choices(WORDS, k=5))
        case "integer":
            return chance.randint(schema.get("minimum", 0), schema.get("maximum", 10))
        case "number":
            return chance.uniform(schema.get("minimum", 0), schema.get("maximum", 10))
        case "boolean":
            return chance.random() < 0.9
        case _:
            return None


def _whole_step(step: dict[str, Any], schema: Mapping[str, Any], chance: random.Random) -> dict[str, Any]:
    """A nurse's step with what its action needs and nothing that belongs to another one."""
    vitals = _words(schema["vital"])
    action = step["action"]
    step["vital"] = chance.choice(vitals) if action == "check_vital" else None
    step["red_flags"] = [f"{chance.choice(WORDS)} flag"] if action == "log_red_flag" else []
    step["utterance"] = None if action == "log_red_flag" else "Where does it hurt, and since when?"
    return step


def _words(schema: Mapping[str, Any]) -> list[str]:
    """The texts that a schema lists."""
    parts = schema.get("anyOf", [schema])
    values = [value for part in parts for value in part.get("enum", [part.get("const")])]
    return [value for value in values if isinstance(value, str)]


def completion(call: Asked, text: str | None, finish: str = "stop", **message: Any) -> Reply:
    """A chat completion; a text longer than the request's `max_tokens` (4 characters each) is cut."""
    limit = call.body.get("max_tokens") or call.body.get("max_completion_tokens") or 10**6
    if text is not None and len(text) > 4 * limit:
        text, finish = text[: 4 * limit], "length"
    prompt = len(json.dumps(call.body.get("messages"))) // 4
    written = len(text or "") // 4 + 1
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": prompt // 2},
        "completion_tokens_details": {"reasoning_tokens": 0},
        "cost": round(prompt * 1e-7 + written * 4e-7, 9),
    }
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
    return _json({"id": f"gen-{call.number}", "model": "played/model-1", "choices": [choice], "usage": usage})


def _json(value: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(status, json.dumps(value).encode(), {name.replace("_", "-"): text for name, text in headers.items()})


def _error(
    status: int, message: str, *, code: Any = None, in_body: bool = False, **more: Any
) -> Callable[[Asked], Reply]:
    """An error as a status, or in the body of a 200 without choices."""
    error = {"message": message, "code": status if code is None else code, **more}
    if in_body:
        return lambda call: _json({"id": None, "choices": None, "usage": None, "error": error})
    return lambda call: _json({"error": error}, status)


def _page(status: int) -> Callable[[Asked], Reply]:
    page = f"<!DOCTYPE html><html><head><title>{status}</title></head><body>cloudy</body></html>".encode()
    return lambda call: Reply(status, page, {"Content-Type": "text/html; charset=UTF-8"})


def _text(change: Callable[[str], str]) -> Callable[[Asked], Reply]:
    return lambda call: completion(call, change(valid_text(call.body)))


def _with_model(name: str) -> Callable[[Asked], Reply]:
    return lambda call: _json({**json.loads(completion(call, valid_text(call.body)).body), "model": name})


def _cut(how: str) -> Callable[[Asked], Reply]:
    def play(call: Asked) -> Reply:
        whole = completion(call, valid_text(call.body))
        return Reply(200, whole.body, whole.headers, how)

    return play


def _if_asked(
    where: Callable[[Mapping[str, Any]], bool], fault: Callable[[Asked], Reply]
) -> Callable[[Asked], Reply | None]:
    return lambda call: fault(call) if where(call.body) else None


def _wants_schema(body: Mapping[str, Any]) -> bool:
    return (body.get("response_format") or {}).get("type") == "json_schema"


_RATE = {"message": "Rate limit exceeded: free-models-per-min", "code": 429}

#: Every fault by its name; None in place of a reply: this call is none that the fault concerns.
FAULTS: dict[str, Callable[[Asked], Reply | None]] = {
    # status codes
    "rate_limit": lambda call: _json({"error": _RATE}, 429, Retry_After="7"),
    "rate_limit_date": lambda call: _json({"error": _RATE}, 429, Retry_After=formatdate(time.time() + 90, usegmt=True)),
    "rate_limit_reset": lambda call: _json(
        {"error": {**_RATE, "metadata": {"headers": {"X-RateLimit-Reset": str(int(time.time() + 60) * 1000)}}}}, 429
    ),
    "no_quota": _error(429, "You exceeded your current quota", code="insufficient_quota", type="insufficient_quota"),
    "no_credit": _error(
        402, "This request requires more credits: you requested up to 65536 tokens, but can only afford 3395"
    ),
    "busy_budget": lambda call: _json({"error": {"message": "in-flight budget", "code": 402}}, 402, Retry_After="3"),
    "bad_key": lambda call: _json({"error": {"message": f"no user for {call.authorization}", "code": 401}}, 401),
    "bad_key_text": lambda call: Reply(
        401, f"Forbidden: {call.authorization}".encode(), {"Content-Type": "text/plain"}
    ),
    "forbidden": _error(403, "Key limit exceeded", metadata={"limit_source": "openrouter_key_limit"}),
    "flagged": _error(
        403, "Your input was flagged", metadata={"reasons": ["self-harm"], "flagged_input": "took pills"}
    ),
    "unknown_model": _error(404, "The model `zz` does not exist.", type="NotFoundError"),
    "no_provider": _error(404, "No endpoints found that can handle the requested parameters."),
    "timed_out": _error(408, "Request timed out"),
    "too_long": _error(400, "Please reduce the length of the messages", code="context_length_exceeded"),
    "too_long_vllm": _error(400, "This model's maximum context length is 2048 tokens. However, your prompt has 2049"),
    "limit_too_large": _error(
        400,
        "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 2048 "
        "tokens and your request has 20 input tokens",
    ),
    "too_long_llamacpp": _error(400, "request (2049 tokens) is too large", type="exceed_context_size_error"),
    "too_large": _page(413),
    "bad_request": _error(400, "Unsupported value: 'temperature' does not support 0.3 with this model."),
    "unprocessable": _error(422, "presence_penalty: Input should be less than 2"),
    "no_schema": _if_asked(
        _wants_schema, _error(400, "response_format of type json_schema isn't supported by this model")
    ),
    "no_schema_422": _if_asked(
        _wants_schema,
        _error(422, "Provider returned error", metadata={"raw": "loc: response_format.type: 'text' or 'json_object'"}),
    ),
    "other_limit": _if_asked(
        lambda body: "max_tokens" in body,
        _error(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
    ),
    "server_error": _error(500, "Internal error"),
    "overloaded": lambda call: _json({"error": {"message": "Overloaded", "code": 503}}, 503, Retry_After="11"),
    "gateway_page": _page(524),
    "moved": lambda call: Reply(301, b"", {"Location": "/elsewhere"}),
    # errors inside a 200
    **{
        f"body_{code}": _error(code, "Provider returned error", in_body=True) for code in (400, 401, 402, 403, 404, 502)
    },
    "body_429": _error(429, "Provider returned error", in_body=True, metadata={"raw": "Too Many Requests"}),
    "body_word": _error(0, "upstream failed", code="server_error", in_body=True),
    "choice_error": lambda call: _json(
        {
            "choices": [
                {"finish_reason": "error", "message": {"content": '{"utt'}, "error": {"code": 429, "message": "busy"}}
            ]
        }
    ),
    "finish_error": lambda call: completion(call, '{"utt', "error"),
    "no_choice": lambda call: _json({"id": "x", "choices": []}),
    # answers that are none
    "empty": lambda call: completion(call, ""),
    "null_content": lambda call: completion(call, None),
    "all_reasoning": lambda call: completion(call, None, "length", reasoning="Let me think about that"),
    "filtered": lambda call: completion(call, None, "content_filter"),
    "cut_thought": lambda call: completion(call, f"<think>{valid_text(call.body)}? Or", "length"),
    "refusal": lambda call: completion(call, None, refusal="I can't help with that."),
    # answers around which there is something
    "fenced": _text(lambda text: f"```json\n{text}\n```"),
    "chatty": _text(lambda text: f"Sure! {{as asked}} Here it is: {text}\nAnything else?"),
    "thinking": _text(lambda text: f'<think>Maybe {{"action": "end"}}?</think>\n{text}'),
    "spoken": _text(lambda text: "**Nurse:** Where does it hurt?"),
    "two_objects": _text(lambda text: f'{text}\n{{"second": true}}'),
    "listed": _text(lambda text: f"[{text}]"),
    "parts": lambda call: completion(call, None, content=[{"type": "text", "text": valid_text(call.body)}]),
    "another": lambda call: completion(call, valid_text(call.body)),  # the answer to the request before
    "from_a_file": _with_model("/home/somebody/models/own-7b.gguf"),
    # broken HTTP
    "page": _page(200),
    "events": lambda call: Reply(
        200, b'data: {"choices": []}\n\ndata: [DONE]\n\n', {"Content-Type": "text/event-stream"}
    ),
    "half_json": lambda call: Reply(200, completion(call, valid_text(call.body)).body[:-40]),
    "deep_json": lambda call: Reply(200, b"[" * 200_000),
    "not_utf8": lambda call: Reply(200, b'{"choices": "\xff\xfe"}'),
    "bad_gzip": lambda call: Reply(200, b"no gzip", {"Content-Encoding": "gzip"}),
    "cut_chunks": _cut("chunks"),
    "cut_length": _cut("length"),
    "endless": _cut("endless"),
    "huge": _cut("huge"),
    "reset": _cut("reset"),
    "silence": _cut("silence"),
    "hang": lambda call: None,
    "die": lambda call: os.kill(os.getpid(), signal.SIGKILL),  # for a server in a process of its own
}


def main(arguments: Iterable[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="A chat completion server on loopback that plays faults.")
    parser.add_argument("--port", type=int, default=0, help="any free one unless given")
    parser.add_argument("--port-file", type=Path, help="gets the port as soon as the server listens")
    parser.add_argument("--record", type=Path, help="gets a JSON line for each request")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        help=f"NAME, NAME@1,3 (calls by number) or NAME~WORDS (in the prompt); again for more. {', '.join(FAULTS)}",
    )
    chosen = parser.parse_args(None if arguments is None else list(arguments))
    try:
        server = FaultServer(*chosen.fault, latency=chosen.latency, record=chosen.record, port=chosen.port)
    except ValueError as error:
        parser.error(str(error))
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with server:
        if chosen.port_file:
            part = chosen.port_file.with_name(f"{chosen.port_file.name}.part")
            part.write_text(f"{server.port}\n", encoding="utf-8")
            part.replace(chosen.port_file)
        print(server.url, flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
