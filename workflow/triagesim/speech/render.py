"""Renders pooled dialogues: one two-channel file each, from lines that are spoken once and kept."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from triagesim.errors import InputError, TriageSimError
from triagesim.jsonl import digest, read_lines, write_jsonl
from triagesim.resources import load_yaml
from triagesim.speech.engine import Engine
from triagesim.speech.spoken import part_pause, rules_digest, split, spoken_form
from triagesim.speech.voices import Speaker, Voice, cast, load_voices

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CHANNELS: dict[Speaker, int] = {"nurse": 0, "patient": 1}

_SETTINGS = "speech/dialogue.yaml"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class RenderError(TriageSimError):
    """Some dialogues could not be rendered; all the others were."""

    exit_code = 1


class Line(NamedTuple):
    """A line of a dialogue: as written, as said, and the silence before it in seconds."""

    speaker: Speaker
    text: str
    spoken: str
    pause: float


def render_pool(
    pool: Path,
    manifest: Path,
    store: Path,
    engine: Engine,
    *,
    pairings: Sequence[str] | None = None,
    max_dialogues: int | None = None,
    shard: tuple[int, int] = (1, 1),
    fallback: str | None = None,
    log: Callable[[str], None],
) -> None:
    """Render the chosen dialogues of a pool to `<manifest's folder>/dialogues/`, then write the manifest.

    Args:
        store: folder of the spoken lines; what is there isn't asked of the engine again.
        pairings: whose dialogues are wanted; None for all.
        max_dialogues: the most dialogues of the whole pool, whatever the shard; None for all.
        shard: (i, n): the i-th of n parts of the chosen dialogues.
        fallback: why this engine speaks instead of the wanted one, for the manifest; None if it is the wanted one.
        log: is given a line of progress at a time.

    Raises:
        InputError: the pool isn't one.
        RenderError: dialogues failed; the others are rendered, and no manifest is written.
    """
    chosen = choose(pool, pairings, max_dialogues)
    mine = [row for row in chosen if _is_in(shard, row)]
    log(f"{engine.name} ({engine.version}): {len(mine)} of {len(chosen)} chosen dialogues are in shard {_name(shard)}")
    rows: list[dict[str, Any]] = []
    failed: list[str] = []
    seconds = 0.0
    for number, episode in enumerate(mine, 1):
        name = f"{episode['pairing']}/{episode['episode_id']}"
        try:
            rows.append(render_dialogue(episode, engine, manifest.parent, store, fallback))
        except Exception as error:
            failed.append(f"{name}: {error if isinstance(error, TriageSimError) else repr(error)}")
            log(f"{number}/{len(mine)} {failed[-1]}")
            continue
        seconds += rows[-1]["duration_s"]
        log(f"{number}/{len(mine)} {name}: {rows[-1]['duration_s']:.1f} s; {seconds:.1f} s of audio done")
    if failed:
        raise RenderError(
            f"{len(failed)} of {len(mine)} dialogues could not be rendered; the others are kept:\n  "
            + "\n  ".join(failed)
        )
    write_jsonl(manifest, rows)


def choose(pool: Path, pairings: Sequence[str] | None, max_dialogues: int | None) -> list[dict[str, Any]]:
    """The pool's dialogues that are to be spoken, fewest words first (then by pairing and episode).

    Raises:
        InputError: a line isn't a pooled episode, or one episode is there twice.
    """
    if not pool.is_file():
        raise InputError(f"{pool}: no such file; --pool names the pool that select_episodes.py writes")
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for number, row in read_lines(pool):
        _check(row, f"{pool}, line {number}")
        if pairings is not None and row["pairing"] not in pairings:
            continue
        # Without regard to case, as some file systems name files.
        key = (row["pairing"].lower(), row["episode_id"].lower())
        if key in rows:
            raise InputError(f"{pool}, line {number}: episode {row['pairing']}/{row['episode_id']} is already above")
        rows[key] = row
    ranked = sorted(rows.values(), key=lambda row: (_words(row), row["pairing"], row["episode_id"]))
    return ranked[:max_dialogues]


def render_dialogue(
    episode: dict[str, Any], engine: Engine, folder: Path, store: Path, fallback: str | None = None
) -> dict[str, Any]:
    """Render one pooled episode to `<folder>/dialogues/<pairing>/<episode id>.flac`.

    The file is 16-bit FLAC at the engine's rate, the nurse left and the patient right.

    Returns:
        The manifest's row: `file` relative to `folder`, times in seconds from the file's start.

    Raises:
        InputError: the history doesn't fit the transcript, or a voice's parameters aren't the engine's.
        TriageSimError: the engine gave silence for words, or another rate than before.
    """
    import numpy as np

    settings = load_yaml(_SETTINGS)
    voices = cast(episode, load_voices(engine.name))
    placed: list[tuple[int, int, NDArray[np.float32]]] = []
    lines: list[dict[str, Any]] = []
    rate = position = 0
    for line in script(episode):
        speech, line_rate = _speak(line.spoken, engine, voices[line.speaker], store)
        if line_rate != (rate or line_rate):
            raise TriageSimError(f"{engine.name} gave {line_rate} Hz after {rate} Hz; a dialogue has one rate")
        rate = line_rate
        start = position + round(line.pause * rate)
        position = start + len(speech)
        placed.append((start, CHANNELS[line.speaker], speech))
        times = {"start": round(start / rate, 3), "end": round(position / rate, 3)}
        lines.append({"speaker": line.speaker, "text": line.text, "spoken": line.spoken, **times})
    audio = np.zeros((position + round(settings["pauses"]["last"] * rate), 2), np.float32)
    for start, channel, speech in placed:
        audio[start : start + len(speech), channel] = speech
    audio = _levelled(audio, rate, **settings["level"])
    path = folder / "dialogues" / episode["pairing"] / f"{episode['episode_id']}.flac"
    _write_flac(path, audio, rate)
    loudness = _loudness(audio, rate)
    return {
        "pairing": episode["pairing"],
        "episode_id": episode["episode_id"],
        "file": path.relative_to(folder).as_posix(),
        "sha256": sha256(path.read_bytes()).hexdigest(),
        "duration_s": round(len(audio) / rate, 3),
        "rate": rate,
        "channels": dict(CHANNELS),
        "lufs": None if loudness is None else round(loudness, 1),
        "engine": {"name": engine.name, "version": engine.version, "licence": engine.licence, "fallback": fallback},
        "voices": {speaker: voice.model_dump() for speaker, voice in voices.items()},
        "lines": lines,
    }


def script(episode: dict[str, Any]) -> list[Line]:
    """The lines of a transcript with the pause before each; the history says where a vital sign was measured.

    Raises:
        InputError: a line of the transcript isn't in the history, in its order.
    """
    transcript, history = episode["transcript"], episode.get("history") or []
    pauses = load_yaml(_SETTINGS)["pauses"]
    vitals = [0] * (len(transcript) + 1)
    found = 0
    for entry in history:
        if entry.get("event") == "vital":
            vitals[found] += 1
        elif found < len(transcript) and entry.get("in_transcript") is not False:
            line = transcript[found]
            found += (entry.get("actor"), entry.get("utterance")) == (line["speaker"], line["text"])
    if history and found < len(transcript):
        raise InputError(f"line {found + 1} of the transcript isn't in the history: {transcript[found]['text']!r:.60}")
    lines: list[Line] = []
    for line, measured in zip(transcript, vitals, strict=False):
        kind = "first" if not lines else "same_speaker" if lines[-1].speaker == line["speaker"] else None
        pause = pauses[kind or f"{line['speaker']}_reply"] + measured * pauses["vital"]
        lines.append(Line(line["speaker"], line["text"], spoken_form(line["text"]), pause))
    return lines


def _speak(spoken: str, engine: Engine, voice: Voice, store: Path) -> tuple[NDArray[np.float32], int]:
    """The samples of a line and their rate, from the store, or first from the engine into it."""
    import soundfile

    # The seed follows from what is said and who says it: an equal line of an equal voice is rendered once.
    seed = int(digest([spoken, voice.id])[:8], 16) % 2**31
    key = digest([spoken, engine.name, engine.version, voice.parameters, seed, rules_digest()])
    path = store / key[:2] / f"{key}.flac"
    if not path.exists():
        _write_flac(path, *_synthesize(spoken, engine, voice, seed))
    try:
        samples, rate = soundfile.read(path, dtype="float32")
    except soundfile.LibsndfileError as error:
        raise TriageSimError(f"{path}: can't be read ({error}); remove it and run again") from None
    return samples, rate


def _synthesize(spoken: str, engine: Engine, voice: Voice, seed: int) -> tuple[NDArray[np.float32], int]:
    """Ask the engine for a line, part by part if it is longer than its limit."""
    import numpy as np

    pieces: list[NDArray[np.float32]] = []
    rate = 0
    for part in split(spoken, engine.limit) or [""]:
        samples, rate = engine.synthesize(part, voice, seed)
        if any(map(str.isalnum, part)) and not np.any(samples):
            raise TriageSimError(f"{engine.name}, voice {voice.id}: no sound for {part!r:.60}")
        pieces += [np.zeros(round(part_pause() * rate), np.float32), samples]
    return np.concatenate(pieces[1:]), rate


def _levelled(audio: NDArray[np.float32], rate: int, *, lufs: float, peak_dbfs: float) -> NDArray[np.float32]:
    """Bring each channel, then all of them together to a loudness, or to less where a peak would pass the limit."""
    import numpy as np

    for channel in audio.T:
        channel *= _gain(_loudness(channel, rate), lufs)
    peak = float(np.max(np.abs(audio), initial=0.0))
    most = 10 ** (peak_dbfs / 20) / peak if peak else 1.0
    return audio * np.float32(min(_gain(_loudness(audio, rate), lufs), most))


def _gain(loudness: float | None, wanted: float) -> float:
    return 1.0 if loudness is None else float(10 ** ((wanted - loudness) / 20))


def _loudness(audio: NDArray[np.float32], rate: int) -> float | None:
    """The integrated loudness in LUFS of one or two channels; None where there is nothing to hear."""
    import numpy as np
    import pyloudnorm

    with np.errstate(divide="ignore"):
        loudness = float(pyloudnorm.Meter(rate).integrated_loudness(audio))
    return loudness if np.isfinite(loudness) else None


def _write_flac(path: Path, samples: NDArray[np.float32], rate: int) -> None:
    """Write 16-bit FLAC under a temporary name, then rename it; samples outside -1 … 1 are clipped."""
    import soundfile

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with temporary.open("w+b") as file:
            soundfile.write(file, samples, rate, format="FLAC", subtype="PCM_16")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _check(row: dict[str, Any], where: str) -> None:
    for key in ("pairing", "episode_id"):
        if not isinstance(row.get(key), str) or not _PLAIN_NAME.fullmatch(row[key]):
            raise InputError(
                f"{where}: {key}: expected 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter or a digit "
                f"(found {row.get(key)!r:.60}); the pool is what select_episodes.py writes"
            )
    lines = row.get("transcript")
    if not isinstance(lines, list) or not lines or not all(map(_is_line, lines)):
        raise InputError(
            f"{where}: transcript: expected one or more of {{speaker: nurse or patient, text}} "
            f"in episode {row['episode_id']}"
        )


def _is_line(line: Any) -> bool:
    return isinstance(line, dict) and line.get("speaker") in CHANNELS and isinstance(line.get("text"), str)


def _words(row: dict[str, Any]) -> int:
    return sum(len(line["text"].split()) for line in row["transcript"])


def _is_in(shard: tuple[int, int], row: dict[str, Any]) -> bool:
    index, count = shard
    return int(digest([row["pairing"], row["episode_id"]]), 16) % count == index - 1


def _name(shard: tuple[int, int]) -> str:
    return "{}-of-{}".format(*shard)
