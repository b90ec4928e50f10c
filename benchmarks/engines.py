"""What counts engine steps: a real vLLM engine, or a model of one in which every step takes the same time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

#: Requests that run at once, and tokens of a step: prompts of arriving requests and one for each running one.
MAX_SEQS = 256
STEP_TOKENS = 8192
#: Of the tiny model: token numbers are taken modulo this, so that its last layer costs little.
VOCABULARY = 8192
#: Tokens that a prefix cache keeps or loses together.
BLOCK = 16


class Counted(NamedTuple):
    """A prompt's length and how much of it isn't cached, in tokens."""

    length: int
    computed: int


class Cache:
    """Blocks of prompts seen so far, each known by itself and all before it, as vLLM's prefix cache; nothing is lost.

    Args:
        block: tokens of a block; only whole ones are kept.
    """

    def __init__(self, block: int = BLOCK) -> None:
        self._block = block
        self._seen: set[int] = set()

    def count(self, tokens: list[int]) -> Counted:
        """Look a prompt up and keep it. Its last token is always computed, as it gives the answer's first one."""
        before, found, missed = 0, 0, False
        for start in range(0, len(tokens) - self._block + 1, self._block):
            before = hash((before, *tokens[start : start + self._block]))
            missed = missed or before not in self._seen or start + self._block == len(tokens)
            found += 0 if missed else self._block
            self._seen.add(before)
        return Counted(len(tokens), len(tokens) - found)


class Counts(NamedTuple):
    """What an engine has done so far.

    Attributes:
        occupied: running requests, summed over the steps.
        generated, computed: tokens of answers, and of prompts that weren't in the prefix cache.
    """

    steps: int = 0
    occupied: int = 0
    generated: int = 0
    computed: int = 0

    def since(self, before: Counts) -> Counts:
        """What was done after `before`."""
        return Counts(*(now - then for now, then in zip(self, before, strict=True)))


class Engine(Protocol):
    """Generates so many tokens after a prompt and counts its steps."""

    said: str
    counts: Counts

    async def start(self) -> None:
        """Get ready."""

    async def generate(self, prompt: list[int], length: int) -> None:
        """Return once `length` tokens are there; a cancelled call leaves the engine."""

    async def forget(self) -> None:
        """Empty the prefix cache."""

    async def close(self) -> None:
        """End it."""


@dataclass(eq=False)
class _Running:
    """A request in the model of an engine: prompt tokens and answer tokens that are still to come."""

    prompt: list[int]
    length: int
    done: asyncio.Future[None]
    uncomputed: int = 0


