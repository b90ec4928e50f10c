"""Hosted models: OpenRouter, and any server that speaks OpenAI's chat protocol over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from triagesim.backends.keys import OPENAI_KEY, OPENROUTER_KEY, find_key, no_key
from triagesim.config import OPENROUTER
from triagesim.errors import AnswerError, BackendError, InputError, StopRun
from triagesim.governance import hide, keep_secret, provider_of, redact
from triagesim.requests import Answer, Completion, Request, Usage

if TYPE_CHECKING:
    import httpx

Effort = Literal["low", "medium", "high", "none"]

#: What a request's sampling may hold. All but `max_tokens` is the server's own unless it is set.
SAMPLING = frozenset(
    {"max_tokens", "temperature", "top_p", "top_k", "min_p", "stop"}
    | {"repetition_penalty", "presence_penalty", "frequency_penalty"}
)
#: Always sent: without it a provider reserves credit for the longest answer that the model could give. It holds the
#: longest answer (a patient's script, about 350 tokens) and some reasoning, which counts as well.
MAX_TOKENS = 2048
#: Seconds from a request to the end of its answer.
TIMEOUT = 300.0

# Seconds until a connection must stand.
_CONNECT_TIMEOUT = 30.0
# Bytes of a response that are read, a hundred times an answer's; characters of a server's error that are shown.
_LONGEST_BODY = 8 * 2**20
_LONGEST_QUOTE = 300
# Fields of a request that the caller's own would break.
_OWN_FIELDS = frozenset({"model", "messages", "stream", "n"})
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}

# Servers tell these by their words alone, each in its own.
_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|string_too_long|prompt is too long|input token count"
    r"|(?:maximum|model's|available|the) context (?:length|size|window)",
    re.IGNORECASE,
)
_NO_SCHEMA = re.compile(r"response_format|json_schema|structured.?output", re.IGNORECASE)
_OTHER_LIMIT = re.compile(r"max_completion_tokens")
_NO_CREDIT = re.compile(r"insufficient_quota")
_OBJECT = re.compile(r'\{\s*"')

_ADVICE = {
    400: "Check sampling, reasoning and extra_body",
    402: "Add credit, or set a lower max_tokens in the model's sampling",
    403: "Check what the key and the account may use",
    404: "Check the model's id and base_url",
}
_NO_PROVIDER = (
    "No provider of this model takes every field of the request: leave one out with a null in extra_body (seed: null), "
    "or set require_parameters: false in extra_body.provider"
)


class _Form(NamedTuple):
    """How a server wants to be asked, as far as it is known: it starts as most do, and learns from refusals."""

    schema: bool = True
    limit: str = "max_tokens"


class _Reply(NamedTuple):
    """An HTTP response, read to its end; `data` is None where its body isn't JSON."""

    status: int
    headers: Mapping[str, str]
    data: Any
    text: str


class _Refusal(NamedTuple):
    """An error that the server reports, as a status or in the body of a 200."""

    code: int
    message: str
    retry_after: float | None
    flagged: bool


