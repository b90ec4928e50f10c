"""Renders pooled dialogues: a two-channel file and a mono mix each, from lines that are spoken once and kept."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from triagesim.errors import InputError, TriageSimError
from triagesim.jsonl import digest, read_lines, sha256_of, write_jsonl
from triagesim.resources import load_yaml
from triagesim.speech.casting import Casting
from triagesim.speech.crew import About, Crew, Failed, Load, Work, crew
from triagesim.speech.dialogue import SETTINGS, Line, script
from triagesim.speech.engine import Engine
from triagesim.speech.sound import (
    RATE,
    Channel,
    Format,
    levelled,
    loudness,
    resampled,
    speakers_levelled,
    through,
    write_audio,
)
from triagesim.speech.spoken import rules_digest
from triagesim.speech.store import Said, find, read, speak
from triagesim.speech.voices import Speaker, Voice
from triagesim.stored import read_episodes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CHANNELS: dict[Speaker, int] = {"nurse": 0, "patient": 1}

#: Failures that an error names; the rest is counted.
_NAMED = 50
#: Seconds from one progress line to the next.
_PROGRESS_EVERY = 10.0
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class RenderError(TriageSimError):
    """More dialogues could not be rendered than may fail; all the others were."""

    exit_code = 1


@dataclass(frozen=True)
class Style:
    """How dialogues sound, beside what the engine does.

    Attributes:
        seed: of the casting, the gaps, the room and the engine.
        splits: shares of the patients by split, where no voice may be heard in two; None where any may.
        split_seed: of the draw of patients.
    """

    channel: Channel = "clean"
    format: Format = "flac"
    seed: int = 0
    splits: Mapping[str, float] | None = None
    split_seed: int = 0


class Job(NamedTuple):
    """A dialogue that is to be put together from spoken lines."""

    pairing: str
    episode_id: str
    lines: list[tuple[Line, Said]]
    voices: dict[Speaker, Voice]

    @property
    def name(self) -> str:
        """As a reader finds it."""
        return f"{self.pairing}/{self.episode_id}"


def render_pool(
    pool: Path,
    manifest: Path,
    store: Path,
    load: Load,
    *,
    style: Style | None = None,
    pairings: Sequence[str] | None = None,
    max_dialogues: int | None = None,
    shard: tuple[int, int] = (1, 1),
    workers: int = 1,
    max_error_rate: float = 0,
    log: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Render the chosen dialogues of a pool to `<manifest's folder>/dialogues/`, then write the manifest.

    Args:
        store: folder of the spoken lines; what is there isn't asked of the engine again.
        load: gives the engine and, if it isn't the wanted one, why; it is called once in each worker.
        pairings: whose dialogues are wanted; None for all.
        max_dialogues: the most dialogues of the whole pool, whatever the shard; None for all.
        shard: (i, n): the i-th of n parts of the chosen dialogues.
        workers: processes that speak.
        max_error_rate: share of the shard's dialogues that may fail without failing all.
        log: is given a line of progress at a time.

    Returns:
        What failed, as `pairing`, `episode_id`, `line` (from 1; None for the whole dialogue) and `error`.

    Raises:
        InputError: the pool isn't one.
        RenderError: too many dialogues failed; the others are rendered, and no manifest is written.
    """
    style = style or Style()
    everything = read_pool(pool)
    chosen = choose(everything, pairings, max_dialogues)
    mine = whole_episodes(pool, [row for row in chosen if _is_in(shard, row)])
    with crew(load, workers) as team:
        about = team.about()
        if about.fallback:
            log(f"warning: {about.name} speaks: {about.fallback}")
        log(f"{about.name} ({about.version}); licence: {about.licence}")
        log(f"{len(mine)} of {len(chosen)} chosen dialogues are in shard {_name(shard)}")
        casting = Casting(about.voices, everything, seed=style.seed, splits=style.splits, split_seed=style.split_seed)
        jobs, failed = _plan(mine, casting, about, store, style)
        failed += _speak_all(team, jobs, log)
        broken = {(row["pairing"], row["episode_id"]) for row in failed}
        whole = [job for job in jobs if (job.pairing, job.episode_id) not in broken]
        rows, unmade = _assemble_all(team, whole, about, manifest.parent, style, log)
    failed += unmade
    _check_errors(failed, len(mine), max_error_rate, log)
    write_jsonl(manifest, rows)
    return failed


def read_pool(pool: Path) -> list[dict[str, Any]]:
    """The pool's episodes as far as the choice and the casting need them; thousands of whole ones fill the memory.

    Raises:
        InputError: a line isn't a pooled episode, or one episode is there twice.
    """
    if not pool.is_file():
        raise InputError(f"{pool}: no such file; --pool names the pool that select_episodes.py writes")
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for number, row in read_episodes(pool):
        _check(row, f"{pool}, line {number}")
        # Without regard to case, as some file systems name files.
        key = (row["pairing"].lower(), row["episode_id"].lower())
        if key in rows:
            raise InputError(f"{pool}, line {number}: episode {row['pairing']}/{row['episode_id']} is already above")
        case = row.get("case") or {}
        rows[key] = {
            **{name: row.get(name) for name in ("pairing", "episode_id", "patient_persona")},
            "case": {name: case[name] for name in ("case_id", "subject_id", "gender") if name in case},
            "words": sum(len(line["text"].split()) for line in row["transcript"]),
        }
    return list(rows.values())


