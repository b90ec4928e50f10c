"""Where answers come from: one module a backend, all behind `triagesim.requests.Backend`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from triagesim.config import BACKENDS
from triagesim.errors import InputError
from triagesim.requests import Backend


def load_backend(spec: str, **options: Any) -> Backend:
    """Make a backend from a model specification, `<backend>:<model>`; nothing is loaded yet.

    Args:
        spec: `agenda`, `llamacpp:smollm2-135m-instruct`, `vllm:<path or hub id>`, `openrouter:<model id>`,
            `openai:<model id>`; what is behind the first colon may hold more.
        options: the backend's own (context, slots, max_model_len, base_url …).

    Raises:
        InputError: no such backend, or an option that it doesn't have.
    """
    kind, _, model = spec.partition(":")
    if kind not in BACKENDS:
        raise InputError(
            f"model {spec!r}: unknown backend {kind!r}; expected one of {', '.join(BACKENDS)}, as in vllm:<model>"
        )
    if kind != "agenda" and not model:
        raise InputError(f"model {spec!r}: names no model; expected {kind}:<model>")
    try:
        return _make(kind, model, options)
    except TypeError as error:
        raise InputError(f"model {spec!r}: {str(error).partition('() ')[2] or error}") from None


def configured_backend(model: BaseModel, runtime: dict[str, Any]) -> Backend:
    """The backend of an entry of `models` in the configuration.

    Args:
        runtime: options that change no answer (slots, threads), over the entry's own.
    """
    own = model.model_dump(exclude={"backend", "model", "sampling", "prompts"}, exclude_none=True)
    options = {**own, **runtime}
    return load_backend(f"{model.backend}:{getattr(model, 'model', '')}", **options)  # type: ignore[attr-defined]


def _make(kind: str, model: str, options: dict[str, Any]) -> Backend:
    if kind == "agenda":
        from triagesim.backends.agenda import Agenda

        return Agenda(**options)
    if kind == "llamacpp":
        from triagesim.backends.llamacpp import LlamaCpp

        return LlamaCpp(model, **options)
    if kind == "vllm":
        from triagesim.backends.vllm import VLLM

        return VLLM(model, **options)
    from triagesim.backends.hosted import OpenAICompatible, OpenRouter

    return (OpenRouter if kind == "openrouter" else OpenAICompatible)(model, **options)


def share_devices(backends: Iterable[Backend]) -> None:
    """Let the vLLM models of a run share one device: each that sets no share of its memory gets an even one."""
    backends = list(backends)
    if any(backend.model.startswith("vllm:") for backend in backends):
        from triagesim.backends.vllm import split_memory

        split_memory(backends)