class _Hosted:
    """One POST a request, each on a connection that is kept for the next one.

    Every connection is a client of its own: a shared pool looks through all of its connections at each request, which
    costs more than half of the time of a call at 64 of them (measured with httpcore 1.0).

    A client whose request didn't end well is closed, and a new one takes its place. A cancellation or a time limit that
    lands while httpcore takes the connection or gives it back leaves it in use for ever (1.0.9: its cleanup is shielded
    from anyio's cancellations alone), and every later request of that client would wait for it.
    """

    reads: Literal["messages"] = "messages"
    label: str | None = None

    def __init__(
        self,
        backend: str,
        model: str,
        *,
        key_name: str,
        api_key: str | None,
        base_url: str,
        max_workers: int,
        extra_body: Mapping[str, Any] | None,
        reasoning: Effort | Mapping[str, Any] | None,
        timeout: float,
        fields: Mapping[str, Any],
    ) -> None:
        self.model = f"{backend}:{model}"
        wrong = {
            "max_workers (a whole number)": isinstance(max_workers, int) and not isinstance(max_workers, bool),
            "timeout (seconds)": isinstance(timeout, int | float) and not isinstance(timeout, bool),
            "api_key (text)": isinstance(api_key, str | None),
            "base_url (text)": isinstance(base_url, str),
            "extra_body (a mapping)": isinstance(extra_body, Mapping | None),
            "reasoning (low, medium, high, none or a mapping)": isinstance(reasoning, str | Mapping | None),
        }
        if amiss := [name for name, fine in wrong.items() if not fine]:
            raise InputError(f"{self.model}: {amiss[0]} isn't what it should be")
        if max_workers < 1 or timeout <= 0:
            raise InputError(f"{self.model}: max_workers is 1 or more and timeout above 0")
        if isinstance(reasoning, str) and reasoning not in ("low", "medium", "high", "none"):
            raise InputError(f"{self.model}: reasoning is {reasoning!r}; expected low, medium, high, none or a mapping")
        if taken := sorted(_OWN_FIELDS & set(extra_body or ())):
            raise InputError(f"{self.model}: extra_body may not hold {taken[0]!r}")
        self._id = model
        self._url = f"{_checked(self.model, base_url)}/chat/completions"
        self.provider = provider_of(base_url)
        self._key_name, self._given_key, self._key = key_name, api_key, api_key or ""
        self._max_workers, self._timeout = max_workers, timeout
        self._fields = fields
        self._form = _Form()
        self._in_flight = 0
        self._clients: list[httpx.AsyncClient] = []
        self._free: list[httpx.AsyncClient] = []
        self._closing: set[asyncio.Task[None]] = set()
        self.identity: dict[str, Any] = {
            "backend": backend,
            "model": model,
            "reasoning": reasoning if isinstance(reasoning, str | None) else dict(reasoning),
            "extra_body": dict(extra_body or {}),
            "max_tokens": MAX_TOKENS,
        }

    @property
    def spare(self) -> bool:
        """Whether one more request would be sent at once."""
        return self._in_flight < self._max_workers

    async def start(self) -> None:
        """Read the key and make the clients; nothing is sent yet.

        Raises:
            InputError: the key is missing or can't be one, or the environment's proxy can't be used.
        """
        import httpx

        self._key = (self._given_key or "").strip() or find_key(self._key_name)
        self._check_key()
        keep_secret(self._key)
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        self._places = asyncio.Semaphore(self._max_workers)
        try:
            verified = httpx.create_ssl_context()
            self._make = partial(
                httpx.AsyncClient,
                headers=headers,
                timeout=httpx.Timeout(None, connect=_CONNECT_TIMEOUT),
                limits=httpx.Limits(max_connections=1, max_keepalive_connections=1),
                verify=verified,
                # A proxy of the cluster can't reach a server on this machine.
                mounts={f"all://{host}": None for host in _LOOPBACK},
            )
            self._clients = [self._make() for _ in range(self._max_workers)]
        except (ImportError, OSError, ValueError) as error:
            raise InputError(
                f"{self.model}: a proxy or certificate variable of the environment can't be used: "
                f"{self._clean(str(error))}"
            ) from None
        self._free = list(self._clients)

    def _check_key(self) -> None:
        if not (self._key.isascii() and (self._key.isprintable() and " " not in self._key)):
            raise InputError(
                f"{self.model}: the key (argument, {self._key_name} or .env) has characters that no key has"
            )

    async def complete(self, request: Request) -> Completion:
        """Answer one request; a cancelled one closes its connection, and no later one notices.

        Raises:
            AnswerError: the prompt doesn't fit, or the provider's moderation refused it.
            BackendError: what may pass: too many requests, an error of the server, no answer, no connection.
            InputError: `sampling` holds an option that isn't known.
            StopRun: no credit, a wrong key or model, a request that the server can't take.
        """
        assert self._clients, "start() comes first"
        if unknown := sorted(set(request.sampling) - SAMPLING):
            known = ", ".join(sorted(SAMPLING))
            raise InputError(f"sampling of {self.model}: unknown option {unknown[0]!r}; known are {known}")
        self._in_flight += 1
        try:
            async with self._places:
                while True:
                    form = self._form
                    reply = await self._post(self._body(request, form))
                    refusal = self._refusal(reply)
                    if refusal is None:
                        return self._completion(reply)
                    self._adapt(form, refusal)
        finally:
            self._in_flight -= 1

    def _body(self, request: Request, form: _Form) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._id, "messages": request.messages, "seed": request.seed}
        body |= {"max_tokens": MAX_TOKENS, **request.sampling}
        body[form.limit] = body.pop("max_tokens")
        if form.schema:
            name, schema = request.output_type.__name__, strict_schema(request.output_type)
            wanted = {"name": name, "strict": True, "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": wanted}
        else:
            body["response_format"] = {"type": "json_object"}
        return {name: value for name, value in {**body, **self._fields}.items() if value is not None}

    async def _post(self, body: dict[str, Any]) -> _Reply:
        """Send a request and read the response, at most so long and so much."""
        import httpx

        content = json.dumps(body).encode()
        read = bytearray()
        free = self._free
        if not free:
            raise BackendError(f"{self.model}: stopped before the answer")
        client, sound = free.pop(), False
        try:
            async with (
                asyncio.timeout(self._timeout),
                client.stream("POST", self._url, content=content) as response,
            ):
                async for part in response.aiter_bytes():
                    read += part
                    if len(read) > _LONGEST_BODY:
                        raise BackendError(f"{self.model}: a response of over {_LONGEST_BODY} bytes", kind="server")
            sound = True
        except (TimeoutError, httpx.TimeoutException):
            raise BackendError(f"{self.model}: no answer within {self._timeout:g} s", kind="timeout") from None
        except (httpx.RequestError, httpx.StreamError) as error:
            reason = self._clean(str(error)) or type(error).__name__
            raise BackendError(f"{self.model}: {reason} ({self._url})", kind="connection") from None
        finally:
            if sound:
                free.append(client)  # to nobody, if it was closed meanwhile
            else:
                self._replace(client)
        return _Reply(response.status_code, response.headers, _parsed(read), read.decode(errors="replace"))

    def _replace(self, client: httpx.AsyncClient) -> None:
        """Close a client that nothing more can be asked of, in the background, and have a new one in its place."""
        if client not in self._clients:
            return  # closed meanwhile
        ending = asyncio.create_task(client.aclose())
        self._closing.add(ending)
        ending.add_done_callback(self._closing.discard)
        self._clients.remove(client)
        self._clients.append(self._make())
        self._free.append(self._clients[-1])

    def _refusal(self, reply: _Reply) -> _Refusal | None:
        """The error in a response, wherever it stands, or None."""
        error = _at(reply.data, "error") or _at(reply.data, "choices", 0, "error")
        if reply.status < 300 and not error:
            return None
        metadata = _at(error, "metadata")
        code = reply.status if reply.status >= 300 else int(_number(_at(error, "code")) or 0)
        if not 300 <= code < 600:
            code = 502  # as OpenRouter names an error of the provider behind it
        said = [_at(error, "message") or error or _at(reply.data, "message") or _at(reply.data, "detail")]
        said += [_at(error, "code"), _at(error, "type"), _at(metadata, "raw"), _at(metadata, "provider_name")]
        if not any(said) and not reply.text.lstrip().startswith("<"):
            said = [reply.text]
        words = "; ".join(dict.fromkeys(_as_text(part) for part in said if part and part != code))
        flagged = bool(_at(metadata, "flagged_input") or _at(metadata, "reasons")) or "content_filter" in words
        return _Refusal(code, words, _retry_after(reply.headers, metadata), flagged)

    def _adapt(self, form: _Form, refusal: _Refusal) -> None:
        """Ask in another form from now on if that is what the server wants; else raise what the refusal means."""
        if refusal.code in (400, 422) and not _TOO_LONG.search(refusal.message):
            if form.limit == "max_tokens" and _OTHER_LIMIT.search(refusal.message):
                self._form = self._form._replace(limit="max_completion_tokens")
                return
            if form.schema and _NO_SCHEMA.search(refusal.message):
                if self._form.schema:
                    print(
                        f"warning: {self.model} doesn't take a JSON Schema ({self._clean(refusal.message)}); from now "
                        "on it is only asked for JSON, so more of its answers will be invalid and asked for again",
                        file=sys.stderr,
                    )
                self._form = self._form._replace(schema=False)
                return
        raise self._error(refusal)

    def _error(self, refusal: _Refusal) -> Exception:
        """What the caller should do about a refusal."""
        code, words, retry_after, flagged = refusal
        text = f"{self.model}: {code} {self._clean(words)}".rstrip()
        if code == 413 or (code in (400, 422) and _TOO_LONG.search(words)):
            return AnswerError(f"{text}. The prompt doesn't fit; set a lower max_tokens or fewer turns")
        if flagged and code in (400, 403, 422):
            return AnswerError(text)
        if code == 429 and _NO_CREDIT.search(words):
            return StopRun(f"{text}. {_ADVICE[402]}")
        if code == 429 or (code == 402 and retry_after is not None):
            return BackendError(text, kind="rate_limit", retry_after=retry_after)
        if code == 408:
            return BackendError(text, kind="timeout", retry_after=retry_after)
        if code == 401:
            return StopRun(
                f"{text}. Set {self._key_name} in the environment or in the file .env to a key that is valid"
            )
        if code == 404 and "requested parameters" in words:
            return StopRun(f"{text}. {_NO_PROVIDER}")
        if code in _ADVICE or code == 422:
            return StopRun(f"{text}. {_ADVICE.get(code, _ADVICE[400])}")
        if code < 400 or code == 405:
            return StopRun(f"{text}. {_ADVICE[404]}")
        return BackendError(text, kind="server" if code >= 500 else "other", retry_after=retry_after)

    def _completion(self, reply: _Reply) -> Completion:
        choice = _at(reply.data, "choices", 0)
        if not isinstance(reply.data, dict):
            raise BackendError(f"{self.model}: a response that is no JSON object", kind="server")
        if not isinstance(choice, dict):
            raise BackendError(f"{self.model}: a response without a choice", kind="empty")
        message, finish = _at(choice, "message"), _as_text(_at(choice, "finish_reason") or "stop")
        if finish == "error":
            raise BackendError(f"{self.model}: the provider broke off its answer", kind="server")
        # A refusal was paid for like any answer: it is kept, found invalid and asked for again.
        text = _content(_at(message, "content")) or _as_text(_at(message, "refusal") or "")
        if not text.strip():
            if finish == "content_filter":
                raise AnswerError(f"{self.model}: the provider's content filter withheld the answer")
            if finish != "length":
                raise BackendError(f"{self.model}: an answer without text (finish reason {finish})", kind="empty")
        reported = _at(reply.data, "model")
        if isinstance(reported, str) and reported.startswith("/"):
            reported = reported.rpartition("/")[2]  # a model file's path at the server is nobody else's business
        return Completion(
            text=_hidden(text if finish == "length" else object_in(text)),
            finish_reason=hide(finish),
            usage=_usage(_at(reply.data, "usage")),
            model=hide(reported) if isinstance(reported, str) and reported else self.model,
        )

    def _clean(self, text: str) -> str:
        """A server's words on one line, without the key, cut."""
        text = " ".join(redact(text).split())
        return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"

    async def close(self) -> None:
        """Close the connections; safe at any time, also twice."""
        clients, self._clients, self._free = self._clients, [], []
        for client in clients:
            await client.aclose()
        await asyncio.gather(*self._closing)


