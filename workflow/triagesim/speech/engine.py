"""What a speech engine is, which there are, and which speaks when the wanted one can't."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from triagesim.errors import InputError
from triagesim.fetch import placed
from triagesim.speech.voices import Voice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


class Engine(Protocol):
    """A source of speech; the same text, voice and seed give the same samples, whatever was said before.

    Attributes:
        name: as in the config.
        version: changes when the same call would sound different.
        licence: of the software, weights and voices that speak.
        limit: the most characters of one call; a longer line is split before.
        voices: whom it can speak as, at least two.
    """

    name: str
    version: str
    licence: str
    limit: int
    voices: Sequence[Voice]

    def synthesize(self, text: str, voice: Voice, seed: int) -> tuple[NDArray[np.float32], int]:
        """Speak `text` (in spoken form): mono samples in -1 … 1, and their rate in Hz.

        Raises:
            InputError: the voice's parameters aren't what this engine takes.
        """
        ...


class Word(NamedTuple):
    """A word of what was said and when it begins, in seconds from the first sample."""

    text: str
    start: float


@runtime_checkable
class TimedEngine(Protocol):
    """An engine that also says when each word begins."""

    def synthesize_words(self, text: str, voice: Voice, seed: int) -> tuple[NDArray[np.float32], int, list[Word]]:
        """As `Engine.synthesize`, with the words in their order."""
        ...


class MissingPackage(InputError):
    """An engine's Python package isn't installed, or doesn't work here."""


class _Source(NamedTuple):
    module: str
    extra: str
    files: tuple[str, ...] = ()


_ENGINES = {
    "espeak": _Source("triagesim.speech.espeak", "demo"),
    "kokoro": _Source("triagesim.speech.kokoro", "demo", ("kokoro-82m-int8", "kokoro-voices")),
    "xtts": _Source("triagesim.speech.xtts", "audio"),
}


def files_of(name: str) -> tuple[str, ...]:
    """The entries of the model catalogue that an engine needs."""
    return _find(name).files


def load_engine(name: str, options: Mapping[str, Any] | None = None) -> Engine:
    """Load the engine that the config names by its module's `load`.

    Args:
        options: what the engine is configured with beside its voices; only xtts takes any.

    Raises:
        MissingPackage: its package isn't installed.
        InputError: there is no such engine, its files aren't in the cache, or an option is wrong.
    """
    source = _find(name)
    try:
        engine: Engine = import_module(source.module).load(*map(placed, source.files), **(options or {}))
    except ImportError as error:
        raise MissingPackage(
            f"audio.engine: {name} needs the Python package {error.name}, which isn't installed or doesn't work "
            f'here: run pip install -e ".[{source.extra}]"'
        ) from None
    return engine


def choose_engine(
    name: str, markers: Sequence[Path], fallback: str | None, options: Mapping[str, Any] | None = None
) -> tuple[Engine, str | None]:
    """Load the engine `name`, or `fallback` and say why.

    Args:
        markers: what `workflow/scripts/fetch.py` wrote about the engine's files.
        options: as for `load_engine`.

    Raises:
        InputError: there is no fallback, or it can't be loaded either; or files that the markers say are available
            aren't in the cache.
    """
    notes = [json.loads(marker.read_bytes()) for marker in markers]
    missing = [f"{note['name']}: {note['why']}" for note in notes if not note["available"]]
    if not missing:
        try:
            return load_engine(name, options), None
        except MissingPackage as error:
            missing = [str(error)]
    why = f"{name} can't be had: {'; '.join(missing)}"
    if fallback is None:
        raise InputError(why)
    return load_engine(fallback), why


def plain(text: str) -> str:
    """Text for an engine: no control characters, which espeak-ng takes for commands, and no half characters."""
    return _CONTROL.sub(" ", text).encode("utf-8", errors="replace").decode("utf-8")


def _find(name: str) -> _Source:
    source = _ENGINES.get(name)
    if source is None:
        raise InputError(f"audio.engine: no speech engine {name!r}; expected one of: {', '.join(_ENGINES)}")
    return source
