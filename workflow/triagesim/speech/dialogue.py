"""The lines of a dialogue as they follow one another: who, what, and the silence before."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from statistics import NormalDist
from typing import Any, NamedTuple

from triagesim.errors import InputError
from triagesim.jsonl import digest
from triagesim.resources import load_yaml
from triagesim.speech.spoken import spoken_form
from triagesim.speech.voices import Speaker

SETTINGS = "speech/dialogue.yaml"


class Line(NamedTuple):
    """A line of a dialogue: as written, as said, and the silence before it in seconds."""

    speaker: Speaker
    text: str
    spoken: str
    pause: float


def script(episode: Mapping[str, Any], seed: int = 0) -> list[Line]:
    """The lines of a transcript with the silence before each; the history says where a vital sign was measured.

    Raises:
        InputError: a line of the transcript isn't in the history, in its order.
    """
    settings = load_yaml(SETTINGS)
    lines: list[Line] = []
    for line, measured in zip(episode["transcript"], _measured_before(episode), strict=False):
        here = [seed, episode["pairing"], episode["episode_id"], len(lines)]
        before = kind_of(lines[-1].speaker, lines[-1].text, line["speaker"]) if lines else None
        pause = gap(before, here) if before else float(settings["edges"]["first"])
        pause += sum(gap("vital", [*here, number]) for number in range(measured))
        lines.append(Line(line["speaker"], line["text"], spoken_form(line["text"]), pause))
    return lines


def kind_of(before: str, text: str, speaker: str) -> str:
    """Which gap of `resources/speech/dialogue.yaml` stands after the text of one speaker when `speaker` goes on."""
    if before == speaker:
        return "same_speaker"
    if speaker == "nurse":
        return "nurse_reply"
    return "answer" if text.rstrip(" \"'”’)").endswith("?") else "reply"


def gap(kind: str, seed: list[Any]) -> float:
    """Seconds of silence of a kind, drawn by the hash of a seed."""
    gaps = load_yaml(SETTINGS)["gaps"][kind]
    share = (int(digest(["gap", *seed])[:12], 16) + 0.5) / 16**12
    drawn = gaps["median"] * exp(gaps["spread"] * NormalDist().inv_cdf(share))
    return float(round(min(max(drawn, gaps["least"]), gaps["most"]), 3))


def _measured_before(episode: Mapping[str, Any]) -> list[int]:
    """How many vital signs were taken before each line of the transcript, and after the last."""
    transcript, history = episode["transcript"], episode.get("history") or []
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
    return vitals