class OpenRouter(_Hosted):
    """A model at OpenRouter. Never local: only open data is sent there.

    A server that refuses a JSON Schema is asked for plain JSON for the rest of the run, with one warning.

    Args:
        model: the model's id there (`vendor/name`, also with `:free` or the like).
        api_key: instead of OPENROUTER_API_KEY in the environment or in the file `.env` of the working folder.
        max_workers: requests in flight at most.
        extra_body: fields added to every request; a null leaves a field out. `provider` is merged with
            `{require_parameters: true}`.
        reasoning: low, medium, high or none; a mapping is sent as it is. None: as the model does by itself.
        timeout: seconds until an answer must be whole.

    Raises:
        InputError: an argument isn't what it should be; at the start, that there is no key.
    """

    local = False

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str = OPENROUTER,
        max_workers: int = 16,
        extra_body: Mapping[str, Any] | None = None,
        reasoning: Effort | Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        extra = dict(extra_body or {})
        effort = {"effort": reasoning} if isinstance(reasoning, str) else reasoning
        fields = {"usage": {"include": True}, "reasoning": effort, **extra}
        fields["provider"] = {"require_parameters": True, **(extra.get("provider") or {})}
        super().__init__(
            "openrouter",
            model,
            key_name=OPENROUTER_KEY,
            api_key=api_key,
            base_url=base_url,
            max_workers=max_workers,
            extra_body=extra_body,
            reasoning=reasoning,
            timeout=timeout,
            fields=fields,
        )

    def _check_key(self) -> None:
        super()._check_key()
        if not self._key:
            raise InputError(no_key(self.model))


