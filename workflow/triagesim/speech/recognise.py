"""Speech recognition: what a recogniser hears of each line of the spoken dialogues."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from triagesim.errors import InputError
from triagesim.fetch import catalogue, placed
from triagesim.jsonl import digest, write_jsonl
from triagesim.resources import load_yaml
from triagesim.speech.sound import read_audio
from triagesim.stored import read_recordings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FILE = "speech/asr.yaml"
#: What Whisper is given.
_RATE = 16_000
_NEEDED = ("config.json", "model.bin", "tokenizer.json")
_VOCABULARY = re.compile(r"vocabulary\.(?:txt|json)")
#: A piece of a file that a package carries in parts.
_PART = re.compile(r"(.+)\.part(\d+)")


def files_of_recogniser(model: str) -> list[str]:
    """The entries of the model catalogue that a recogniser is made of; none for a folder of the user's own.

    Raises:
        InputError: there is no such recogniser.
    """
    if "/" in model:
        return []
    models: dict[str, list[str]] = load_yaml(_FILE)["models"]
    if model not in models:
        raise InputError(
            f"audio.transcribe.model: no recogniser {model!r}; expected one of {', '.join(models)}, or the path of a "
            "folder with a Whisper model for CTranslate2 (with a / in it)"
        )
    return models[model]


def check_installed() -> None:
    """Say that the extra `asr` isn't there, before anything runs that it would be too late after.

    Raises:
        InputError: a package of it isn't there.
    """
    for name in ("faster_whisper", "jiwer"):
        if find_spec(name) is None:
            raise _lacks(name)


def _lacks(package: str | None) -> InputError:
    return InputError(
        f"audio.transcribe needs the Python package {package}, which isn't installed or doesn't work here: "
        'run pip install -e ".[asr]"'
    )


class Recogniser:
    """A Whisper model in CTranslate2, on the CPU; the same samples give the same words.

    Attributes:
        name: as in the config.
        version: changes when the same samples could give other words.
    """

    def __init__(self, model: str, threads: int = 1) -> None:
        """Load it, which takes a second and twice the model's size of memory.

        Raises:
            InputError: faster-whisper isn't installed, or the model isn't in its place.
        """
        try:
            from faster_whisper import WhisperModel
        except ImportError as error:
            raise _lacks(error.name) from None
        self.name = model
        with TemporaryDirectory(prefix="triagesim-asr-") as folder:
            path = Path(model) if "/" in model else _unpacked(model, Path(folder))
            missing = [name for name in _NEEDED if not (path / name).is_file()]
            if not any(_VOCABULARY.fullmatch(file.name) for file in path.glob("*")):
                missing.append("vocabulary.txt")
            if missing:
                raise InputError(f"audio.transcribe.model: {path} has no {', '.join(missing)}")
            self._model = WhisperModel(str(path), device="cpu", compute_type="int8", cpu_threads=threads)
        marks = [catalogue()[name].sha256 for name in files_of_recogniser(model)]
        self.version = (
            f"faster-whisper {version('faster-whisper')}, ctranslate2 {version('ctranslate2')}, model "
            f"{digest(marks)[:8] if marks else 'of the user'}"
        )

    def hear(self, samples: NDArray[np.float32], rate: int) -> str:
        """The words of one line of English speech; mono samples in -1 … 1."""
        import numpy as np
        from scipy.signal import resample_poly

        if not np.any(samples):
            return ""
        divisor = int(np.gcd(rate, _RATE))
        heard = resample_poly(samples, _RATE // divisor, rate // divisor).astype(np.float32)
        # One pass at temperature 0: nothing is drawn, and no text from before leads it on.
        segments, _ = self._model.transcribe(
            heard,
            language="en",
            temperature=0.0,
            condition_on_previous_text=False,
            without_timestamps=True,
        )
        return " ".join("".join(segment.text for segment in segments).split())


def transcribe(manifest: Path, out: Path, recogniser: Recogniser, log: Callable[[str], None]) -> None:
    """Write what is heard of each dialogue of an audio manifest, line by line, from the speaker's own channel.

    Raises:
        InputError: an audio file can't be read.
    """
    rows = [row for _, row in read_recordings(manifest)]
    done: list[dict[str, Any]] = []
    for number, row in enumerate(rows, 1):
        done.append(
            {
                "pairing": row["pairing"],
                "episode_id": row["episode_id"],
                "engine": row["engine"]["name"],
                "recogniser": {"name": recogniser.name, "version": recogniser.version},
                "lines": [
                    {"speaker": line["speaker"], "text": line["text"], "heard": heard}
                    for line, heard in zip(row["lines"], _heard(row, manifest.parent, recogniser), strict=True)
                ],
            }
        )
        log(f"{number}/{len(rows)} {row['pairing']}/{row['episode_id']}: {len(row['lines'])} lines")
    write_jsonl(out, done)


def _heard(row: dict[str, Any], folder: Path, recogniser: Recogniser) -> Iterator[str]:
    import numpy as np

    audio, rate = read_audio(folder / row["file"])
    silence = np.zeros(round(load_yaml(_FILE)["padding"] * rate), np.float32)
    for line in row["lines"]:
        start, end = (round(line[edge] * rate) for edge in ("start", "end"))
        samples = audio[start:end, row["channels"][line["speaker"]]]
        yield recogniser.hear(np.concatenate([silence, samples, silence]), rate)


def _unpacked(model: str, folder: Path) -> Path:
    """A recogniser's files, out of the packages that carry them."""
    _unpack([placed(name).path for name in files_of_recogniser(model)], folder)
    return folder


def _unpack(packages: Sequence[Path], folder: Path) -> None:
    """Write the needed files of some wheels into a folder; those in parts are put together in the order of packages."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in packages:
        with zipfile.ZipFile(package) as archive:
            for member in sorted(archive.namelist()):
                name = Path(member).name
                whole = part[1] if (part := _PART.fullmatch(name)) else name
                if whole in _NEEDED or _VOCABULARY.fullmatch(whole):
                    with (folder / whole).open("ab") as file:
                        file.write(archive.read(member))
