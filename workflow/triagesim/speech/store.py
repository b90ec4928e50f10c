"""Spoken lines, each rendered once: kept by the hash of all that makes them sound as they do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from triagesim.errors import TriageSimError
from triagesim.jsonl import digest, write_json
from triagesim.speech.engine import Engine, TimedEngine, Word
from triagesim.speech.sound import write_audio
from triagesim.speech.spoken import part_pause, split
from triagesim.speech.voices import Voice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Said(NamedTuple):
    """What is said by whom, and the file (FLAC at the engine's rate) that it is kept in.

    Beside the file of an engine that knows words, a .json of the same name holds them as [text, seconds].
    """

    spoken: str
    voice: Voice
    seed: int
    path: Path


def find(spoken: str, voice: Voice, *, store: Path, engine: str, version: str, rules: str, seed: int) -> Said:
    """Where a line is kept; its own seed follows from what is said and who says it, so that equal lines are one.

    Args:
        engine, version: of the engine that speaks.
        rules: the hash of the rules that made the spoken form.
        seed: the run's.
    """
    own = int(digest([seed, spoken, voice.id])[:8], 16) % 2**31
    key = digest([spoken, engine, version, voice.parameters, voice.tempo, own, rules])
    return Said(spoken, voice, own, store / key[:2] / f"{key}.flac")


def speak(engine: Callable[[], Engine], said: Said) -> float:
    """Have a line spoken into its file unless it is there; the seconds that it lasts.

    Raises:
        TriageSimError: the engine gave silence for words, or no numbers.
    """
    import soundfile

    if not said.path.exists():
        samples, rate, words = _synthesize(said, engine())
        if words is not None:
            write_json(said.path.with_suffix(".json"), words)
        write_audio(said.path, samples, rate)
    try:
        return float(soundfile.info(said.path).duration)
    except soundfile.LibsndfileError as error:
        raise _unreadable(said.path, error) from None


def read(said: Said) -> tuple[NDArray[np.float32], int, list[Word] | None]:
    """The samples of a kept line, their rate, and its words if its engine knows them.

    Raises:
        TriageSimError: the file can't be read.
    """
    import soundfile

    words = said.path.with_suffix(".json")
    try:
        samples, rate = soundfile.read(said.path, dtype="float32")
        known = [Word(*word) for word in json.loads(words.read_bytes())] if words.exists() else None
    except (soundfile.LibsndfileError, ValueError) as error:
        raise _unreadable(said.path, error) from None
    return samples, rate, known


def _unreadable(path: Path, error: Exception) -> TriageSimError:
    return TriageSimError(f"{path}: can't be read ({error}); remove it and run again")


def _synthesize(said: Said, engine: Engine) -> tuple[NDArray[np.float32], int, list[Word] | None]:
    """Ask the engine for a line, part by part if it is longer than its limit."""
    import numpy as np

    pieces: list[NDArray[np.float32]] = []
    words: list[Word] | None = [] if isinstance(engine, TimedEngine) else None
    rate = length = 0
    for part in split(said.spoken, engine.limit) or [""]:
        if words is not None and isinstance(engine, TimedEngine):
            samples, rate, found = engine.synthesize_words(part, said.voice, said.seed)
        else:
            samples, rate = engine.synthesize(part, said.voice, said.seed)
            found = []
        if any(map(str.isalnum, part)) and not np.any(samples):
            raise TriageSimError(f"{engine.name}, voice {said.voice.id}: no sound for {part!r:.60}")
        if not np.all(np.isfinite(samples)):
            raise TriageSimError(f"{engine.name}, voice {said.voice.id}: samples that aren't numbers for {part!r:.60}")
        pause = round(part_pause() * rate) if pieces else 0
        if words is not None:
            words += [Word(word.text, round((length + pause) / rate + word.start, 3)) for word in found]
        pieces += [np.zeros(pause, np.float32), samples]
        length += pause + len(samples)
    return np.concatenate(pieces), rate, words
