"""The engine `xtts`: Coqui's XTTS-v2, which clones voices from recordings, through the package coqui-tts.

It wants an environment of its own (`envs/audio.yaml`), weights whose licence the user has to accept, and speakers who
agreed to be cloned.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from triagesim.errors import InputError
from triagesim.jsonl import digest, dumps, sha256_of
from triagesim.resources import find_path
from triagesim.speech.crew import THREADS
from triagesim.speech.engine import plain
from triagesim.speech.speakers import Reference, as_voice, check_recordings, read_speakers
from triagesim.speech.voices import Voice
from triagesim.temporaries import replacing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Device = Literal["auto", "cpu", "cuda"]

#: What a model's folder must hold.
_FILES = ("config.json", "vocab.json", "model.pth")
#: The model's own settings of the voice and of the sampling, which the config's `sampling` may change.
_CLONING = ("gpt_cond_len", "gpt_cond_chunk_len", "max_ref_len", "sound_norm_refs")
_SAMPLING = ("temperature", "length_penalty", "repetition_penalty", "top_k", "top_p")
#: The rate (Hz) at which the model hears recordings, and at which it speaks.
_HEARS = 22_050
_SPEAKS = 24_000
_LICENCE = "CPML (weights of XTTS-v2: not for commercial use), MPL-2.0 (coqui-tts)"


class Xtts:
    """XTTS in this process, on a GPU or on one thread of a CPU.

    A speaker's latents are computed once and kept in the store by the hash of recordings and model.
    """

    name = "xtts"
    licence = _LICENCE

    def __init__(
        self,
        model: Path,
        speakers: Mapping[str, tuple[Reference, list[Path]]],
        latents: Path,
        *,
        device: Device,
        language: str,
        sampling: Mapping[str, float],
    ) -> None:
        """Load a model from its folder.

        Raises:
            ImportError: coqui-tts or something that it needs isn't installed.
            InputError: the folder, the language or the device isn't what it should be.
        """
        missing = [name for name in _FILES if not (model / name).is_file()]
        if missing:
            raise InputError(f"audio.xtts.model: {model} holds no {' and no '.join(missing)}")
        xtts, config = _import_xtts()
        import torch

        torch.set_num_threads(THREADS)
        with redirect_stdout(None):
            settings = config()
            settings.load_json(str(model / "config.json"))
            self._model = xtts(settings)
            self._model.load_checkpoint(settings, checkpoint_dir=str(model), eval=True)
        self._model.to(_device(device))
        if language not in settings.languages:
            raise InputError(
                f"audio.xtts.language: the model doesn't speak {language!r}; it speaks {', '.join(settings.languages)}"
            )
        self._language = language
        self._cloning = {name: settings[name] for name in _CLONING}
        self._sampling = {**{name: settings[name] for name in _SAMPLING}, **sampling}
        self._identity = _identity(model)
        self._latents = latents
        self._recordings = {one: paths for one, (_, paths) in speakers.items()}
        self._known: dict[str, tuple[Any, Any]] = {}
        self.voices: Sequence[Voice] = [as_voice(one, paths) for one, paths in speakers.values()]
        limits: dict[str, int] = self._model.tokenizer.char_limits
        self.limit = limits.get(language.partition("-")[0], min(limits.values()))
        self.version = (
            f"coqui-tts {version('coqui-tts')}, model {model.name} {self._identity[:8]}, {language}, "
            f"{dumps(self._cloning)}, {dumps(self._sampling)}"
        )

    def synthesize(self, text: str, voice: Voice, seed: int) -> tuple[NDArray[np.float32], int]:
        """Speak `text` as one of the listed speakers; one without a letter or a digit gives a moment of silence.

        The same seed gives the same samples on the same kind of device.
        """
        import numpy as np
        import torch

        if not any(map(str.isalnum, text)):
            return np.zeros(_SPEAKS // 100, np.float32), _SPEAKS
        heard, embedding = self._clone(voice)
        torch.manual_seed(seed)
        said = self._model.inference(plain(text), self._language, heard, embedding, speed=voice.tempo, **self._sampling)
        return np.clip(np.asarray(said["wav"], np.float32), -1, 1), _SPEAKS

    def _clone(self, voice: Voice) -> tuple[Any, Any]:
        """The latents of a speaker, from memory, from the store, or from the recordings into both."""
        import numpy as np
        import torch

        if voice.id not in self._known:
            key = digest([self._identity, voice.parameters, self._cloning])
            path = self._latents / f"{key}.npz"
            if not path.exists():
                _write_latents(path, *self._listen(voice))
            try:
                with np.load(path) as kept:
                    self._known[voice.id] = torch.from_numpy(kept["heard"]), torch.from_numpy(kept["embedding"])
            except (ValueError, OSError, KeyError) as error:
                raise InputError(f"{path}: can't be read ({error}); remove it and run again") from None
        return self._known[voice.id]

    def _listen(self, voice: Voice) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What the model keeps of a speaker: latents of how it speaks, and an embedding of who it is.

        As the package's own `get_conditioning_latents`, but for the reading of files, which there needs ffmpeg.
        """
        import soundfile
        import torch
        import torchaudio

        heard, embeddings = [], []
        with torch.inference_mode():
            for path in self._recordings[voice.id]:
                samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
                mono = torch.from_numpy(samples.mean(axis=1))[None]
                mono = torchaudio.functional.resample(mono, rate, _HEARS).clip(-1, 1)
                mono = mono[:, : _HEARS * self._cloning["max_ref_len"]].to(self._model.device)
                if self._cloning["sound_norm_refs"]:
                    mono = mono / mono.abs().max() * 0.75
                heard.append(mono)
                embeddings.append(self._model.get_speaker_embedding(mono, _HEARS))
            latents = self._model.get_gpt_cond_latents(
                torch.cat(heard, dim=-1),
                _HEARS,
                length=self._cloning["gpt_cond_len"],
                chunk_length=self._cloning["gpt_cond_chunk_len"],
            )
            return latents.cpu().numpy(), torch.stack(embeddings).mean(dim=0).cpu().numpy()


