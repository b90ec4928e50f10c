"""Samples: files, rates, loudness, and what a room or a telephone does to a voice."""

from __future__ import annotations

import io
from functools import cache
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from triagesim.errors import InputError
from triagesim.temporaries import replacing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Channel = Literal["clean", "room", "telephone"]
Format = Literal["flac", "wav"]

#: Of every dialogue, in Hz.
RATE = 24_000
#: How much finer than the samples a peak is looked for (ITU-R BS.1770-5, annex 2).
_OVERSAMPLING = 4


def resampled(samples: NDArray[np.float32], rate: int, wanted: int) -> NDArray[np.float32]:
    """Samples of one channel at another rate, a polyphase filter between."""
    import numpy as np
    from scipy.signal import resample_poly

    if rate == wanted or not len(samples):
        return samples
    common = gcd(rate, wanted)
    return np.asarray(resample_poly(samples, wanted // common, rate // common), np.float32)


def in_room(
    audio: NDArray[np.float32],
    rate: int,
    seed: int,
    *,
    rt60: tuple[float, float],
    direct_to_echo_db: tuple[float, float],
    delay: float,
) -> NDArray[np.float32]:
    """Both speakers (columns) in one drawn room; the voice itself isn't moved in time.

    Args:
        rt60, direct_to_echo_db, delay: as in `resources/speech/dialogue.yaml`.
    """
    import numpy as np
    from scipy.signal import fftconvolve

    draw = np.random.default_rng(seed)
    seconds = draw.uniform(*rt60)
    count = round(seconds * rate)
    # 60 dB are a factor of a thousand.
    decay = 1000 ** (-np.arange(count) / count)
    decay[: round(delay * rate)] = 0
    heard = audio.copy()
    for channel in heard.T:
        echo = draw.standard_normal(count) * decay
        level = 10 ** (-draw.uniform(*direct_to_echo_db) / 20) / np.sqrt(np.sum(echo**2))
        channel += fftconvolve(channel, (echo * level).astype(np.float32))[: len(channel)]
    return heard


def over_telephone(
    audio: NDArray[np.float32], wire: int, *, band: tuple[float, float], rate: int, mu: int
) -> NDArray[np.float32]:
    """Each speaker (column) through a telephone line: its band, its rate, eight bits a sample in mu-law, and back.

    Args:
        wire: the rate of `audio`.
        band, rate, mu: as in `resources/speech/dialogue.yaml`; ITU-T G.711 in its continuous form.
    """
    import numpy as np
    from scipy.signal import butter, sosfiltfilt

    # Forwards and backwards, so that nothing moves in time.
    limits = butter(4, band, "bandpass", fs=wire, output="sos")
    heard = np.zeros_like(audio)
    for number, channel in enumerate(audio.T):
        low = resampled(sosfiltfilt(limits, channel).astype(np.float32), wire, rate)
        coded = np.round(np.sign(low) * np.log1p(mu * np.minimum(np.abs(low), 1)) / np.log1p(mu) * 127)
        decoded = np.sign(coded) * np.expm1(np.abs(coded) / 127 * np.log1p(mu)) / mu
        back = resampled(decoded.astype(np.float32), rate, wire)[: len(channel)]
        heard[: len(back), number] = back
    return heard


def through(channel: Channel, audio: NDArray[np.float32], seed: int, settings: dict[str, Any]) -> NDArray[np.float32]:
    """A dialogue at `RATE` as it sounds over a channel.

    Args:
        settings: the content of `resources/speech/dialogue.yaml`.
    """
    if channel == "room":
        return in_room(audio, RATE, seed, **settings["room"])
    if channel == "telephone":
        return over_telephone(audio, RATE, **settings["telephone"])
    return audio


def speakers_levelled(audio: NDArray[np.float32], lufs: float) -> NDArray[np.float32]:
    """Each speaker (column) at the same loudness."""
    import numpy as np

    gains = [_gain(loudness(channel), lufs) for channel in audio.T]
    return audio * np.array(gains, np.float32)


def levelled(audio: NDArray[np.float32], *, lufs: float, peak_dbtp: float) -> NDArray[np.float32]:
    """The whole at a loudness, or at less where a peak would pass the limit."""
    import numpy as np

    peak = true_peak(audio)
    most = 10 ** (peak_dbtp / 20) / peak if peak else 1.0
    return audio * np.float32(min(_gain(loudness(audio), lufs), most))


def true_peak(audio: NDArray[np.float32]) -> float:
    """The highest absolute value of any channel, between the samples too."""
    import numpy as np
    from scipy.signal import resample_poly

    peak = float(np.max(np.abs(audio), initial=0.0))
    for channel in audio.T if audio.ndim == 2 else [audio]:
        between = resample_poly(channel, _OVERSAMPLING, 1) if len(channel) else channel
        peak = max(peak, float(np.max(np.abs(between), initial=0.0)))
    return peak


def loudness(audio: NDArray[np.float32]) -> float | None:
    """The integrated loudness in LUFS of one or two channels at `RATE`; None where there is nothing to hear."""
    import numpy as np

    block = _meter().block_size * RATE
    if len(audio) < block:
        audio = np.concatenate([audio, np.zeros((int(block) + 1 - len(audio), *audio.shape[1:]), np.float32)])
    with np.errstate(divide="ignore"):
        measured = float(_meter().integrated_loudness(audio))
    return measured if np.isfinite(measured) else None


def write_audio(path: Path, samples: NDArray[np.float32], rate: int) -> None:
    """Write 16-bit FLAC or WAV, as the name ends, whole or not at all; loud samples are clipped."""
    import soundfile

    # In memory first: libsndfile doesn't say that a disk is full.
    packed = io.BytesIO()
    soundfile.write(packed, samples, rate, format=path.suffix[1:].upper(), subtype="PCM_16")
    with replacing(path) as temporary:
        temporary.write_bytes(packed.getbuffer())


def read_audio(path: Path) -> tuple[NDArray[np.float32], int]:
    """The samples of a rendered file (samples × channels in -1 … 1), and their rate in Hz.

    Raises:
        InputError: it isn't there, or can't be read.
    """
    import soundfile

    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, soundfile.LibsndfileError) as error:
        raise unreadable(path, error) from None
    return samples, rate


def unreadable(path: Path, error: Exception) -> InputError:
    """What is said of a rendered file that can't be read."""
    return InputError(f"{path}: can't be read ({error}); render the audio anew")


def _gain(now: float | None, wanted: float) -> float:
    return 1.0 if now is None else float(10 ** ((wanted - now) / 20))


@cache
def _meter() -> Any:
    import pyloudnorm

    return pyloudnorm.Meter(RATE)
