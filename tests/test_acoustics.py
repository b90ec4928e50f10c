"""Acoustic measures of the spoken dialogues, against sounds whose pitch, pauses and faults are known."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from spoken import TALK, episode, run, speak
from triagesim.jsonl import read_lines, write_jsonl
from triagesim.resources import load_yaml
from triagesim.speech.acoustics import CHECKS, HEADER, MEASURES, check, f0, measure, rows, syllables, words_of
from triagesim.speech.corpus import Dialogue, read_corpus

RATE = 24_000


def tone(hertz: float, seconds: float, rate: int = RATE) -> Any:
    """A sound with many harmonics, as a voice has them, that fall off as they rise."""
    time = np.arange(round(seconds * rate)) / rate
    partials = range(1, int(4000 / hertz) + 1)
    sound = sum(np.sin(2 * np.pi * hertz * n * time + n) / n for n in partials)
    return (0.3 * sound / np.max(np.abs(sound))).astype(np.float32)


def dialogue(lines: list[dict[str, Any]], seconds: float, **changes: Any) -> Dialogue:
    """A dialogue whose audio has these lines; `spoken` as given."""
    voices = {"nurse": {"id": "a", "gender": "female"}, "patient": {"id": "b", "gender": "male"}}
    audio = {
        **{"pairing": "agenda", "episode_id": "case-0-0", "file": "x.flac", "duration_s": seconds, "rate": RATE},
        **{"channels": {"nurse": 0, "patient": 1}, "voices": voices, "lines": lines, "lufs": -23.0},
        **{"engine": {"name": "espeak"}},
    }
    return Dialogue("agenda+case-0-0", {**audio, **changes}, episode(), Path())


def line(speaker: str, spoken: str, start: float, end: float) -> dict[str, Any]:
    return {"speaker": speaker, "text": spoken, "spoken": spoken, "start": start, "end": end}


LINES = [line("nurse", "one two three four", 0.5, 2.5), line("patient", "hello again", 3.0, 4.0)]


def two_voices(low: float = 110.0, high: float = 220.0) -> Any:
    """Five seconds: the nurse's tone with a pause of half a second in it, then the patient's."""
    audio = np.zeros((5 * RATE, 2), np.float32)
    audio[RATE // 2 : RATE // 2 + 3 * RATE // 4, 0] = tone(high, 0.75)
    audio[7 * RATE // 4 : 5 * RATE // 2, 0] = tone(high, 0.75)
    audio[3 * RATE : 4 * RATE, 1] = tone(low, 1)
    return audio


@settings(max_examples=25, deadline=None)
@given(hertz=st.floats(75, 380), rate=st.sampled_from([16_000, 22_050, 24_000]))
def test_the_pitch_of_a_tone_is_found(hertz: float, rate: int) -> None:
    found = f0(tone(hertz, 0.5, rate), rate)
    assert len(found) > 10
    assert np.median(found) == pytest.approx(hertz, rel=0.02)


def test_noise_and_silence_have_no_pitch() -> None:
    noise = np.random.default_rng(1).normal(0, 0.1, RATE).astype(np.float32)
    assert len(f0(noise, RATE)) < 3
    assert len(f0(np.zeros(RATE, np.float32), RATE)) == 0
    assert len(f0(np.zeros(10, np.float32), RATE)) == 0


def test_rate_pauses_and_pitch_of_a_known_dialogue() -> None:
    nurse, patient = measure(dialogue(LINES, 5), two_voices(), RATE)
    assert nurse.measures["words_per_minute"] == pytest.approx(120)
    assert nurse.measures["syllables_per_second"] == pytest.approx(2)
    assert nurse.measures["pause_share"] == pytest.approx(0.25, abs=0.02)
    assert patient.measures["pause_share"] == 0
    assert nurse.measures["f0_hz"] == pytest.approx(220, rel=0.01)
    assert patient.measures["f0_hz"] == pytest.approx(110, rel=0.01)
    assert patient.measures["f0_range_semitones"] == pytest.approx(0, abs=0.1)
    assert nurse.traits == {"gender": "female", "workload": "quiet"}


def test_two_tones_an_octave_apart_are_twelve_semitones_apart_and_a_voice_is_nowhere_from_itself() -> None:
    def separation(audio: Any) -> dict[str, Any]:
        table = list(rows([("agenda", measure(dialogue(LINES, 5), audio, RATE))], 0))
        return {row[3]: row[4] for row in table if row[:2] == ["agenda", "both"]}

    octave = separation(two_voices())
    assert octave["speakers_f0_semitones"] == pytest.approx(12, abs=0.2)
    assert octave["speakers_spectrum_db"] > 5
    same = separation(two_voices(200, 200))
    assert same["speakers_f0_semitones"] == pytest.approx(0, abs=0.1)
    assert same["speakers_spectrum_db"] < 1.5


def test_means_have_intervals_over_dialogues_and_say_what_is_missing() -> None:
    silent = [line("nurse", "one two three four", 0.5, 2.5)]
    spoken = [measure(dialogue(LINES, 5), two_voices(high=high), RATE) for high in (180.0, 200.0, 220.0)]
    spoken.append(measure(dialogue(silent, 5), two_voices(), RATE))
    table = {tuple(row[:4]): row[4:] for row in rows([("agenda", each) for each in spoken], 0)}
    value, low, high, number, note = table["agenda", "patient.all", "all", "f0_hz"]
    assert (value, low, high) == (pytest.approx(110, rel=0.01), None, None)
    assert number == 3
    assert note == "1 dialogue(s) with too little speech; fewer than 30 dialogues; all draws alike: no interval"
    value, low, high, number, note = table["all", "nurse.workload", "quiet", "f0_hz"]
    assert low < value < high
    assert (number, note) == (4, "fewer than 30 dialogues")
    assert {key[3] for key in table} == {*MEASURES, "speakers_f0_semitones", "speakers_spectrum_db"}


@pytest.mark.parametrize(
    ("word", "number"),
    [
        ("pain", 1),
        ("take", 1),
        ("hello", 2),
        ("table", 2),
        ("medication", 4),
        ("worked", 1),
        ("started", 2),
        ("the", 1),
    ],
)
def test_syllables_are_about_right(word: str, number: int) -> None:
    assert syllables(word) == number


def test_words_are_counted_in_spoken_form() -> None:
    assert words_of("I've had forty-eight, no more.") == ["I've", "had", "forty", "eight", "no", "more"]


def problems(audio: Any, lines: list[dict[str, Any]] = LINES, **changes: Any) -> str:
    row = check(dialogue(lines, len(audio) / RATE, **changes), audio, RATE)
    assert len(row) == len(CHECKS)
    return str(row[-1])


def test_a_good_file_has_no_problem() -> None:
    assert problems(two_voices()) == ""


def test_each_fault_of_a_file_is_named() -> None:
    clipped = two_voices()
    clipped[RATE, 0] = clipped[RATE + 1, 0] = 1
    assert problems(clipped) == "clipping"
    late = [{**each, "start": each["start"] + 2, "end": each["end"] + 2} for each in LINES]
    assert problems(np.concatenate([np.zeros((2 * RATE, 2), np.float32), two_voices()]), late) == "leading silence"
    assert problems(np.concatenate([two_voices(), np.zeros((RATE, 2), np.float32)])) == "trailing silence"
    gap = np.concatenate([two_voices(), np.zeros((19 * RATE, 2), np.float32), two_voices()])
    assert problems(gap) == "long silence"
    assert problems(two_voices().sum(axis=1, keepdims=True)) == "channels"
    assert problems(two_voices(), duration_s=9.0) == "duration"
    assert problems(two_voices(), rate=16_000) == "rate"
    assert problems(two_voices(), lufs=-30.0) == "loudness"
    assert problems(two_voices(), [line("nurse", "yes " * 60, 0.5, 2.5), LINES[1]]) == "speech too short"
    assert problems(two_voices(), [line("nurse", "yes", 0.5, 2.9)]) == "speech too long"
    assert problems(two_voices(), mono={"file": "nowhere.flac"}) == "mono"
    mute = two_voices()
    mute[:, 1] = 0
    assert "silent speaker" in problems(mute)
    assert "no sound" in problems(np.zeros((RATE, 2), np.float32))


def test_real_speech_passes_and_women_are_higher_than_men(tmp_path: Path) -> None:
    woman = {"case_id": "case-1", "gender": "female", "acuity": 3}
    pool = [episode(0), episode(1, TALK, case=woman, nurse_persona={"gender": "male", "workload": "busy"})]
    manifest = speak(tmp_path, pool)
    options = ["--pool", tmp_path / "pool.jsonl", "--out", tmp_path / "a.csv", "--checks", tmp_path / "c.csv"]
    done = run("acoustics.py", manifest, *options)
    assert done.stderr == "2 files checked, 0 with problems\n"
    with (tmp_path / "a.csv").open() as file:
        table = list(csv.DictReader(file))
    assert list(table[0]) == HEADER
    value = {tuple(row[name] for name in HEADER[:4]): float(row["value"]) for row in table}
    for role in ("nurse", "patient"):
        by = {gender: value["all", f"{role}.gender", gender, "f0_hz"] for gender in ("female", "male")}
        assert 140 < by["female"] < 260
        assert 70 < by["male"] < 140
        assert 100 < value["all", f"{role}.all", "all", "words_per_minute"] < 260
    with (tmp_path / "c.csv").open() as file:
        checked = list(csv.DictReader(file))
    assert [row["problems"] for row in checked] == ["", ""]
    before = (tmp_path / "a.csv").read_bytes()
    run("acoustics.py", manifest, *options)
    assert (tmp_path / "a.csv").read_bytes() == before


def test_a_file_that_changed_after_it_was_rendered_is_marked(tmp_path: Path) -> None:
    manifest = speak(tmp_path, [episode(0, TALK[:2])])
    (row,) = (row for _, row in read_lines(manifest))
    path = manifest.parent / row["file"]
    audio, rate = soundfile.read(path)
    soundfile.write(path, audio[: len(audio) // 2], rate)
    options = ["--pool", tmp_path / "pool.jsonl", "--out", tmp_path / "a.csv", "--checks", tmp_path / "c.csv"]
    done = run("acoustics.py", manifest, *options)
    assert "1 with problems" in done.stderr
    assert "duration" in done.stderr


def test_an_empty_corpus_gives_empty_tables(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "pool.jsonl", [])
    write_jsonl(tmp_path / "m.jsonl", [])
    assert read_corpus(tmp_path / "pool.jsonl", [tmp_path / "m.jsonl"]) == []
    options = ["--pool", tmp_path / "pool.jsonl", "--out", tmp_path / "a.csv", "--checks", tmp_path / "c.csv"]
    run("acoustics.py", tmp_path / "m.jsonl", *options)
    assert (tmp_path / "a.csv").read_text() == ",".join(HEADER) + "\n"


def test_a_frame_holds_two_periods_of_the_lowest_pitch() -> None:
    pitch = load_yaml("speech/acoustics.yaml")["f0"]
    assert pitch["lowest_hz"] * pitch["frame_s"] >= 2
