"""What a speech engine is, and which there are."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol

from triagesim.errors import InputError
from triagesim.speech.voices import Voice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Engine(Protocol):
    """A source of speech; the same text, voice and seed give the same samples, whatever was said before.

    Attributes:
        name: as in the config, and of the file of its voices, `resources/voices/<name>.yaml`.
        version: changes when the same call would sound different.
        licence: of the software and voices that speak.
        limit: the most characters of one call; a longer line is split before.
    """

    name: str
    version: str
    licence: str
    limit: int

    def synthesize(self, text: str, voice: Voice, seed: int) -> tuple[NDArray[np.float32], int]:
        """Speak `text` (in spoken form): mono samples in -1 … 1, and their rate in Hz.

        Raises:
            InputError: the voice's parameters aren't what this engine takes.
        """
        ...


class _Source(NamedTuple):
    module: str
    extra: str


_ENGINES = {"espeak": _Source("triagesim.speech.espeak", "demo")}


def load_engine(name: str) -> Engine:
    """Load the engine that the config names; its module has a function `load`.

    Raises:
        InputError: there is no such engine, or its package isn't installed.
    """
    source = _ENGINES.get(name)
    if source is None:
        raise InputError(f"audio.engine: no speech engine {name!r}; expected one of: {', '.join(_ENGINES)}")
    try:
        engine: Engine = import_module(source.module).load()
    except ImportError as error:
        raise InputError(
            f"audio.engine: {name} needs the Python package {error.name}, which isn't installed: "
            f'run pip install -e ".[{source.extra}]"'
        ) from None
    return engine
