"""Where answers come from: one module a backend, all behind `triagesim.requests.Backend`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from triagesim.errors import InputError
from triagesim.requests import Backend

KINDS = ("agenda", "llamacpp", "vllm", "openrouter", "openai")


def load_backend(spec: str, **options: Any) -> Backend:
    """Make a backend from a model specification, `<backend>:<model>`; nothing is loaded yet.

    Args:
        spec: `agenda`, or `llamacpp:smollm2-135m-instruct`; what is behind the first colon may hold more.
        options: the backend's own (context, slots …).

    Raises:
        InputError: no such backend, or an option that it doesn't have.
    """
    kind, _, model = spec.partition(":")
    if kind not in KINDS:
        raise InputError(
            f"model {spec!r}: unknown backend {kind!r}; expected one of {', '.join(KINDS)}, as in vllm:<model>"
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
    options = {**model.model_dump(exclude={"backend", "model", "sampling", "prompts"}), **runtime}
    return load_backend(f"{model.backend}:{getattr(model, 'model', '')}", **options)  # type: ignore[attr-defined]


def _make(kind: str, model: str, options: dict[str, Any]) -> Backend:
    if kind == "agenda":
        from triagesim.backends.agenda import Agenda

        return Agenda(**options)
    if kind == "llamacpp":
        from triagesim.backends.llamacpp import LlamaCpp

        return LlamaCpp(model, **options)
    raise InputError(f"model {kind}:{model}: this version can't run {kind} yet; it has agenda and llamacpp")