class OpenAICompatible(_Hosted):
    """A model behind a server that speaks OpenAI's chat protocol: `vllm serve`, llama.cpp's server, OpenAI itself.

    `base_url` isn't part of the journal key, so that a server may move. What it serves is known by `model` alone:
    if other weights come behind the same name, say so with another `identity`, or old answers will be replayed.
    A server that refuses a JSON Schema is asked for plain JSON for the rest of the run, with one warning; one that
    wants `max_completion_tokens` is given it.

    Args:
        model: the name that the server knows it by.
        base_url: where its `/chat/completions` is, as in `http://127.0.0.1:8000/v1`.
        api_key: instead of OPENAI_API_KEY in the environment or in `.env`; none is needed if the server wants none.
        local: whether it runs on machines that may see the data.
        identity: what the server serves: weights, revision, quantisation.
        max_workers, extra_body, timeout: as for `OpenRouter`.
        reasoning: low, medium, high or none, sent as `reasoning_effort`; a mapping is sent as `reasoning`.

    Raises:
        InputError: an argument isn't what it should be.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: str | None = None,
        local: bool = False,
        identity: str | None = None,
        max_workers: int = 16,
        extra_body: Mapping[str, Any] | None = None,
        reasoning: Effort | Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        effort = "reasoning_effort" if isinstance(reasoning, str) else "reasoning"
        super().__init__(
            "openai",
            model,
            key_name=OPENAI_KEY,
            api_key=api_key,
            base_url=base_url,
            max_workers=max_workers,
            extra_body=extra_body,
            reasoning=reasoning,
            timeout=timeout,
            fields={effort: reasoning, **(extra_body or {})},
        )
        if not isinstance(local, bool):
            raise InputError(f"{self.model}: local is {local!r}; expected true or false")
        self.local = local
        self.identity["identity"] = identity


@lru_cache(maxsize=1024)
def strict_schema(answer: type[Answer]) -> dict[str, Any]:
    """The JSON Schema of an answer in the part of the language that strict modes take.

    One object without references, every field required and no other allowed; no bounds on strings and lists, which
    many providers refuse: the caller checks every answer against the whole schema anyway.
    """
    schema = answer.model_json_schema()
    return _strict(schema, schema.get("$defs", {}))


def _strict(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        return _strict(definitions[node["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in node:
        return {"anyOf": [_strict(part, definitions) for part in node["anyOf"]]}
    if "enum" in node or "const" in node:
        by_type: dict[str, list[Any]] = {}
        for value in node.get("enum", [node.get("const")]):
            by_type.setdefault(_TYPES[type(value)], []).append(value)
        parts = [{"type": name} if name == "null" else {"type": name, "enum": by_type[name]} for name in by_type]
        return parts[0] if len(parts) == 1 else {"anyOf": parts}
    if node["type"] == "array":
        return {"type": "array", "items": _strict(node["items"], definitions)}
    if node["type"] == "object":
        fields = {name: _strict(part, definitions) for name, part in node["properties"].items()}
        return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return {"type": node["type"]}


def object_in(text: str) -> str:
    """The JSON in an answer: the text itself if it is JSON, else the first whole object in it, else the text.

    What stands before `</think>` is passed over.
    """
    if _parsed(text) is not None:
        return text
    answer = text.rpartition("</think>")[2]
    start = _OBJECT.search(answer)
    if start is None:
        return text
    try:
        _, end = json.JSONDecoder().raw_decode(answer, start.start())
    except (ValueError, RecursionError):
        return text
    return answer[start.start() : end]


def _hidden(text: str) -> str:
    """An answer without keys, however JSON spells them."""
    value = _parsed(text)
    try:
        hidden = _without_keys(value)
    except RecursionError:
        return hide(text)
    return hide(text) if hidden == value else json.dumps(hidden, ensure_ascii=False)


def _without_keys(value: Any) -> Any:
    """A server's JSON, without the keys in its texts."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        return {hide(name): _without_keys(part) for name, part in value.items()}
    return [_without_keys(part) for part in value] if isinstance(value, list) else value


