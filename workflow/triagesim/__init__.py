"""TriageSim: simulated, scored and spoken triage dialogues from emergency-department records.

The names below are the public ones; each is loaded at its first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triagesim.backends import load_backend
    from triagesim.backends.hosted import OpenAICompatible, OpenRouter
    from triagesim.backends.vllm import VLLM
    from triagesim.cases import Case, load_cases
    from triagesim.config import Features
    from triagesim.personas import NursePersona, PatientPersona, load_personas
    from triagesim.scoring import score, summarize
    from triagesim.simulation import simulate

_HOMES = {
    "Case": "cases",
    "Features": "config",
    "NursePersona": "personas",
    "OpenAICompatible": "backends.hosted",
    "OpenRouter": "backends.hosted",
    "PatientPersona": "personas",
    "VLLM": "backends.vllm",
    "load_backend": "backends",
    "load_cases": "cases",
    "load_personas": "personas",
    "score": "scoring",
    "simulate": "simulation",
    "summarize": "scoring",
}

__all__ = [
    "VLLM",
    "Case",
    "Features",
    "NursePersona",
    "OpenAICompatible",
    "OpenRouter",
    "PatientPersona",
    "load_backend",
    "load_cases",
    "load_personas",
    "score",
    "simulate",
    "summarize",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"triagesim.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'triagesim' has no attribute {name!r}")
