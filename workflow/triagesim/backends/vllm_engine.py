"""Loads and ends one vLLM engine: its arguments, its processes, and what it says when something goes wrong."""

from __future__ import annotations

import dataclasses
import gc
import json
import multiprocessing.resource_tracker
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from triagesim.backends import orphans
from triagesim.config import nearest
from triagesim.errors import InputError

#: Seconds that an engine gets to end by itself, and its killed processes after that.
END_WITHIN = 4.0
KILL_WITHIN = 2.5

_INSTALL = (
    "backend vllm needs the package vllm: pip install vllm, on a machine with a GPU (envs/vllm.yaml); for a CPU see "
    "envs/vllm-cpu.txt"
)
# vLLM measures the device's memory while it loads, and what marks its processes is in the environment: one at a time.
_LOADING = threading.Lock()
# A line of vLLM's errors that names a cause; the first one is the cause of those after it.
_CAUSE = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt): \S|.*died unexpectedly")
# Characters of it that are shown.
_LONGEST_REASON = 600


class Engine:
    """One AsyncLLM with its processes.

    Args:
        name: what errors call it.
        arguments: for `AsyncEngineArgs`, as the user and the backend want them.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        self.llm: Any = None
        self._name = name
        self._arguments = dict(arguments)
        self._mark = f"{os.getpid()}.{secrets.token_hex(8)}"
        self._family = orphans.Family(os.getpid(), self._mark)
        self._guard: subprocess.Popen[bytes] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="triagesim-vllm-"))
        self._closing = threading.Event()
        self._settled = threading.Event()

    def load(self) -> None:
        """Load the model; takes seconds to minutes.

        Raises:
            InputError: vLLM isn't installed, has no such argument, or can't load the model.
        """
        try:
            self._load()
        finally:
            self._settled.set()

    def _load(self) -> None:
        with _LOADING, _environment(self._settings()):
            self._check_open()
            engine_args, async_llm, context, cpu = _import()
            arguments = self._complete(engine_args, cpu)
            self._check_open()
            # Its tracker of shared memory belongs to this process and isn't marked as the engine's.
            multiprocessing.resource_tracker.ensure_running()
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", orphans.__file__, str(os.getpid()), self._mark, str(self._folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            os.environ[orphans.VARIABLE] = self._mark
            try:
                config = engine_args(**arguments).create_engine_config(context)
                with _main_script_hidden():
                    self.llm = async_llm.from_vllm_config(
                        config, usage_context=context, disable_log_stats=arguments["disable_log_stats"]
                    )
            except Exception as error:
                raise InputError(
                    f"{self._name}: vLLM can't load it: {self.reason(error)}\nIs the path or hub id right, and is "
                    "there memory for it? gpu_memory_utilization is the share of the device's memory that it takes, "
                    "and a smaller max_model_len needs less of it. vLLM's own lines above say more"
                ) from error
            finally:
                del os.environ[orphans.VARIABLE]

    def reason(self, error: BaseException | None = None) -> str:
        """What went wrong, in vLLM's words: the first cause that its processes logged, else this error."""
        said = self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""
        lines = [line for line in said.splitlines() if _CAUSE.match(line)]
        if isinstance(error, ValidationError):
            lines.append("; ".join(item["msg"].removeprefix("Value error, ") for item in error.errors()))
        elif error is not None:
            lines.append(f"{type(error).__name__}: {error}")
        return " ".join(lines[0].split())[:_LONGEST_REASON] if lines else "it gave no reason"

    def processes(self) -> list[int]:
        """The engine's processes that run now."""
        self._family.look()
        return self._family.alive()

    async def abort(self, requests: Iterable[str]) -> None:
        """End these requests, and what would call the end of the engine an error; on the engine's loop."""
        if self.llm is not None:
            with suppress(Exception):  # a dead engine has ended them
                await self.llm.abort(list(requests))
            if self.llm.output_handler is not None:
                self.llm.output_handler.cancel()

    def close(self) -> None:
        """End the engine and every process of it, whatever state they are in, also while it loads; at most 8 s."""
        self._closing.set()
        deadline = time.monotonic() + END_WITHIN
        while not self._settled.wait(0.1) and time.monotonic() < deadline:
            self._family.kill(0)
        self._family.look()
        llm, self.llm = self.llm, None
        if llm is not None:
            llm.shutdown(timeout=max(deadline - time.monotonic(), 0))
            # It holds itself; left to the end of the interpreter, it fails with a traceback.
            del llm
            gc.collect()
        self._family.kill(KILL_WITHIN)
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise InputError(f"{self._name}: stopped while it was loading")

    @property
    def _log(self) -> Path:
        return self._folder / "errors.log"

    def _settings(self) -> dict[str, str]:
        """Environment variables of vLLM that count while it loads."""
        # A process that is forked here would inherit threads' locks, and no mark.
        settings = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
        if "VLLM_NO_USAGE_STATS" not in os.environ:
            settings["VLLM_NO_USAGE_STATS"] = "1"
        if "VLLM_LOGGING_CONFIG_PATH" not in os.environ:
            path = self._folder / "logging.json"
            path.write_text(json.dumps(_logging(self._log)), encoding="utf-8")
            settings["VLLM_LOGGING_CONFIG_PATH"] = str(path)
        return settings

    def _complete(self, engine_args: type, cpu: bool) -> dict[str, Any]:
        """The arguments with what this device needs.

        Raises:
            InputError: vLLM has no such argument.
        """
        known = [field.name for field in dataclasses.fields(engine_args)]
        for argument in self._arguments:
            if argument not in known:
                raise InputError(f"{self._name}: vLLM has no engine argument {argument!r}{nearest(argument, known)}")
        return {**device_defaults(cpu), **self._arguments}


