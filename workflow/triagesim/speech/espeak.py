"""The engine `espeak`: espeak-ng, whose library and data come inside the wheel espeakng-loader.

It sounds synthetic, is understood well, needs no weights and speaks about a thousand times faster than real time.
"""

from __future__ import annotations

import _ctypes
import ctypes
import itertools
import os
import re
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from triagesim.cases import explain
from triagesim.errors import InputError, TriageSimError
from triagesim.speech.engine import Word, plain
from triagesim.speech.voices import Voice, load_voices

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Constants of espeak-ng's speak_lib.h.
_SYNCHRONOUS = 2
_DONT_EXIT = 0x8000
_UTF8 = 1
_BY_CHARACTER = 1
_RATE = 1
_PITCH = 3

_END_OF_LIST = 0
_WORD = 1


class _Id(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    """espeak_EVENT of speak_lib.h; `text_position` counts characters from 1, `audio_position` milliseconds."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _Id),
    )


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


class _Parameters(BaseModel):
    """A voice of espeak-ng: language and variant (`en-us+f3`), words per minute, pitch (50 is the variant's own)."""

    model_config = ConfigDict(extra="forbid")

    voice: str = Field(pattern=r"^[A-Za-z0-9-]+(\+[A-Za-z0-9 ]+)?$")
    rate: int = Field(ge=80, le=450)
    pitch: int = Field(ge=0, le=99)


class Espeak:
    """espeak-ng through ctypes; not for several threads at once."""

    name = "espeak"
    licence = "GPL-3.0-or-later (espeak-ng; the wheel espeakng-loader carries it)"
    limit = 500

    def __init__(self, library: Path, data: Path) -> None:
        """Try the library once.

        Raises:
            TriageSimError: it can't be loaded, or doesn't find its data.
        """
        self._path = library
        self._data = data
        self.voices = load_voices(self.name)
        loaded, _ = self._load()
        loaded.espeak_Info.restype = ctypes.c_char_p
        self.version: str = loaded.espeak_Info(None).decode()
        self._unload(loaded)

    def synthesize(self, text: str, voice: Voice, seed: int) -> tuple[NDArray[np.float32], int]:
        """Speak `text`; an empty one gives a few milliseconds of silence."""
        samples, rate, _ = self.synthesize_words(text, voice, seed)
        return samples, rate

    def synthesize_words(self, text: str, voice: Voice, seed: int) -> tuple[NDArray[np.float32], int, list[Word]]:
        """As `synthesize`, with the begin of each word as espeak-ng reports it.

        The library keeps the phase of its oscillators from one utterance to the next and has no call that resets
        it, so every line gets a newly loaded one (half a millisecond).
        """
        import numpy as np

        said = plain(text)
        chunks: list[bytes] = []
        begins: list[tuple[int, float]] = []

        def keep(samples: ctypes._Pointer[ctypes.c_short], count: int, events: ctypes._Pointer[_Event]) -> int:
            if samples and count:
                chunks.append(ctypes.string_at(samples, 2 * count))
            for number in itertools.count():
                event = events[number]
                if event.type == _END_OF_LIST:
                    return 0
                if event.type == _WORD:
                    begins.append((event.text_position - 1, event.audio_position / 1000))
            return 0

        callback = _CALLBACK(keep)
        library, rate = self._load()
        try:
            library.espeak_SetSynthCallback(callback)
            self._set(library, voice, seed)
            coded = said.encode()
            if library.espeak_Synth(coded, ctypes.c_size_t(len(coded) + 1), 0, _BY_CHARACTER, 0, _UTF8, None, None):
                raise TriageSimError(f"espeak-ng failed at the text {text!r:.80}")
        finally:
            self._unload(library)
        samples = np.frombuffer(b"".join(chunks), np.int16).astype(np.float32) / np.float32(32768)
        return samples, rate, _words(said, begins)

    def _set(self, library: ctypes.CDLL, voice: Voice, seed: int) -> None:
        parameters = self._check(voice)
        if library.espeak_SetVoiceByName(parameters.voice.encode()):
            raise InputError(f"{_where(voice)}: espeak-ng has no language {parameters.voice.partition('+')[0]!r}")
        library.espeak_SetParameter(_RATE, min(max(round(parameters.rate * voice.tempo), 80), 450), 0)
        library.espeak_SetParameter(_PITCH, parameters.pitch, 0)
        library.espeak_ng_SetRandSeed(ctypes.c_long(seed))
        library.srand(seed)  # of the C library: the Klatt variants draw their noise from it

    def _check(self, voice: Voice) -> _Parameters:
        try:
            parameters = _Parameters.model_validate(voice.parameters)
        except ValidationError as error:
            raise InputError(f"{_where(voice)}: {explain(error)}") from None
        variant = parameters.voice.partition("+")[2]
        # The library takes an unknown variant without a word and speaks as the plain language does.
        if variant and not (self._data / "voices" / "!v" / variant).is_file():
            raise InputError(f"{_where(voice)}: espeak-ng has no variant {variant!r}")
        return parameters

    def _load(self) -> tuple[ctypes.CDLL, int]:
        if self._is_loaded():
            raise TriageSimError(
                "espeak-ng is already loaded by another part of this process, so its speech would depend on what was "
                "said there; render in a process of its own (workflow/scripts/render_audio.py)"
            )
        try:
            library = ctypes.CDLL(str(self._path))
        except OSError as error:
            raise TriageSimError(f"espeak-ng can't be loaded: {error}; install espeakng-loader anew") from None
        rate = library.espeak_Initialize(_SYNCHRONOUS, 0, str(self._data).encode(), _DONT_EXIT)
        if rate <= 0:
            raise TriageSimError(f"espeak-ng doesn't find its data in {self._data}; install espeakng-loader anew")
        return library, rate

    def _is_loaded(self) -> bool:
        try:
            found = ctypes.CDLL(str(self._path), mode=os.RTLD_NOLOAD)
        except OSError:
            return False
        _ctypes.dlclose(found._handle)
        return True

    @staticmethod
    def _unload(library: ctypes.CDLL) -> None:
        library.espeak_Terminate()
        _ctypes.dlclose(library._handle)


def load() -> Espeak:
    """The engine as the installed wheel has it; ImportError without that wheel."""
    import espeakng_loader

    return Espeak(Path(espeakng_loader.get_library_path()), Path(espeakng_loader.get_data_path()))


def _words(said: str, begins: list[tuple[int, float]]) -> list[Word]:
    """What stands between spaces, with the first begin in it (a number has several).

    Some pairs, as "out of", begin once: such a word stands with the one before it.
    """
    tokens = list(re.finditer(r"\S+", said))
    found: dict[int, float] = {}
    for position, seconds in begins:
        number = bisect_right(tokens, position, key=re.Match.start) - 1
        if number >= 0 and position < tokens[number].end():
            found.setdefault(number, seconds)
    words: list[Word] = []
    for number, token in enumerate(tokens):
        if number in found or not words:
            words.append(Word(token[0], found.get(number, 0.0)))
        else:
            words[-1] = Word(f"{words[-1].text} {token[0]}", words[-1].start)
    return words


def _where(voice: Voice) -> str:
    return f"resources/voices/espeak.yaml, voice {voice.id}"
