"""The embedded language model: llama.cpp inside this process, on its CPUs (package xllamacpp)."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from threading import Event
from typing import Any, Literal

from triagesim.errors import AnswerError, BackendError, InputError
from triagesim.fetch import Entry, catalogue, placed
from triagesim.grammar import MAX_ITEMS, bounded
from triagesim.jsonl import dumps
from triagesim.requests import Completion, Request, Usage

#: What a request's sampling may hold, and what counts where it says nothing. A model of 135M parameters repeats
#: facts from its prompt at a temperature of 0.3 and drifts from 0.7 on; any repetition penalty stops it from repeating.
SAMPLING: dict[str, float] = {
    "max_tokens": 400,
    "temperature": 0.3,
    "top_p": 0.95,
    "top_k": 40,
    "min_p": 0.05,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}

# A cancelled call stops between two batches: so many prompt tokens are read in well under a second.
_BATCH = 128
# Memory for the prompts of dialogues that wait; the library's own limit is 8 GiB.
_CACHE_MIB = 512


class LlamaCpp:
    """A language model file (GGUF) that llama.cpp runs, several requests at a time.

    Args:
        model: a name in `resources/models/catalogue.yaml`, or the path of a .gguf file.
        slots: how many requests are answered at a time; the others wait.
        context: tokens of one request, prompt and answer together.
        threads: CPU threads; as many as this process may use when None.
        max_string: characters of a string in an answer, where the schema doesn't ask for fewer.

    Raises:
        InputError: the model is neither in the catalogue nor a file.
    """

    local = True
    reads: Literal["messages"] = "messages"

    def __init__(
        self,
        model: str,
        *,
        slots: int = 4,
        context: int = 4096,
        threads: int | None = None,
        max_string: int = 240,
    ) -> None:
        own = model.endswith(".gguf")
        self._name = Path(model).stem if own else model
        self._file = Path(model).expanduser() if own else None
        models = {name: entry for name, entry in catalogue().items() if entry.file.endswith(".gguf")}
        self.model = f"llamacpp:{self._name}"
        self.label = models[self._name].label if self._name in models else None
        self.identity: dict[str, Any] = {
            "backend": "llamacpp",
            "model": self._name,
            "file": self._fingerprint(models),
            "context": context,
            "max_string": max_string,
            "max_items": MAX_ITEMS,
            "sampling": SAMPLING,
        }
        self._slots, self._context, self._max_string = slots, context, max_string
        self._threads = threads or len(os.sched_getaffinity(0))
        self._in_flight = 0
        self._closing = Event()
        self._pool: ThreadPoolExecutor | None = None
        self._server: Any = None

    @property
    def spare(self) -> bool:
        """Whether a slot is free."""
        return self._in_flight < self._slots

    def _fingerprint(self, models: dict[str, Entry]) -> str:
        """What tells this model file from others, whether it is there yet or not."""
        if self._file is not None:
            if not self._file.is_file():
                raise InputError(f"llamacpp: there is no model file {self._file}")
            return f"{self._file.name}, {self._file.stat().st_size} bytes"
        if self._name not in models:
            raise InputError(
                f"llamacpp: no language model {self._name!r} in resources/models/catalogue.yaml; it has "
                f"{', '.join(sorted(models))}. A model of your own is given as the path of its .gguf file"
            )
        return models[self._name].sha256

    async def start(self) -> None:
        """Load the model, in a thread.

        Raises:
            InputError: xllamacpp or the model isn't there, or llama.cpp can't read the file.
        """
        self._server = await asyncio.to_thread(self._load)
        self._pool = ThreadPoolExecutor(self._slots, thread_name_prefix="llamacpp")

    def _load(self) -> Any:
        file = self._file or placed(self._name).path
        # Threads that spin while they wait starve each other when cores are shared (measured: 10 to 40 times slower).
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        try:
            import xllamacpp
        except ImportError:
            raise InputError("backend llamacpp needs the package xllamacpp: pip install xllamacpp") from None
        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.model_alias = {self._name}
        params.n_parallel = self._slots
        params.n_ctx = self._context * self._slots
        params.n_batch = params.n_ubatch = _BATCH
        params.cache_ram_mib = _CACHE_MIB
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads
        # llama.cpp always listens on a loopback port, although nothing here uses it: nobody gets the key.
        params.api_keys = [secrets.token_urlsafe(32)]
        params.n_threads_http = 1
        params.ui = params.endpoint_slots = False
        params.verbosity = 0
        try:
            return xllamacpp.Server(params)
        except RuntimeError as error:
            raise InputError(
                f"llama.cpp can't load {file} ({error}); is it a whole GGUF file, and is there memory for "
                f"{self._slots} slots of {self._context} tokens?"
            ) from None

    async def complete(self, request: Request) -> Completion:
        """Answer one request; a cancelled one stops within a batch.

        Raises:
            AnswerError: the prompt doesn't fit the context.
            BackendError: any other failure of llama.cpp.
            InputError: `sampling` holds an option that this backend doesn't know.
        """
        assert self._pool is not None, "start() comes first"
        body = self._body(request)
        cancelled = Event()
        self._in_flight += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._generate, body, cancelled)
        finally:
            self._in_flight -= 1
            cancelled.set()

    def _body(self, request: Request) -> dict[str, Any]:
        unknown = sorted(set(request.sampling) - set(SAMPLING))
        if unknown:
            raise InputError(
                f"sampling of {self.model}: unknown option {unknown[0]!r}; known are {', '.join(SAMPLING)}"
            )
        body = {**SAMPLING, **request.sampling}
        body["repeat_penalty"] = body.pop("repetition_penalty")
        return body | {
            "messages": request.messages,
            "seed": request.seed,
            "grammar": grammar(dumps(request.output_type.grammar()), self._max_string),
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,
        }

    def _generate(self, body: dict[str, Any], cancelled: Event) -> Completion:
        """Run one request to its end; called in a thread of the pool."""
        texts: list[str] = []
        seen: dict[str, Any] = {}

        def stopped() -> bool:
            return cancelled.is_set() or self._closing.is_set()

        def take(chunk: dict[str, Any]) -> bool:
            """Keep a piece of the answer; True stops the request."""
            for choice in chunk.get("choices") or ():
                texts.append(choice["delta"].get("content") or "")
                seen["finish"] = choice["finish_reason"]
            seen.update((key, chunk[key]) for key in ("error", "usage") if key in chunk)
            return stopped()

        try:
            if not stopped():
                self._server.handle_chat_completions(body, take)
        except (RuntimeError, ValueError) as error:
            raise BackendError(f"{self.model}: {error}") from error
        return self._completion("".join(texts), seen)

    def _completion(self, text: str, seen: dict[str, Any]) -> Completion:
        """The answer as the protocol wants it, or the error that stands in its place."""
        error = seen.get("error")
        if error and error.get("type") == "exceed_context_size_error":
            raise AnswerError(
                f"{self.model}: the prompt has {error['n_prompt_tokens']} tokens and a request may have "
                f"{error['n_ctx']}; set a larger `context` or fewer turns"
            )
        if error or not seen.get("finish"):
            raise BackendError(f"{self.model}: {error['message'] if error else 'stopped before the end'}")
        usage = seen.get("usage", {})
        return Completion(
            text=text,
            finish_reason=seen["finish"],
            usage=Usage(
                prompt=usage["prompt_tokens"],
                completion=usage["completion_tokens"],
                cached=usage["prompt_tokens_details"]["cached_tokens"],
            ),
            model=self.model,
        )

    async def close(self) -> None:
        """Stop what runs and free the model; safe at any time, also twice."""
        self._closing.set()
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.shutdown)
        self._server = None


@lru_cache(maxsize=1024)
def grammar(schema: str, max_string: int) -> str:
    """The llguidance grammar of a JSON Schema (as JSON text): compact JSON, every string and list bounded."""
    import xllamacpp

    compact = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
    text: str = xllamacpp.json_schema_to_grammar({**bounded(json.loads(schema), max_string), "x-guidance": compact})
    return text