def device_defaults(cpu: bool) -> dict[str, Any]:
    """Engine arguments that count where the user sets none.

    On a CPU a seeded request whose prompt is read in pieces ends the whole engine (its generator of random numbers
    has no offset), so prompts are read whole; vLLM then makes `max_num_batched_tokens` at least `max_model_len`.
    """
    return {"disable_log_stats": True, **({"enable_chunked_prefill": False} if cpu else {})}


def _import() -> tuple[Any, Any, Any, bool]:
    """vLLM's parts: AsyncEngineArgs, AsyncLLM, the usage context of work in bulk, whether the device is a CPU."""
    try:
        from vllm import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM
    except ModuleNotFoundError as error:
        if error.name == "vllm":
            raise InputError(_INSTALL) from None
        raise InputError(f"vLLM can't be imported: {error}") from error
    except Exception as error:  # a build for another PyTorch or another device fails in many ways
        raise InputError(f"vLLM can't be imported: {type(error).__name__}: {error}") from error
    return AsyncEngineArgs, AsyncLLM, UsageContext.LLM_CLASS, current_platform.is_cpu()


def _logging(errors: Path) -> dict[str, Any]:
    """Warnings go to stderr (stdout belongs to the command), and errors into a file as well."""
    level = os.environ.get("VLLM_LOGGING_LEVEL", "WARNING")
    lined = {"()": "vllm.logging_utils.NewLineFormatter", "format": "%(levelname)s %(name)s: %(message)s"}
    terminal = {"class": "logging.StreamHandler", "formatter": "lined", "level": level, "stream": "ext://sys.stderr"}
    file = {"class": "logging.FileHandler", "formatter": "plain", "level": "ERROR", "filename": str(errors)}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lined": lined, "plain": {"format": "%(message)s"}},
        "handlers": {"terminal": terminal, "file": {**file, "delay": True}},
        "loggers": {"vllm": {"handlers": ["terminal", "file"], "level": level, "propagate": False}},
    }


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _main_script_hidden() -> Iterator[None]:
    """Keep new processes from running the main script again: a user's may lack the usual guard, and none needs it."""
    main: Any = sys.modules["__main__"]
    spec, file = main.__spec__, vars(main).pop("__file__", None)
    main.__spec__ = None
    try:
        yield
    finally:
        main.__spec__ = spec
        if file is not None:
            main.__file__ = file
