"""What spoken dialogues sound like, measured from their files: rate, pauses, pitch, how far two speakers are apart.

The fundamental frequency is found by normalised autocorrelation of frames of 40 ms (Rabiner 1977, IEEE Trans. ASSP
25:24-33), with numpy alone: enough to tell voices and manners of a synthetic corpus apart, not for a phonetic study.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from triagesim.bootstrap import ALIKE, CONFIDENCE, DRAWS, draw, percentiles, ratio
from triagesim.resources import load_yaml
from triagesim.speech.corpus import Dialogue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HEADER = ["pairing", "trait", "level", "measure", "value", "low", "high", "n", "note"]
CHECKS = [
    *("pairing", "episode_id", "file", "duration_s", "channels", "rate", "words", "expected_s", "leading_silence_s"),
    *("trailing_silence_s", "longest_silence_s", "clipped", "peak_dbfs", "lufs", "problems"),
]
_FILE = "speech/acoustics.yaml"


class Voice(NamedTuple):
    """What is measured of one speaker in one dialogue; None where too little is said for it.

    Attributes:
        pause_share: of the time from the speaker's first word to the last within a line, how much is silent.
        f0: median of the voiced frames in Hz; `f0_range` is from their 10th to their 90th percentile in semitones.
        spectrum: the long-term average spectrum in dB, in bands of a third of an octave.
    """

    role: str
    traits: Mapping[str, str]
    measures: Mapping[str, float | None]
    spectrum: NDArray[np.float64] | None


def measure(dialogue: Dialogue, audio: NDArray[np.float32], rate: int) -> list[Voice]:
    """Measure both speakers of a dialogue.

    Args:
        audio: samples × channels in -1 … 1.
    """
    voices = []
    for role, channel in dialogue.audio["channels"].items():
        lines = [line for _, line in dialogue.lines if line["speaker"] == role]
        parts = [audio[round(line["start"] * rate) : round(line["end"] * rate), channel] for line in lines]
        voices.append(Voice(role, dialogue.traits(role), _measures(lines, parts, rate), spectrum(parts, rate)))
    return voices


def _measures(lines: Sequence[Mapping[str, Any]], parts: Sequence[NDArray[np.float32]], rate: int) -> dict[str, Any]:
    import numpy as np

    seconds = sum(len(part) for part in parts) / rate
    if not seconds:
        return dict.fromkeys(MEASURES)
    words = [word for line in lines for word in words_of(line["spoken"])]
    pitch = np.concatenate([f0(part, rate) for part in parts])
    enough = len(pitch) >= load_yaml(_FILE)["f0"]["least_frames"]
    low, middle, high = np.percentile(pitch, [10, 50, 90]) if enough else (np.nan,) * 3
    return {
        "words_per_minute": 60 * len(words) / seconds,
        "syllables_per_second": sum(map(syllables, words)) / seconds,
        "pause_share": float(np.mean(np.concatenate([~_loud(part, rate) for part in parts]))),
        "f0_hz": float(middle) if enough else None,
        "f0_range_semitones": float(12 * np.log2(high / low)) if enough else None,
    }


MEASURES = ("words_per_minute", "syllables_per_second", "pause_share", "f0_hz", "f0_range_semitones")


def words_of(spoken: str) -> list[str]:
    """The words of a line in spoken form."""
    return re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", spoken)


def syllables(word: str) -> int:
    """About how many syllables an English word has: its groups of vowels, without a silent e at the end."""
    groups = re.findall(r"[aeiouy]+", word.lower())
    silent = re.search(r"[^aeiouyl]e$|[^aeiouytd]ed$|[^aeiouy]les?$", word.lower())
    ends_in_le = re.search(r"[^aeiouy]les?$", word.lower())
    return max(len(groups) - bool(silent and not ends_in_le), 1)


def f0(samples: NDArray[np.float32], rate: int) -> NDArray[np.float64]:
    """The fundamental frequency (Hz) of each voiced frame, every 20 ms."""
    import numpy as np

    settings = load_yaml(_FILE)["f0"]
    size, step = round(settings["frame_s"] * rate), round(settings["step_s"] * rate)
    shortest, longest = int(rate / settings["highest_hz"]), int(rate / settings["lowest_hz"]) + 1
    if len(samples) < size:
        return np.zeros(0)
    frames = np.lib.stride_tricks.sliding_window_view(samples.astype(np.float64), size)[::step]
    frames = frames - frames.mean(axis=1, keepdims=True)
    frames = frames[frames.std(axis=1) > settings["loudness"] * samples.std()]
    spectra = np.abs(np.fft.rfft(frames, 2 * size)) ** 2
    match = np.fft.irfft(spectra)[:, :size]
    # A shorter overlap at a longer lag would favour octaves up: scale by what overlaps.
    match = match * (size / (size - np.arange(size)))
    match = match / np.maximum(match[:, :1], 1e-12)
    window = match[:, shortest:longest]
    peak = window.max(axis=1, initial=0)
    # The first lag that is nearly as good as the best, so that an octave below isn't taken.
    lags = np.argmax(window >= settings["nearly"] * peak[:, None], axis=1)
    found = [shortest + _climb(row, int(lag)) for row, lag in zip(window, lags, strict=True)]
    return rate / np.array(found, float)[peak > settings["voiced"]] if len(found) else np.zeros(0)


def _climb(row: NDArray[np.float64], lag: int) -> int:
    """The top of the peak on whose slope a lag lies."""
    while lag + 1 < len(row) and row[lag + 1] > row[lag]:
        lag += 1
    return lag


def spectrum(parts: Sequence[NDArray[np.float32]], rate: int) -> NDArray[np.float64] | None:
    """The long-term average spectrum of what a speaker says: dB by band of a third of an octave, around its mean."""
    import numpy as np

    size = round(0.032 * rate)
    frames = [np.lib.stride_tricks.sliding_window_view(part, size)[:: size // 2] for part in parts if len(part) >= size]
    if not frames:
        return None
    power = np.mean(np.abs(np.fft.rfft(np.concatenate(frames) * np.hanning(size))) ** 2, axis=0)
    bins = np.fft.rfftfreq(size, 1 / rate)
    edges = 100 * 2 ** (np.arange(20) / 3)
    bands = [power[(bins >= low) & (bins < high)] for low, high in pairwise(edges)]
    levels = np.array([10 * np.log10(np.mean(band) + 1e-12) for band in bands if len(band)])
    levels = np.maximum(levels, levels.max() - load_yaml(_FILE)["spectrum_db"])
    return np.asarray(levels - levels.mean(), dtype=np.float64)


def apart(voices: Sequence[Voice]) -> dict[str, float | None]:
    """How far the two speakers of a dialogue are apart: in pitch (semitones) and in long-term spectrum (dB, RMS)."""
    import numpy as np

    one, other = voices
    pitches = one.measures["f0_hz"], other.measures["f0_hz"]
    spectra = one.spectrum, other.spectrum
    return {
        "speakers_f0_semitones": None if None in pitches else abs(12 * float(np.log2(pitches[0] / pitches[1]))),  # type: ignore[operator]
        "speakers_spectrum_db": (
            None
            if spectra[0] is None or spectra[1] is None
            else float(np.sqrt(np.mean((spectra[0] - spectra[1]) ** 2)))
        ),
    }


def rows(dialogues: Iterable[tuple[str, Sequence[Voice]]], seed: int) -> Iterator[list[Any]]:
    """The table: each measure by role and level of a trait, and how far speakers are apart; `HEADER` names the columns.

    The trait `nurse.all` or `patient.all` is everybody of the role. Intervals are of the mean, by dialogues drawn anew.
    """
    found: dict[tuple[str, str, str, str], list[float | None]] = {}
    for pairing, voices in dialogues:
        for group in (pairing, "all"):
            for voice in voices:
                levels = {"all": "all", **voice.traits}
                for (trait, level), name in ((pair, name) for pair in levels.items() for name in MEASURES):
                    found.setdefault((group, f"{voice.role}.{trait}", level, name), []).append(voice.measures[name])
            for name, value in apart(voices).items():
                found.setdefault((group, "both", "all", name), []).append(value)
    for key in sorted(found, key=lambda key: (key[0] == "all", *key)):
        yield [*key, *_mean(found[key], seed)]


def _mean(values: Sequence[float | None], seed: int) -> list[Any]:
    """value, low, high, n and note of a mean."""
    import numpy as np

    from triagesim.estimates import FEW

    known = [value for value in values if value is not None]
    missing = len(values) - len(known)
    note = f"{missing} dialogue(s) with too little speech" if missing else ""
    if not known:
        return [None, None, None, 0, note]
    if len(known) == 1:
        return [round(known[0], 4), None, None, 1, "; ".join(filter(None, [note, "one dialogue"]))]
    pairs = np.array([[value, 1.0] for value in known])
    low, high, _ = percentiles(draw(pairs, DRAWS, seed), ratio, CONFIDENCE).where_drawn_apart()
    few = f"fewer than {FEW} dialogues" if len(known) < FEW else ""
    alike = ALIKE if low is None or high is None else ""
    ends = [None if end is None else round(end, 4) for end in (low, high)]
    return [round(fmean(known), 4), *ends, len(known), "; ".join(filter(None, [note, few, alike]))]


def check(dialogue: Dialogue, audio: NDArray[np.float32], rate: int) -> list[Any]:
    """What is wrong with a file, if anything; `CHECKS` names the columns, and `problems` is empty where all is well."""
    import numpy as np

    limits = load_yaml(_FILE)["checks"]
    both = np.max(np.abs(audio), axis=1, initial=0.0)
    peak = float(both.max(initial=0.0))
    duration = len(audio) / rate
    sounding = np.flatnonzero(both > 10 ** (limits["silence_dbfs"] / 20))
    first, last = (int(sounding[0]), int(sounding[-1])) if len(sounding) else (len(audio), len(audio))
    longest = int(np.max(np.diff(sounding), initial=0)) / rate
    clipped = int(np.count_nonzero((both[:-1] >= limits["full_scale"]) & (both[1:] >= limits["full_scale"])))
    lines = [line for _, line in dialogue.lines]
    words = sum(len(words_of(line["spoken"])) for line in lines)
    spoken = sum(line["end"] - line["start"] for line in lines)
    expected = words * 60 / limits["words_per_minute"]
    loudness = dialogue.audio.get("lufs")
    problems = {
        "no sound": not len(sounding),
        "channels": audio.shape[1] != len(dialogue.audio["channels"]),
        "rate": rate != dialogue.audio["rate"],
        "duration": abs(duration - dialogue.audio["duration_s"]) > 0.002,
        "leading silence": first / rate > limits["edge_s"],
        "trailing silence": (len(audio) - last) / rate > limits["edge_s"],
        "long silence": longest > limits["gap_s"],
        "clipping": clipped > 0,
        "loudness": loudness is None or abs(loudness - limits["lufs"]) > limits["lufs_tolerance"],
        "speech too short": words > 0 and spoken < expected / limits["factor"],
        "speech too long": words > 0 and spoken > expected * limits["factor"],
        "silent speaker": _is_silent(dialogue, audio),
        "mono": _has_another_mono(dialogue, len(audio), rate),
    }
    return [
        *(dialogue.audio["pairing"], dialogue.audio["episode_id"], dialogue.audio["file"], round(duration, 3)),
        *(audio.shape[1], rate, words, round(expected, 1), round(first / rate, 3)),
        *(round((len(audio) - last) / rate, 3), round(longest, 3), clipped),
        *(round(20 * float(np.log10(peak)), 1) if peak else None, loudness),
        "; ".join(name for name, wrong in problems.items() if wrong),
    ]


def _is_silent(dialogue: Dialogue, audio: NDArray[np.float32]) -> bool:
    """Whether a speaker who has lines can't be heard."""
    import numpy as np

    speaking = {line["speaker"] for _, line in dialogue.lines}
    channels = dialogue.audio["channels"]
    return any(not np.any(audio[:, channels[role]]) for role in speaking if channels[role] < audio.shape[1])


def _has_another_mono(dialogue: Dialogue, frames: int, rate: int) -> bool:
    """Whether the mono mix, where there is one, is missing or isn't as long as the two channels."""
    import soundfile

    mono = dialogue.audio.get("mono")
    if not mono:
        return False
    try:
        info = soundfile.info(dialogue.folder / mono["file"])
    except (OSError, soundfile.LibsndfileError):
        return True
    return bool((info.frames, info.samplerate, info.channels) != (frames, rate, 1))


def _loud(samples: NDArray[np.float32], rate: int) -> NDArray[np.bool_]:
    """Whether each 20 ms of a line are louder than its pauses."""
    import numpy as np

    size = round(0.02 * rate)
    whole = samples[: len(samples) // size * size].reshape(-1, size)
    level = np.sqrt(np.mean(whole.astype(np.float64) ** 2, axis=1))
    return np.asarray(level > _floor() * np.max(level, initial=0))


@cache
def _floor() -> float:
    return float(10 ** (load_yaml(_FILE)["pause_db"] / 20))