def _parsed(text: str | bytearray) -> Any:
    """The value of a JSON text; None where it is no JSON (or says null)."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _checked(model: str, base_url: str) -> str:
    """An endpoint's address, without a slash at its end.

    Raises:
        InputError: it is none, or holds what would be a secret in every error text.
    """
    try:
        parts = urlsplit(base_url)
        _ = parts.port
    except ValueError as error:
        raise InputError(f"{model}: base_url {base_url!r} is no address ({error})") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{model}: base_url {base_url!r} is no address; expected one like http://127.0.0.1:8000/v1")
    if parts.username or parts.password or parts.query:
        raise InputError(
            f"{model}: base_url holds a password or a query; give the key as api_key or in the environment"
        )
    return base_url.rstrip("/")


def _at(value: Any, *path: str | int) -> Any:
    """What stands at a path in a server's JSON, or None where it has another shape."""
    for key in path:
        if isinstance(value, dict) and isinstance(key, str):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return None
    return value


def _as_text(value: Any) -> str:
    """A text as it is, all else as JSON, in which no key can hide."""
    return value if isinstance(value, str) else _hidden(json.dumps(value, ensure_ascii=False))


def _number(value: Any) -> float | None:
    """A finite number, also where it is sent as text; else None."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < 1e15 else None


def _content(content: Any) -> str:
    """The text of a message, which some servers send in parts."""
    if isinstance(content, list):
        return "".join(part for item in content if isinstance(part := _at(item, "text"), str))
    return content if isinstance(content, str) else ""


def _usage(usage: Any) -> Usage:
    def count(*path: str) -> int:
        return int(_number(_at(usage, *path)) or 0)

    return Usage(
        prompt=count("prompt_tokens"),
        completion=count("completion_tokens"),
        reasoning=count("completion_tokens_details", "reasoning_tokens"),
        cached=count("prompt_tokens_details", "cached_tokens"),
        cost=max(_number(_at(usage, "cost")) or 0.0, 0.0),
    )


def _retry_after(headers: Mapping[str, str], metadata: Any) -> float | None:
    """Seconds to wait as the response says it: a header, or (OpenRouter) in the error's metadata."""
    within = _at(metadata, "headers")
    within = {name.lower(): value for name, value in within.items()} if isinstance(within, dict) else {}
    now = _moment(headers.get("date")) or time.time()  # by the server's own clock: this machine's may be wrong
    for value in (
        headers.get("retry-after"),
        _at(metadata, "retry_after_seconds"),
        within.get("retry-after"),
        within.get("x-ratelimit-reset"),
    ):
        if (seconds := _seconds(value, now)) is not None:
            return max(0.0, seconds)
    return None


def _seconds(value: Any, now: float) -> float | None:
    """From now: a number of seconds, the time of a reset in seconds or milliseconds since 1970, or an HTTP date."""
    number = _number(value)
    if number is not None:
        moment = number / 1000 if number > 1e11 else number
        return moment - now if moment > 1e9 else moment
    until = _moment(value)
    return None if until is None else until - now


def _moment(date: Any) -> float | None:
    """An HTTP date in seconds since 1970."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, AttributeError, OverflowError):
        return None
