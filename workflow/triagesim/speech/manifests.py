"""Manifests of the spoken corpus in the forms that speech tools load, from RTTM to Lhotse and Hugging Face.

RTTM and STM: NIST's formats of the Rich Transcription evaluations and of sclite. WebVTT: W3C. TextGrid: Praat's long
text format. All times are seconds from the file's start. `docs/corpus.md` says how to load each.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from triagesim.errors import InputError
from triagesim.jsonl import dumps, gzipped, write_atomically, write_jsonl
from triagesim.resources import load_yaml
from triagesim.speech.corpus import Dialogue
from triagesim.speech.sound import unreadable
from triagesim.splits import patient_key, split_of
from triagesim.temporaries import replacing

_ROLES = ("nurse", "patient")
#: The channel field of RTTM, STM and CTM: the mono mix has one. Scoring tools keep channels apart.
_MONO = 1
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def write_manifests(
    dialogues: Sequence[Dialogue], out: Path, metadata: Path, splits: Mapping[str, float], seed: int
) -> None:
    """Write every form to the folder `out`, and the audiofolder's `metadata.jsonl` beside the audio.

    Args:
        metadata: the path of `metadata.jsonl`; its folder holds the two-channel files.
        splits: the share of the patients by split, as for the dataset; `seed` is of their draw.

    Raises:
        InputError: an audio file isn't there or isn't what its manifest says.
    """
    frames = {dialogue.id: _frames(dialogue) for dialogue in dialogues}
    split = {dialogue.id: split_of(patient_key(dialogue.episode["case"]), splits, seed) for dialogue in dialogues}
    _write_text(out / "dialogues.rttm", _each(dialogues, rttm))
    _write_text(out / "dialogues.stm", _each(dialogues, stm))
    _write_text(out / "dialogues.ctm", _each(dialogues, ctm))
    for folder in ("webvtt", "textgrid"):
        shutil.rmtree(out / folder, ignore_errors=True)
        (out / folder).mkdir(parents=True)
    for dialogue in dialogues:
        name = Path(dialogue.audio["pairing"], dialogue.audio["episode_id"])
        _write_text(out / "webvtt" / f"{name}.vtt", vtt(dialogue))
        _write_text(out / "textgrid" / f"{name}.TextGrid", textgrid(dialogue))
    _write_gzip(out / "recordings.jsonl.gz", (recording(d, frames[d.id]) for d in dialogues))
    _write_gzip(out / "supervisions.jsonl.gz", (row for d in dialogues for row in supervisions(d, split[d.id])))
    write_jsonl(metadata, (described(d, metadata.parent, split[d.id]) for d in dialogues))


def rttm(dialogue: Dialogue) -> Iterator[str]:
    """Who speaks when, a line a row; the speaker is the voice."""
    for _, line in dialogue.lines:
        length = line["end"] - line["start"]
        speaker = dialogue.speaker(line["speaker"])
        yield f"SPEAKER {dialogue.id} {_MONO} {line['start']:.3f} {length:.3f} <NA> <NA> {speaker} <NA> <NA>"


def stm(dialogue: Dialogue) -> Iterator[str]:
    """Who says what when, in spoken form."""
    for _, line in dialogue.lines:
        speaker = dialogue.speaker(line["speaker"])
        yield f"{dialogue.id} {_MONO} {speaker} {line['start']:.3f} {line['end']:.3f} {_flat(line['spoken'])}"


def ctm(dialogue: Dialogue) -> Iterator[str]:
    """Word by word, where the engine gives the words' times."""
    for _, line in dialogue.lines:
        for word in line.get("words") or ():
            length = max(word["end"] - word["start"], 0)
            yield f"{dialogue.id} {_MONO} {word['start']:.3f} {length:.3f} {_flat(word['word']).replace(' ', '')}"


def vtt(dialogue: Dialogue) -> Iterator[str]:
    """Subtitles in written form, each with its speaker's role as the voice."""
    yield "WEBVTT"
    for number, line in enumerate(dialogue.audio["lines"], 1):
        text = _flat(line["text"]).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        yield from ("", str(number), f"{_clock(line['start'])} --> {_clock(line['end'])}")
        yield f"<v {line['speaker']}>{text}"
    yield ""


def textgrid(dialogue: Dialogue) -> Iterator[str]:
    """A tier a role, in written form, and empty intervals between."""
    end = dialogue.audio["duration_s"]
    yield from ('File type = "ooTextFile"', 'Object class = "TextGrid"', "", "xmin = 0", f"xmax = {end}")
    yield from ("tiers? <exists>", f"size = {len(_ROLES)}", "item []:")
    for number, role in enumerate(_ROLES, 1):
        intervals = list(_intervals(dialogue, role, end))
        yield from (f"    item [{number}]:", '        class = "IntervalTier"', f'        name = "{role}"')
        yield from ("        xmin = 0", f"        xmax = {end}", f"        intervals: size = {len(intervals)}")
        for place, (start, stop, text) in enumerate(intervals, 1):
            quoted = _flat(text).replace('"', '""')
            yield from (f"        intervals [{place}]:", f"            xmin = {start}", f"            xmax = {stop}")
            yield f'            text = "{quoted}"'