def load(
    *,
    model: str,
    accept_license: bool,
    speakers: str,
    latents: str,
    device: Device = "auto",
    language: str = "en",
    sampling: Mapping[str, float] | None = None,
) -> Xtts:
    """The engine as `audio.xtts` configures it.

    Args:
        model: a folder, or a name that coqui-tts knows and fetches.
        latents: the folder where speakers' latents are kept.

    Raises:
        InputError: the licence of the weights isn't accepted, or an option is wrong.
    """
    if not accept_license:
        raise InputError(
            "audio.xtts.accept_license: the weights of XTTS-v2 are under the Coqui Public Model License, which allows "
            "no commercial use (https://coqui.ai/cpml); set it to true if you have read and accept it"
        )
    listed = read_speakers(speakers)
    check_recordings(speakers, listed)
    folder = find_path(model)
    if not folder.is_dir():
        folder = _fetched(model)
    return Xtts(folder, listed, Path(latents), device=device, language=language, sampling=sampling or {})


def _fetched(name: str) -> Path:
    """The folder of a model that coqui-tts fetches, once, to $TTS_HOME; the user has accepted its licence."""
    if name.count("/") != 3 or not name.startswith("tts_models/"):
        raise InputError(
            f"audio.xtts.model: there is no folder {name}, and it is no name of a model, such as "
            "tts_models/multilingual/multi-dataset/xtts_v2"
        )
    _import_xtts()
    from TTS.utils.manage import ModelManager

    os.environ["COQUI_TOS_AGREED"] = "1"
    try:
        with redirect_stdout(None):
            return Path(str(ModelManager(progress_bar=False).download_model(name)[1])).parent
    except Exception as error:
        raise InputError(
            f"audio.xtts.model: {name} can't be fetched ({error}); give the path of a folder that holds "
            f"{', '.join(_FILES)}"
        ) from None


def _import_xtts() -> tuple[Any, Any]:
    """The classes of the model and of its configuration."""
    try:
        from TTS.tts.configs.xtts_config import XttsConfig
        from TTS.tts.models.xtts import Xtts as Model
    except OSError as error:
        raise InputError(
            f"audio.engine: xtts can't load torchaudio ({error}); where torch is a build for CPUs, run "
            "python envs/cpu_torchaudio.py once in this environment"
        ) from None
    return Model, XttsConfig


def _device(wanted: Device) -> str:
    import torch

    there = torch.cuda.is_available()
    if wanted == "cuda" and not there:
        raise InputError("audio.xtts.device: cuda, and torch finds no GPU here; set it to auto or cpu")
    return "cuda" if there and wanted != "cpu" else "cpu"


def _identity(model: Path) -> str:
    """The hash of the model's files."""
    return digest([sha256_of(model / name) for name in _FILES])


def _write_latents(path: Path, heard: NDArray[np.float32], embedding: NDArray[np.float32]) -> None:
    import numpy as np

    with replacing(path) as temporary:
        np.savez(temporary, heard=heard, embedding=embedding)
