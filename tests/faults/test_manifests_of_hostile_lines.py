"""Spoken lines that hold what the manifests' formats are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from triagesim.speech.corpus import Dialogue
from triagesim.speech.manifests import write_manifests

LINES = [
    "a --> b", "tab\there", "two\nlines\r\nmore", "u2028\u2028and\u0085more", "nul\x00in it", 'say "ah" ""',
    "<v x> & </v>", "NOTE x", "WEBVTT", "   ", "\u202eright to left", "1", "é😷", "\x0b\x1c\x1d", "x" * 50_000,
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifests of one dialogue that says these lines."""
    folder = tmp_path_factory.mktemp("manifests")
    soundfile.write(folder / "d.wav", np.zeros((8000 * 40, 2)), 8000)
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(LINES):
        start, role = 0.5 + 2 * number, ("nurse", "patient")[number % 2]
        word = {"word": text, "start": start, "end": start + 1}
        line = {"speaker": role, "text": text, "spoken": text, "start": start, "end": start + 1, "words": [word]}
        lines.append(line)
    voice = {"id": "v 1", "gender": "female", "accent": "gb"}
    audio = {
        "file": "d.wav", "pairing": "p", "episode_id": "e-0", "duration_s": 40.0, "rate": 8000, "lines": lines,
        "channels": {"nurse": 0, "patient": 1}, "voices": {"nurse": voice, "patient": voice},
        "engine": {"name": "espeak", "version": "1", "licence": "x"},
    }  # fmt: skip
    episode = {"case": {"case_id": "e", "provenance": "synthetic"}}
    write_manifests(
        [Dialogue("p+e-0", audio, episode, folder)], folder / "m", folder / "metadata.jsonl", {"train": 1.0}, 0
    )
    return folder / "m"


def test_subtitles_have_a_cue_a_line_and_nothing_else(folder: Path) -> None:
    text = (folder / "webvtt/p/e-0.vtt").read_text(encoding="utf-8")
    cues = text.removeprefix("WEBVTT\n\n").rstrip("\n").split("\n\n")
    assert [cue.split("\n")[0] for cue in cues] == [str(number) for number in range(1, len(LINES) + 1)]
    assert all(cue.count("\n") == 2 and cue.count("-->") == 1 for cue in cues)
    assert "&lt;v x&gt; &amp; &lt;/v&gt;" in text


def test_praat_reads_an_interval_a_line(folder: Path) -> None:
    text = (folder / "textgrid/p/e-0.TextGrid").read_text(encoding="utf-8")
    assert 'text = "say ""ah"" """""' in text
    assert (
        text.count("intervals [")
        == text.count("text = ")
        == sum(int(line.split("= ")[1]) for line in text.split("\n") if "intervals: size" in line)
    )


@pytest.mark.parametrize(("name", "fields"), [("rttm", 10), ("stm", 6), ("ctm", 5)])
def test_a_row_a_line_with_its_fields(folder: Path, name: str, fields: int) -> None:
    rows = (folder / f"dialogues.{name}").read_text(encoding="utf-8").splitlines()
    assert len(rows) == sum(any(map(str.isalnum, line)) for line in LINES)
    assert all(len(row.split(" ")) >= fields for row in rows)


def test_no_form_holds_a_control_character(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".gz":
            assert not set(map(chr, [*range(10), *range(11, 32), 127])) & set(path.read_text(encoding="utf-8")), path