def recording(dialogue: Dialogue, frames: int) -> dict[str, Any]:
    """A recording as Lhotse has it; the path is relative to the folder of the audio."""
    rate, channels = dialogue.audio["rate"], sorted(dialogue.audio["channels"].values())
    return {
        "id": dialogue.id,
        "sources": [{"type": "file", "channels": channels, "source": dialogue.audio["file"]}],
        "sampling_rate": rate,
        "num_samples": frames,
        "duration": frames / rate,
        "channel_ids": channels,
    }


def supervisions(dialogue: Dialogue, split: str) -> Iterator[dict[str, Any]]:
    """The lines of a dialogue as Lhotse's supervisions: spoken form as the text, the rest in `custom`."""
    for number, line in dialogue.lines:
        role = line["speaker"]
        yield {
            "id": f"{dialogue.id}-{number:03d}",
            "recording_id": dialogue.id,
            "start": line["start"],
            "duration": round(line["end"] - line["start"], 3),
            "channel": dialogue.audio["channels"][role],
            "text": line["spoken"],
            "language": load_yaml("speech/corpus.yaml")["language"],
            "speaker": dialogue.speaker(role),
            "gender": dialogue.audio["voices"][role]["gender"],
            "custom": {
                "role": role,
                "written": line["text"],
                "split": split,
                "accent": dialogue.audio["voices"][role]["accent"],
                "engine": dialogue.audio["engine"]["name"],
                "quality": dialogue.quality,
                **{f"persona_{trait}": level for trait, level in dialogue.traits(role).items()},
            },
        }


def described(dialogue: Dialogue, folder: Path, split: str) -> dict[str, Any]:
    """A row of `metadata.jsonl`: the file, what is known of the dialogue, and its lines."""
    episode, engine = dialogue.episode, dialogue.audio["engine"]
    case = episode["case"]
    row: dict[str, Any] = {
        "file_name": Path(os.path.relpath(dialogue.file, folder)).as_posix(),
        "id": dialogue.id,
        "pairing": dialogue.audio["pairing"],
        "episode_id": dialogue.audio["episode_id"],
        "split": split,
        "duration_s": dialogue.audio["duration_s"],
        "sampling_rate": dialogue.audio["rate"],
        "engine": engine["name"],
        "engine_version": engine["version"],
        "engine_licence": engine["licence"],
        "quality": dialogue.quality,
        "data_provenance": case.get("provenance"),
        "acuity": case.get("acuity"),
        "acuity_scale": case.get("acuity_scale"),
    }
    for role in _ROLES:
        row[f"{role}_model"] = (episode.get("models") or {}).get(role)
        row[f"{role}_model_label"] = (episode.get("labels") or {}).get(role)
        row[f"{role}_speaker"] = dialogue.speaker(role)
        row[f"{role}_accent"] = dialogue.audio["voices"][role]["accent"]
        known = dialogue.traits(role)
        row |= {f"{role}_{trait}": known.get(trait) for trait in load_yaml("speech/corpus.yaml")["traits"][role]}
    keys = {"speaker": "role", "text": "text", "spoken": "spoken", "start": "start", "end": "end"}
    row["lines"] = [{name: line[key] for key, name in keys.items()} for line in dialogue.audio["lines"]]
    return row


def _intervals(dialogue: Dialogue, role: str, end: float) -> Iterator[tuple[float, float, str]]:
    """The lines of a role and the gaps between, without a hole from 0 to the end."""
    place = 0.0
    for line in dialogue.audio["lines"]:
        if line["speaker"] != role or line["end"] <= line["start"]:
            continue
        if line["start"] > place:
            yield place, line["start"], ""
        yield line["start"], line["end"], line["text"]
        place = line["end"]
    if place < end:
        yield place, end, ""


def _frames(dialogue: Dialogue) -> int:
    """The samples of a channel, from the file itself."""
    import soundfile

    try:
        info = soundfile.info(dialogue.file)
    except (OSError, soundfile.LibsndfileError) as error:
        raise unreadable(dialogue.file, error) from None
    channels = len(dialogue.audio["channels"])
    if (info.samplerate, info.channels) != (dialogue.audio["rate"], channels):
        raise InputError(
            f"{dialogue.file}: expected {channels} channels at {dialogue.audio['rate']} Hz, found {info.channels} at "
            f"{info.samplerate} Hz; render the audio anew"
        )
    return int(info.frames)


def _each(dialogues: Sequence[Dialogue], lines: Callable[[Dialogue], Iterator[str]]) -> Iterator[str]:
    for dialogue in dialogues:
        yield from lines(dialogue)


def _clock(seconds: float) -> str:
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest // 1000:02d}.{rest % 1000:03d}"


def _flat(text: str) -> str:
    """A text in one line, without control characters: they end texts in some readers."""
    return " ".join(_CONTROL.sub(" ", text).split())


def _write_text(path: Path, lines: Iterator[str]) -> None:
    write_atomically(path, lambda file: file.writelines(f"{line}\n" for line in lines))


def _write_gzip(path: Path, rows: Iterator[Mapping[str, Any]]) -> None:
    """JSON Lines, packed so that the same rows give the same bytes."""
    packed = gzipped("".join(dumps(row) + "\n" for row in rows).encode())
    with replacing(path) as temporary:
        temporary.write_bytes(packed)