def whole_episodes(pool: Path, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same episodes with all that is stored of them."""
    places = {(row["pairing"], row["episode_id"]): place for place, row in enumerate(rows)}
    if not places:
        return []
    # `read_pool` has checked every line.
    found = [row for _, row in read_lines(pool) if (row["pairing"], row["episode_id"]) in places]
    return sorted(found, key=lambda row: places[row["pairing"], row["episode_id"]])


def choose(
    rows: Sequence[dict[str, Any]], pairings: Sequence[str] | None, max_dialogues: int | None
) -> list[dict[str, Any]]:
    """The dialogues that are to be spoken, fewest words first (then by pairing and episode)."""
    wanted = [row for row in rows if pairings is None or row["pairing"] in pairings]
    return sorted(wanted, key=lambda row: (row["words"], row["pairing"], row["episode_id"]))[:max_dialogues]


def assemble(about: About, folder: Path, style: Style, _engine: Callable[[], Engine], job: Job) -> dict[str, Any]:
    """Put a dialogue together: `<folder>/dialogues/<pairing>/<episode id>.<format>`, and the same below `mono/`.

    Both have 16 bits at 24 kHz; the first has the nurse left and the patient right, the second both in one channel.

    Returns:
        The manifest's row: files relative to `folder`, times in seconds from the file's start.

    Raises:
        TriageSimError: a spoken line can't be read.
    """
    import numpy as np

    settings = load_yaml(SETTINGS)
    placed: list[tuple[int, int, NDArray[np.float32]]] = []
    lines: list[dict[str, Any]] = []
    position = 0
    for line, said in job.lines:
        samples, rate, words = read(said)
        speech = resampled(samples, rate, RATE)
        start = position + round(line.pause * RATE)
        position = start + len(speech)
        placed.append((start, CHANNELS[line.speaker], speech))
        lines.append(_timed(line, start / RATE, position / RATE, words))
    audio = np.zeros((position + round(settings["edges"]["last"] * RATE), 2), np.float32)
    for start, channel, speech in placed:
        audio[start : start + len(speech), channel] = speech
    level = settings["level"]
    drawn = int(digest(["room", style.seed, job.pairing, job.episode_id])[:8], 16)
    heard = through(style.channel, speakers_levelled(audio, level["lufs"]), drawn, settings)
    stereo = levelled(speakers_levelled(heard, level["lufs"]), **level)
    name = Path(job.pairing, f"{job.episode_id}.{style.format}")
    mono = levelled(np.sum(stereo, axis=1, keepdims=True), **level)
    return {
        "pairing": job.pairing,
        "episode_id": job.episode_id,
        **_written(Path("dialogues") / name, stereo, folder),
        "duration_s": round(len(audio) / RATE, 3),
        "rate": RATE,
        "channels": dict(CHANNELS),
        "mono": _written(Path("mono") / name, mono, folder),
        "channel": style.channel,
        "engine": {key: getattr(about, key) for key in ("name", "version", "licence", "fallback")},
        "voices": {speaker: voice.model_dump() for speaker, voice in job.voices.items()},
        "lines": lines,
    }


def _plan(
    episodes: Sequence[Mapping[str, Any]], casting: Casting, about: About, store: Path, style: Style
) -> tuple[list[Job], list[dict[str, Any]]]:
    """What is to be said by whom, and the episodes that can't be read so."""
    jobs: list[Job] = []
    failed: list[dict[str, Any]] = []
    kept = partial(find, store=store, engine=about.name, version=about.version, rules=rules_digest(), seed=style.seed)
    for episode in episodes:
        voices = casting(episode)
        try:
            lines = script(episode, style.seed)
        except InputError as error:
            failed.append(_failure(episode["pairing"], episode["episode_id"], None, str(error)))
            continue
        said = [(line, kept(line.spoken, voices[line.speaker])) for line in lines]
        jobs.append(Job(episode["pairing"], episode["episode_id"], said, voices))
    return jobs, failed


def _speak_all(team: Crew, jobs: Sequence[Job], log: Callable[[str], None]) -> list[dict[str, Any]]:
    """Have every line spoken that isn't kept yet; the lines that failed, in each dialogue that they stand in."""
    lines = {said.path: said for job in jobs for _, said in job.lines}
    missing = [said for said in lines.values() if not said.path.exists()]
    log(f"{len(lines) - len(missing)} of {len(lines)} different lines are spoken already, {len(missing)} are not")
    progress = _Progress(missing, log)
    why: dict[Path, str] = {}
    for number, result in team.do(speak, missing):
        if isinstance(result, Failed):
            why[missing[number].path] = result.why
        progress.done(missing[number], 0.0 if isinstance(result, Failed) else result)
    return [
        _failure(job.pairing, job.episode_id, number, why[said.path])
        for job in jobs
        for number, (_, said) in enumerate(job.lines, 1)
        if said.path in why
    ]


class _Progress:
    """Says now and then how many seconds of audio are spoken, and how many are left by the rate of speaking so far."""

    def __init__(self, lines: Sequence[Said], log: Callable[[str], None]) -> None:
        self._log = log
        self._total = len(lines)
        self._left = sum(len(said.spoken) for said in lines)
        self._lines = self._characters = 0
        self._seconds = 0.0
        self._said = time.monotonic()

    def done(self, said: Said, seconds: float) -> None:
        self._lines += 1
        self._left -= len(said.spoken)
        if seconds:
            self._characters += len(said.spoken)
            self._seconds += seconds
        now = time.monotonic()
        if self._lines == self._total or now - self._said >= _PROGRESS_EVERY:
            self._said = now
            left = self._left * self._seconds / self._characters if self._characters else 0.0
            self._log(f"line {self._lines}/{self._total}: {self._seconds:.1f} s of audio done, about {left:.0f} s left")


def _assemble_all(
    team: Crew, jobs: Sequence[Job], about: About, folder: Path, style: Style, log: Callable[[str], None]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The manifest's rows in the order of the jobs, and what failed."""
    rows: dict[int, dict[str, Any]] = {}
    failed: list[dict[str, Any]] = []
    work: Work[Job, dict[str, Any]] = partial(assemble, about, folder, style)
    seconds = 0.0
    for number, result in team.do(work, jobs):
        job = jobs[number]
        if isinstance(result, Failed):
            failed.append(_failure(job.pairing, job.episode_id, None, result.why))
            continue
        rows[number] = result
        seconds += result["duration_s"]
        log(f"{len(rows)}/{len(jobs)} {job.name}: {result['duration_s']:.1f} s; {seconds:.1f} s of dialogue done")
    return [rows[number] for number in sorted(rows)], failed


def _check_errors(failed: Sequence[dict[str, Any]], count: int, most: float, log: Callable[[str], None]) -> None:
    """Name what failed, and fail if it is too much."""
    if not failed:
        return
    dialogues = {(row["pairing"], row["episode_id"]) for row in failed}
    named = [_said_of(row) for row in failed[:_NAMED]]
    if len(failed) > _NAMED:
        named.append(f"and {len(failed) - _NAMED} more")
    said = f"{len(dialogues)} of {count} dialogues could not be rendered; the others are kept:\n  " + "\n  ".join(named)
    if len(dialogues) > most * count:
        raise RenderError(f"{said}\n(audio.max_error_rate is {most:g})")
    log(f"warning: {said}")


def _said_of(row: dict[str, Any]) -> str:
    line = "" if row["line"] is None else f", line {row['line']}"
    return f"{row['pairing']}/{row['episode_id']}{line}: {row['error']}"


def _failure(pairing: str, episode_id: str, line: int | None, error: str) -> dict[str, Any]:
    return {"pairing": pairing, "episode_id": episode_id, "line": line, "error": error}


def _timed(line: Line, start: float, end: float, words: Sequence[tuple[str, float]] | None) -> dict[str, Any]:
    """A line of the manifest; each word lasts until the next one begins."""
    row: dict[str, Any] = {"speaker": line.speaker, "text": line.text, "spoken": line.spoken}
    row |= {"start": round(start, 3), "end": round(end, 3)}
    if words is not None:
        begins = [round(min(start + begin, end), 3) for _, begin in words]
        ends = [*begins, round(end, 3)][1:]
        spans = zip(words, begins, ends, strict=True)
        row["words"] = [{"word": word, "start": begin, "end": stop} for (word, _), begin, stop in spans]
    return row


def _written(name: Path, audio: NDArray[np.float32], folder: Path) -> dict[str, Any]:
    """Write a file, instead of one in another format from an earlier run; its name, hash and loudness."""
    write_audio(folder / name, audio, RATE)
    for other in set(get_args(Format)) - {name.suffix[1:]}:
        (folder / name).with_suffix(f".{other}").unlink(missing_ok=True)
    heard = loudness(audio)
    return {
        "file": name.as_posix(),
        "sha256": sha256_of(folder / name),
        "lufs": None if heard is None else round(heard, 1),
    }


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


def _is_in(shard: tuple[int, int], row: dict[str, Any]) -> bool:
    index, count = shard
    return int(digest([row["pairing"], row["episode_id"]]), 16) % count == index - 1


def _name(shard: tuple[int, int]) -> str:
    return "{}-of-{}".format(*shard)
