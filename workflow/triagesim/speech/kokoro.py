"""The engine `kokoro`: Kokoro-82M, a neural voice for the CPU, through the package kokoro-onnx.

It sounds like a person, and speaks about half again as fast as real time on one core.
"""

from __future__ import annotations

import re
import shutil
import tarfile
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from triagesim.cases import explain
from triagesim.errors import InputError
from triagesim.fetch import Entry
from triagesim.speech.engine import plain
from triagesim.speech.voices import Voice, load_voices

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: The English styles in the archive of voices: float32, one row of 256 for each number of phonemes up to 510.
_STYLE = re.compile(r"package/voices/([ab][fm]_[a-z]+)\.bin")
_STYLE_SHAPE = (510, 1, 256)
#: The model's samples go past full scale with some voices (to 1.1 as measured); this leaves room.
_HEADROOM = 0.5
#: Samples a second, as the model speaks.
_RATE = 24_000


class _Parameters(BaseModel):
    """A voice of Kokoro: its style, the language that its text is read in, and its speed (1 is the style's own)."""

    model_config = ConfigDict(extra="forbid")

    style: str
    language: Literal["en-us", "en-gb"]
    speed: float = Field(ge=0.5, le=2)


class Kokoro:
    """Kokoro-82M in onnxruntime; espeak-ng, behind phonemizer, turns the text into phonemes."""

    name = "kokoro"
    licence = (
        "Apache-2.0 (Kokoro-82M and its voices), MIT (kokoro-onnx, onnxruntime), "
        "GPL-3.0-or-later (phonemizer and espeak-ng, which turn the text into phonemes)"
    )
    limit = 300

    def __init__(self, model: Entry, voices: Entry) -> None:
        """Load the model, which takes a second and 400 MB of memory.

        Raises:
            ImportError: kokoro-onnx or something that it needs isn't installed.
        """
        import espeakng_loader
        import numpy as np
        import onnxruntime
        from kokoro_onnx import Kokoro as Onnx
        from kokoro_onnx.config import EspeakConfig
        from phonemizer.backend import EspeakBackend

        self.voices = load_voices(self.name)
        options = onnxruntime.SessionOptions()
        # A second of speech takes 0.65 s of CPU time on one thread and 1.0 s on two; the samples are the same.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(model.path), options, providers=["CPUExecutionProvider"])
        self._folder = TemporaryDirectory(prefix="triagesim-kokoro-")
        styles = Path(self._folder.name) / "styles.npz"
        np.savez(styles, **_read_styles(voices.path))
        # Whatever library the package is given stays loaded; a copy leaves the wheel's own to the engine espeak.
        library = shutil.copy(espeakng_loader.get_library_path(), self._folder.name)
        self._onnx = Onnx.from_session(session, str(styles), EspeakConfig(lib_path=library))
        espeak = ".".join(map(str, EspeakBackend.version()))
        self.version = (
            f"kokoro-onnx {version('kokoro-onnx')}, onnxruntime {version('onnxruntime')}, espeak-ng {espeak}, "
            f"model {model.sha256[:8]}, voices {voices.sha256[:8]}"
        )

    def synthesize(self, text: str, voice: Voice, seed: int) -> tuple[NDArray[np.float32], int]:
        """Speak `text`; one without a letter or a digit gives a few milliseconds of silence.

        The seed has no part in it: nothing is drawn by chance.
        """
        import numpy as np

        parameters = self._check(voice)
        phonemes = ""
        if any(map(str.isalnum, text)):
            phonemes = self._onnx.tokenizer.phonemize(plain(text), parameters.language)
        if not phonemes:
            return np.zeros(_RATE // 100, np.float32), _RATE
        speed = min(max(parameters.speed * voice.tempo, 0.5), 2.0)
        samples, rate = self._onnx.create(phonemes, parameters.style, speed, is_phonemes=True)
        return np.clip(samples * np.float32(_HEADROOM), -1, 1), rate

    def _check(self, voice: Voice) -> _Parameters:
        where = f"resources/voices/kokoro.yaml, voice {voice.id}"
        try:
            parameters = _Parameters.model_validate(voice.parameters)
        except ValidationError as error:
            raise InputError(f"{where}: {explain(error)}") from None
        known = self._onnx.get_voices()
        if parameters.style not in known:
            raise InputError(f"{where}: Kokoro has no English style {parameters.style!r}; it has {', '.join(known)}")
        return parameters


def load(model: Entry, voices: Entry) -> Kokoro:
    """The engine with the files of two catalogue entries that are in their place."""
    return Kokoro(model, voices)


def _read_styles(archive: Path) -> dict[str, Any]:
    """The style arrays by name."""
    import numpy as np

    styles = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            if (match := _STYLE.fullmatch(member.name)) and (packed := tar.extractfile(member)):
                styles[match[1]] = np.frombuffer(packed.read(), np.dtype("<f4")).reshape(_STYLE_SHAPE)
    return styles