class ModelEngine:
    """A continuous-batching scheduler without a model behind it; time passes in steps alone.

    In a step every running request gets a token, and what is left of the step's tokens goes to prompts, in the order
    of arrival. A step begins when nobody has anything more to ask.
    """

    said = (
        f"A MODEL of an engine's scheduler, no engine: constant step, {MAX_SEQS} requests, {STEP_TOKENS} tokens a "
        f"step, block {BLOCK}"
    )
    #: Turns of the loop without a new request after which nobody has anything more to ask.
    _QUIET = 40

    def __init__(self) -> None:
        self.counts = Counts()
        self._waiting: list[_Running] = []
        self._running: list[_Running] = []
        self._cache = Cache()
        self._arrived = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Nothing to load."""

    async def generate(self, prompt: list[int], length: int) -> None:
        """Return once `length` tokens are there."""
        request = _Running(prompt, length, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._arrived += 1
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())
        await request.done

    async def forget(self) -> None:
        """Empty the prefix cache."""
        self._cache = Cache()

    async def close(self) -> None:
        """Nothing to free."""

    async def _run(self) -> None:
        await self._quiet()
        while self._waiting or self._running:
            self._step()
            await self._quiet()

    async def _quiet(self) -> None:
        seen, turns = self._arrived, 0
        while turns < self._QUIET:
            await asyncio.sleep(0)
            turns = turns + 1 if self._arrived == seen else 0
            seen = self._arrived
        self._waiting = [request for request in self._waiting if not request.done.done()]
        self._running = [request for request in self._running if not request.done.done()]

    def _step(self) -> None:
        tokens, generated, computed = STEP_TOKENS, 0, 0
        for request in itertools.chain(self._running, self._admitted()):
            if tokens == 0:
                break
            read = min(tokens, request.uncomputed)
            request.uncomputed -= read
            computed += read
            tokens -= read or 1
            if request.uncomputed == 0:
                generated += 1
                request.length -= 1
        for request in self._running:
            if request.length == 0:
                request.done.set_result(None)
        before = self.counts
        self.counts = Counts(
            before.steps + 1,
            before.occupied + len(self._running),
            before.generated + generated,
            before.computed + computed,
        )

    def _admitted(self) -> Any:
        """Waiting requests, each running from the moment it is looked at."""
        for request in list(self._waiting):
            if len(self._running) >= MAX_SEQS:
                return
            self._waiting.remove(request)
            request.uncomputed = self._cache.count(request.prompt).computed
            self._running.append(request)
            yield request


class VllmEngine:
    """vLLM with two small layers of random weights: every step of the scheduler is real, and none takes long."""

    said = ""

    def __init__(self) -> None:
        self.counts = Counts()
        self._llm: Any = None
        self._folder = tempfile.TemporaryDirectory()
        self._numbers = itertools.count()

    async def start(self) -> None:
        """Write the model's configuration and load it."""
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        os.environ |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        import vllm

        (Path(self._folder.name) / "config.json").write_text(json.dumps(_TINY), encoding="utf-8")
        self._llm = await asyncio.to_thread(self._load)
        config = self._llm.vllm_config
        self.said = (
            f"vLLM {vllm.__version__} on {config.device_config.device_type}, a model of {_TINY['num_hidden_layers']} "
            f"layers with random weights, {MAX_SEQS} requests, {STEP_TOKENS} tokens a step, "
            f"block {config.cache_config.block_size}"
        )

    def _load(self) -> Any:
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM
        from vllm.v1.metrics.loggers import StatLoggerBase

        engine = self

        class Counter(StatLoggerBase):  # type: ignore[misc]
            def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
                pass

            def record(self, scheduler_stats: Any, iteration_stats: Any, *others: Any, **more: Any) -> None:
                engine._note(scheduler_stats, iteration_stats)

            def log_engine_initialized(self) -> None:
                pass

        arguments = AsyncEngineArgs(
            model=self._folder.name,
            load_format="dummy",
            skip_tokenizer_init=True,
            max_model_len=STEP_TOKENS,
            max_num_seqs=MAX_SEQS,
            max_num_batched_tokens=STEP_TOKENS,
            block_size=32,
            enable_prefix_caching=True,
            gpu_memory_utilization=0.2,
            enforce_eager=True,
        )
        return AsyncLLM.from_engine_args(arguments, stat_loggers=[Counter])

    def _note(self, scheduled: Any, happened: Any) -> None:
        if scheduled is None or happened is None:
            return
        cached = scheduled.prefix_cache_stats
        before = self.counts
        self.counts = Counts(
            before.steps + 1,
            before.occupied + scheduled.num_running_reqs,
            before.generated + happened.num_generation_tokens,
            before.computed + (cached.queries - cached.hits if cached else 0),
        )

    async def generate(self, prompt: list[int], length: int) -> None:
        """Return once `length` tokens are there; whichever they are."""
        from vllm import SamplingParams
        from vllm.inputs.engine import tokens_input
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0,
            max_tokens=length,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        tokens = [number % VOCABULARY for number in prompt]
        async for _ in self._llm.generate(tokens_input(tokens), params, str(next(self._numbers))):
            pass

    async def forget(self) -> None:
        """Empty the prefix cache."""
        await self._llm.reset_prefix_cache()

    async def close(self) -> None:
        """End its processes."""
        with contextlib.suppress(AttributeError):
            await asyncio.to_thread(self._llm.shutdown)
        self._folder.cleanup()


_TINY: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": STEP_TOKENS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
