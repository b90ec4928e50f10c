"""A language model on vLLM, in this process: continuous batching, answers that a grammar holds."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from triagesim.answers import PatientReply
from triagesim.backends.vllm_engine import Engine
from triagesim.config import RUNTIME_OPTIONS
from triagesim.engine import close_backends
from triagesim.errors import AnswerError, BackendError, InputError, StopRun
from triagesim.grammar import MAX_ITEMS, bounded
from triagesim.jsonl import digest, dumps
from triagesim.requests import Answer, Backend, Completion, Request, Usage

#: What a request's sampling may hold; what it doesn't comes from the model's generation_config.json, then from vLLM.
SAMPLING = frozenset(
    {"max_tokens", "temperature", "top_p", "top_k", "min_p"}
    | {"repetition_penalty", "presence_penalty", "frequency_penalty"}
)
#: Tokens of an answer where the request doesn't say it.
MAX_TOKENS = 400
#: The longest text in an answer, in characters. One limit for all, because xgrammar compiles a bounded string once and
#: then reuses it in every grammar (measured with a vocabulary of 49,152: 1.3 s for any limit from 240 on, then 0.02 s
#: a grammar). It leaves room for a patient's story of six sentences; what it stops is a text without end.
MAX_STRING = 800
#: Share of a device's memory that the models of a run take together, and the least that is worth trying for one.
MEMORY = 0.9
LEAST_MEMORY = 0.05
#: Tokens below which no answer is worth asking for.
LEAST_ANSWER = 16

# A weight file is told from another of the same size by so many pieces of it, of so many bytes each.
_PIECES, _PIECE = 8, 4096
_WEIGHTS = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf"})
_SETTINGS = frozenset({".json", ".jinja", ".model", ".txt"})
_PATH_STARTS = ("/", "./", "../", "~")
# The roles of a prompt's messages, in the order of the longest prompts.
_EXAMPLE = [{"role": role, "content": "Hello."} for role in ("system", "user", "assistant", "user")]


class VLLM:
    """A model that vLLM runs, as many requests at a time as fit.

    A seed makes an answer repeatable only beside the same other requests: vLLM's sums depend on the batch, so the same
    request alone and among others may get another text. What makes a run repeatable is the journal.

    The grammar holds from the first token, so a model that thinks before it answers is told not to, as its chat
    template wants it (`chat_template_kwargs={"enable_thinking": False}` for many).

    Args:
        model: a folder in the form of transformers, or a hub id.
        chat_template_kwargs: handed to the model's chat template.
        max_string: characters of a string in an answer, where the schema doesn't ask for fewer.
        engine_args: vLLM's own engine arguments (max_model_len, tensor_parallel_size, quantization …).

    Attributes:
        engine: the engine that runs; None before the start and after the close.

    Raises:
        InputError: the model is given as a path and there is no such folder.
    """

    local = True
    reads: Literal["messages"] = "messages"
    label: str | None = None

    def __init__(
        self,
        model: str,
        *,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        max_string: int = MAX_STRING,
        **engine_args: Any,
    ) -> None:
        folder = Path(model).expanduser()
        own = folder.is_dir()
        if not own and model.startswith(_PATH_STARTS):
            raise InputError(f"vllm: there is no model folder {folder}")
        name = folder.resolve().name if own else model
        self.model = f"vllm:{name}"
        self._source = str(folder.resolve()) if own else model
        self._given = {key: value for key, value in engine_args.items() if value is not None}
        self._template = dict(chat_template_kwargs or {})
        self._max_string = max_string
        self._memory: float | None = None
        self.identity: dict[str, Any] = {
            "backend": "vllm",
            "model": name,
            "files": fingerprint(folder) if own else None,
            "engine": _plain({key: value for key, value in self._given.items() if key not in RUNTIME_OPTIONS}),
            "chat_template_kwargs": _plain(self._template),
            "max_string": max_string,
            "max_items": MAX_ITEMS,
            "max_tokens": MAX_TOKENS,
        }
        self.engine: Engine | None = None
        self._tokenizing: ThreadPoolExecutor | None = None
        self._tokenizer: Any = None
        self._defaults: dict[str, Any] = {}
        self._context = 0
        self._slots = int(self._given.get("max_num_seqs", 1))
        self._in_flight = 0
        self._numbers = itertools.count()
        self._running: set[str] = set()

    @property
    def spare(self) -> bool:
        """Whether one more request would run at once; before the start, whether none waits."""
        return self._in_flight < self._slots

    @property
    def memory(self) -> float | None:
        """The share of the device's memory that the user gave it, or None."""
        share: float | None = self._given.get("gpu_memory_utilization")
        return share

    def take(self, memory: float) -> None:
        """Take this share of the device's memory, unless the user gave it one."""
        self._memory = memory

    @property
    def arguments(self) -> dict[str, Any]:
        """The engine arguments that it starts with, but for what the device adds."""
        share = {} if self._memory is None else {"gpu_memory_utilization": self._memory}
        # vLLM reads the ban on white space from here alone, and a small model loops on it.
        answers = {"backend": "xgrammar", "disable_any_whitespace": True}
        answers |= self._given.get("structured_outputs_config", {})
        return {"model": self._source, **share, **self._given, "structured_outputs_config": answers}

    async def start(self) -> None:
        """Load the model in a thread and compile what all grammars have in common.

        Raises:
            InputError: vLLM isn't there or can't load the model, or its chat template can't take the prompts.
        """
        self.engine = engine = Engine(self.model, self.arguments)
        try:
            await asyncio.to_thread(engine.load)
            # Registered anew, it runs before what vLLM registered meanwhile, which would end the engine in disorder.
            atexit.unregister(close_backends)
            atexit.register(close_backends)
            config = engine.llm.vllm_config
            self._defaults = {**config.model_config.get_diff_sampling_param(), "max_tokens": MAX_TOKENS}
            self._context = config.model_config.max_model_len
            self._slots = config.scheduler_config.max_num_seqs
            self._tokenizer = engine.llm.get_tokenizer()
            # One thread: a tokenizer isn't made for several at once.
            self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="tokenize")
            await self._run(await self._tokens(_EXAMPLE), self._params(PatientReply, {"max_tokens": 1}, seed=0))
        except BaseException:
            await self.close()
            raise

    async def complete(self, request: Request) -> Completion:
        """Answer one request; a cancelled one leaves the engine at once.

        Raises:
            AnswerError: the prompt doesn't fit `max_model_len`, or vLLM can't take the request.
            BackendError: vLLM failed at this request alone.
            InputError: `sampling` holds an option that isn't known or a value that can't be.
            StopRun: the engine is dead.
        """
        params = self._params(request.output_type, request.sampling, request.seed)
        self._in_flight += 1
        try:
            prompt = await self._tokens(request.messages)
            params.max_tokens = self._room(len(prompt), params.max_tokens)
            output = await self._run(prompt, params)
        finally:
            self._in_flight -= 1
        answer = output.outputs[0]
        if answer.finish_reason not in ("stop", "length"):
            raise BackendError(f"{self.model}: the answer ended with {answer.finish_reason!r}")
        usage = Usage(len(prompt), len(answer.token_ids), cached=output.num_cached_tokens or 0)
        return Completion(answer.text, answer.finish_reason, usage, self.model)

    async def close(self) -> None:
        """End the engine with all its processes, within 8 s; safe at any time, also twice."""
        engine, self.engine = self.engine, None
        tokenizing, self._tokenizing = self._tokenizing, None
        if engine is not None:
            await engine.abort(self._running)
            try:
                await asyncio.to_thread(engine.close)
            except RuntimeError:  # the interpreter is ending and starts no thread any more
                engine.close()
        if tokenizing is not None:
            tokenizing.shutdown(wait=False)

    def _params(self, output_type: type[Answer], sampling: Mapping[str, Any], seed: int) -> Any:
        """vLLM's SamplingParams of a request."""
        if unknown := sorted(set(sampling) - SAMPLING):
            known = ", ".join(sorted(SAMPLING))
            raise InputError(f"sampling of {self.model}: unknown option {unknown[0]!r}; known are {known}")
        from vllm import SamplingParams
        from vllm.exceptions import VLLMClientError
        from vllm.sampling_params import RequestOutputKind

        try:
            return SamplingParams(
                **{**self._defaults, **sampling},
                seed=seed,
                output_kind=RequestOutputKind.FINAL_ONLY,
                structured_outputs=_grammar(output_type, self._max_string),
            )
        except (VLLMClientError, ValueError, TypeError) as error:
            raise InputError(f"sampling of {self.model}: {error}") from None

    async def _tokens(self, messages: list[dict[str, str]]) -> list[int]:
        """The prompt as the model's chat template writes it, in tokens; not on the loop, as it takes milliseconds."""
        return await asyncio.get_running_loop().run_in_executor(self._tokenizing, self._encode, messages)

    def _encode(self, messages: list[dict[str, str]]) -> list[int]:
        try:
            text = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, **self._template
            )
        except Exception as error:  # a template raises what it likes
            raise InputError(
                f"{self.model}: its chat template can't take a prompt of system, user and assistant messages "
                f"({type(error).__name__}: {error}); use a chat (instruct) model, or give one as `chat_template` in "
                "chat_template_kwargs"
            ) from None
        # The template writes the special tokens out.
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _room(self, prompt: int, wanted: int) -> int:
        """How long the answer may be, given the prompt's tokens.

        Raises:
            AnswerError: the prompt leaves no room for one.
        """
        room = self._context - prompt
        if room < LEAST_ANSWER:
            raise AnswerError(
                f"{self.model}: the prompt has {prompt} tokens and prompt and answer may have {self._context}; set a "
                "larger max_model_len, or fewer turns"
            )
        return min(wanted, room)

    async def _run(self, prompt: list[int], params: Any) -> Any:
        """Give one request to the engine and wait for its end."""
        from vllm.exceptions import VLLMClientError
        from vllm.inputs.engine import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError

        engine = self.engine
        if engine is None:
            raise BackendError(f"{self.model}: stopped before the answer")
        number = str(next(self._numbers))
        self._running.add(number)
        try:
            async for output in engine.llm.generate(tokens_input(prompt), params, number):
                last = output
        except VLLMClientError as error:
            raise AnswerError(f"{self.model}: {error}") from error
        except EngineDeadError as error:
            raise self._dead(engine) from error
        except Exception as error:
            if engine.llm is None or engine.llm.errored:
                raise self._dead(engine) from error
            raise BackendError(f"{self.model}: {error.__cause__ or error}") from error
        finally:
            self._running.discard(number)
        return last

    def _dead(self, engine: Engine) -> Exception:
        """What a dead engine means for the run."""
        if self.engine is not engine:
            return BackendError(f"{self.model}: stopped before the answer")
        return StopRun(
            f"{self.model}: the vLLM engine died ({engine.reason()}). Every answer so far is kept, and the same "
            "command goes on from there. vLLM's own lines above say more; if memory ran out, lower "
            "gpu_memory_utilization, max_model_len or max_num_seqs",
            mark=False,
        )


def split_memory(backends: Iterable[Backend]) -> None:
    """Share one device among the vLLM models of a run: what the user gave to none is split evenly among the rest.

    Raises:
        InputError: nothing is left for those without a share of their own.
    """
    models = list({id(backend): backend for backend in backends if isinstance(backend, VLLM)}.values())
    rest = [model for model in models if model.memory is None]
    given = sum(model.memory for model in models if model.memory is not None)
    for model in rest:
        share = round((MEMORY - given) / len(rest), 4)
        if share < LEAST_MEMORY:
            raise InputError(
                f"{model.model}: the other models take {given:g} of the device's memory and nothing is left of "
                f"{MEMORY:g}; set gpu_memory_utilization for each, lower"
            )
        model.take(share)


@lru_cache(maxsize=256)
def fingerprint(folder: Path) -> str:
    """What tells a model's folder from others, without reading all of it.

    The content of its settings, and names, sizes and a few pieces of its weight files.
    """
    parts: list[Any] = []
    for path in sorted(folder.iterdir()):
        if path.suffix in _WEIGHTS:
            parts.append([path.name, path.stat().st_size, sha256(_pieces(path)).hexdigest()])
        elif path.suffix in _SETTINGS:
            parts.append([path.name, sha256(path.read_bytes()).hexdigest()])
    return digest(parts)[:16]


def _pieces(path: Path) -> bytes:
    size = path.stat().st_size
    read = bytearray()
    with path.open("rb") as file:
        for number in range(_PIECES):
            file.seek(max(size - _PIECE, 0) * number // (_PIECES - 1))
            read += file.read(_PIECE)
    return bytes(read)


@lru_cache(maxsize=1024)
def _grammar(output_type: type[Answer], max_string: int) -> Any:
    from vllm.sampling_params import StructuredOutputsParams

    return StructuredOutputsParams(json=dumps(bounded(output_type.grammar(), max_string)))


def _plain(value: Any) -> Any:
    """A value as JSON holds it, so that it can be part of a key."""
    return json.loads(json.dumps(value, default=str))
