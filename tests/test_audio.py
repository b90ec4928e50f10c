"""How a corpus sounds: who is cast, gaps, words, channels; and how its work is shared, resumed and forgiven."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyloudnorm
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import correlate, welch

from test_speech import TALK, episode, quiet
from triagesim.config import check_config
from triagesim.errors import InputError, TriageSimError
from triagesim.jsonl import write_jsonl
from triagesim.resources import load_yaml
from triagesim.speech.casting import Casting, patient_of, share_voices, tempo_of
from triagesim.speech.dialogue import SETTINGS, gap, script
from triagesim.speech.engine import Engine, choose_engine, load_engine
from triagesim.speech.render import RenderError, Style, render_pool
from triagesim.speech.sound import RATE, loudness, over_telephone, resampled, true_peak
from triagesim.speech.voices import Voice, load_voices
from triagesim.splits import split_of

SCRIPT = Path(__file__).resolve().parents[1] / "workflow" / "scripts" / "render_audio.py"
SPLITS = {"train": 0.8, "dev": 0.1, "test": 0.1}
SHORT = [("nurse", "Where does it hurt?"), ("patient", "In my chest."), ("nurse", "I see.")]
#: Seconds in which something that ends has ended on a busy machine.
HUNG = 300


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_engine("espeak")


@pytest.fixture
def render(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Render a pool of the given episodes with espeak; the manifest's rows come back."""

    def run(episodes: list[dict[str, Any]], out: str = "audio", by: Any = None, **options: Any) -> list[Any]:
        write_jsonl(tmp_path / "pool.jsonl", episodes)
        manifest = tmp_path / out / "manifest.jsonl"
        load = by or partial(choose_engine, "espeak", [], None)
        render_pool(tmp_path / "pool.jsonl", manifest, tmp_path / "store", load, log=quiet, **options)
        return [json.loads(line) for line in manifest.read_text("utf-8").splitlines()]

    return run


def persona(**keys: Any) -> dict[str, Any]:
    return {"age_group": "adult", **keys}


# --- casting ---------------------------------------------------------------------------------------------------------


def test_a_patient_of_several_stays_keeps_one_voice_whatever_the_personas_say() -> None:
    stays = [
        episode(
            k,
            case={"case_id": f"case-{k}", "gender": "female", "subject_id": 77},
            patient_persona=persona(age_group=age),
        )
        for k, age in enumerate(["older", "adult", "older", "adult"])
    ]
    casting = Casting(load_voices("espeak"), stays)
    assert len({casting(stay)["patient"].id for stay in stays}) == 1
    assert casting(stays[1])["patient"].age_group == "older"


def test_which_dialogues_are_spoken_changes_no_voice(render: Any) -> None:
    pool = [episode(k, SHORT, episode_id=f"case-{k % 3}-{k}") for k in range(6)]
    whole = {row["episode_id"]: row["voices"] for row in render(pool)}
    part = {row["episode_id"]: row["voices"] for row in render(pool, max_dialogues=2)}
    assert part == {name: whole[name] for name in part}


def test_the_seed_casts_anew_and_the_same_seed_the_same() -> None:
    pool = [episode(k) for k in range(30)]

    def drawn(seed: int) -> list[str]:
        casting = Casting(load_voices("kokoro"), pool, seed=seed)
        return [casting(row)["patient"].id for row in pool]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_ethnicity_and_a_named_accent_draw_a_voice_that_has_it() -> None:
    voices = load_voices("kokoro")
    other = voices[0].model_copy(update={"id": "x", "gender": "male", "age_group": "adult", "ethnicity": "Vietnamese"})
    for k in range(10):
        own = episode(k, patient_persona=persona(ethnicity="vietnamese"))
        assert Casting([*voices, other], [own])(own)["patient"].id == "x"
        asked = episode(k, patient_persona=persona(instruction="Warm, with a British accent."))
        assert Casting(voices, [asked])(asked)["patient"].accent == "British"


def test_an_instruction_sets_the_tempo_and_the_engine_follows(engine: Engine) -> None:
    assert tempo_of({"instruction": "Warm and unhurried."}) == 0.9
    assert tempo_of({"instruction": None}) == tempo_of({}) == 1.0
    assert tempo_of({"instruction": "Fast, hurried, rushed, quick, quickly!"}) == 1.4
    hurried = episode(patient_persona=persona(instruction="Hurried"))
    fast = Casting(engine.voices, [hurried])(hurried)["patient"]
    usual = fast.model_copy(update={"tempo": 1.0})
    text = "I have had this pain since this morning, after breakfast."
    lengths = [len(engine.synthesize(text, voice, 1)[0]) for voice in (usual, fast)]
    assert lengths[0] / lengths[1] == pytest.approx(1.12, abs=0.06)


@given(st.integers(0, 1000), st.sampled_from(["espeak", "kokoro"]))
@settings(max_examples=30)
def test_splits_share_no_voice_and_each_has_both_genders(seed: int, engine: str) -> None:
    voices = load_voices(engine)
    dealt = share_voices(voices, SPLITS, seed)
    assert sorted(voice.id for part in dealt.values() for voice in part) == sorted(voice.id for voice in voices)
    for part in dealt.values():
        assert min(Counter(voice.gender for voice in part).values()) >= 2
    assert len(dealt["train"]) >= len(dealt["dev"]) - 1


def test_a_patient_sounds_like_its_split_alone() -> None:
    pool = [episode(k) for k in range(120)]
    casting = Casting(load_voices("kokoro"), pool, splits=SPLITS, split_seed=3)
    heard: dict[str, set[str]] = {}
    for row in pool:
        voices = casting(row)
        heard.setdefault(split_of(patient_of(row), SPLITS, 3), set()).update(voice.id for voice in voices.values())
        assert voices["nurse"].id != voices["patient"].id
    assert heard.keys() == SPLITS.keys()
    assert sum(map(len, heard.values())) == len(set().union(*heard.values()))


def test_too_few_voices_for_the_splits_are_counted() -> None:
    with pytest.raises(InputError, match=r"audio\.disjoint_splits: 3 splits need two voices each.* 2 female, 6 male"):
        share_voices([v for v in load_voices("espeak") if v.gender == "male" or v.id in ("us_f3", "us_f5")], SPLITS, 0)


# --- gaps and words --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["answer", "reply", "nurse_reply", "same_speaker", "vital"])
def test_gaps_are_distributed_as_the_table_says(kind: str) -> None:
    stated = load_yaml(SETTINGS)["gaps"][kind]
    drawn = [gap(kind, [0, k]) for k in range(2000)]
    assert median(drawn) == pytest.approx(stated["median"], rel=0.06)
    assert stated["least"] <= min(drawn) < max(drawn) <= stated["most"]
    inside = [np.log(x / stated["median"]) for x in drawn if stated["least"] < x < stated["most"]]
    assert np.std(inside) == pytest.approx(stated["spread"], rel=0.15)


def test_a_gap_depends_on_the_turn_and_on_the_seed() -> None:
    pool = [episode(k) for k in range(200)]
    pauses = np.array([[line.pause for line in script(row)] for row in pool])
    assert set(pauses[:, 0]) == {load_yaml(SETTINGS)["edges"]["first"]}
    answer, turn, after_vital, _ = np.median(pauses[:, 1:], axis=0)
    assert answer == pytest.approx(0.6, rel=0.15)
    assert turn == pytest.approx(0.5, rel=0.15)
    assert after_vital == pytest.approx(0.4 + 1.5, rel=0.15)
    assert [line.pause for line in script(pool[0], seed=1)] != [line.pause for line in script(pool[0])]


def test_words_have_times_within_their_line(render: Any, tmp_path: Path) -> None:
    (row,) = render([episode()])
    for line in row["lines"]:
        assert " ".join(word["word"] for word in line["words"]) == line["spoken"]
        assert len(line["words"]) > 0.8 * len(line["spoken"].split())
        times = [line["start"], *(time for word in line["words"] for time in (word["start"], word["end"])), line["end"]]
        assert times == sorted(times)
    first = row["lines"][0]["words"]
    audio, rate = soundfile.read(tmp_path / "audio" / row["file"])
    said = {word["word"]: audio[round(word["start"] * rate) : round(word["end"] * rate), 0] for word in first}
    assert len(said["triage"]) > 2 * len(said["the"])


def test_a_line_in_parts_keeps_the_times_of_its_words(render: Any, engine: Engine) -> None:
    text = "It started this morning, right after breakfast. Then it got worse, and I called my sister."

    class Short:
        def __init__(self) -> None:
            for name in ("name", "version", "licence", "voices", "synthesize", "synthesize_words"):
                setattr(self, name, getattr(engine, name))
            self.limit = 50

    (row,) = render([episode(talk=[("patient", text)])], by=lambda: (Short(), None))
    words = row["lines"][0]["words"]
    assert " ".join(word["word"] for word in words) == text
    starts = [word["start"] for word in words]
    assert starts == sorted(set(starts))
    assert starts[-1] > row["lines"][0]["end"] - 1.5


# --- channels --------------------------------------------------------------------------------------------------------


def band_share(samples: Any, low: float, high: float) -> float:
    """The share of the power between two frequencies."""
    frequencies, power = welch(samples, RATE, nperseg=2048)
    return float(power[(frequencies >= low) & (frequencies <= high)].sum() / power.sum())


@pytest.mark.parametrize("channel", ["clean", "room", "telephone"])
@pytest.mark.parametrize("form", ["wav", "flac"])
def test_every_channel_has_the_stated_form_loudness_and_peak(
    render: Any, tmp_path: Path, channel: Any, form: Any
) -> None:
    (row,) = render([episode(talk=TALK[:3])], style=Style(channel=channel, format=form))
    for entry, channels in ((row, 2), (row["mono"], 1)):
        path = tmp_path / "audio" / entry["file"]
        info = soundfile.info(path)
        assert (info.format, info.subtype, info.samplerate, info.channels) == (form.upper(), "PCM_16", 24000, channels)
        audio, rate = soundfile.read(path)
        assert pyloudnorm.Meter(rate).integrated_loudness(audio) == pytest.approx(-23, abs=0.2)
        assert true_peak(audio.astype(np.float32)) <= 10 ** (-1 / 20) + 1e-3
    assert row["channel"] == channel


def test_another_format_takes_the_place_of_the_first(render: Any, tmp_path: Path) -> None:
    render([episode(talk=SHORT)])
    (row,) = render([episode(talk=SHORT)], style=Style(format="wav"))
    files = {path.relative_to(tmp_path / "audio").as_posix() for path in (tmp_path / "audio").rglob("*.*")}
    assert files == {"manifest.jsonl", row["file"], row["mono"]["file"]}


def test_the_mono_mix_holds_both_speakers(render: Any, tmp_path: Path) -> None:
    (row,) = render([episode()])
    stereo, mono = (soundfile.read(tmp_path / "audio" / name)[0] for name in (row["file"], row["mono"]["file"]))
    both = stereo.sum(axis=1)
    assert len(mono) == len(both)
    scale = np.dot(mono, both) / np.dot(both, both)
    assert np.max(np.abs(mono - scale * both)) < 1e-3


def test_a_telephone_passes_its_band_alone_and_moves_nothing(render: Any, tmp_path: Path) -> None:
    clean, phone = (
        soundfile.read(tmp_path / name / render([episode(talk=TALK[:2])], name, style=Style(channel=name))[0]["file"])[
            0
        ]
        for name in ("clean", "telephone")
    )
    for before, after in zip(clean.T, phone.T, strict=True):
        assert band_share(after, 300, 3400) > 0.9
        assert band_share(after, 4000, 12000) < 0.001 < band_share(before, 4000, 12000)
        match = correlate(after, before, "same", "fft")
        assert abs(int(np.argmax(match)) - len(before) // 2) <= 3


def test_the_telephone_codes_as_g711_does() -> None:
    options = {**load_yaml(SETTINGS)["telephone"], "rate": RATE}
    times = np.arange(RATE) / RATE
    tone = (0.5 * np.sin(2 * np.pi * 1000 * times)).astype(np.float32)[:, None]
    heard = over_telephone(tone, RATE, **options)
    noise = heard[2000:-2000, 0] - tone[2000:-2000, 0]
    ratio = 10 * np.log10(np.mean(tone**2) / np.mean(noise**2))
    assert 33 < ratio < 42  # G.711 at a high level: 38 dB or so
    assert len(np.unique(np.round(heard, 6))) <= 256


def test_a_room_adds_an_echo_that_dies_away_and_is_the_same_again(render: Any, tmp_path: Path) -> None:
    def heard(name: str, **options: Any) -> tuple[Any, Any]:
        (row,) = render([episode(talk=TALK[:2])], name, style=Style(**options))
        return row, soundfile.read(tmp_path / name / row["file"])[0]

    row, clean = heard("clean")
    _, room = heard("room", channel="room")
    _, again = heard("again", channel="room")
    _, other = heard("other", channel="room", seed=1)
    assert np.array_equal(room, again)
    assert len(other) != len(room) or not np.array_equal(room, other)
    end = round(row["lines"][0]["end"] * RATE)
    after = [np.sqrt(np.mean(room[end + k * 2400 : end + (k + 1) * 2400, 0] ** 2)) for k in range(4)]
    assert not np.any(clean[end + 100 : end + 9600, 0])
    assert after[0] > 3 * after[2] > 0
    assert after == sorted(after, reverse=True)


@given(st.integers(100, 3000), st.sampled_from([8000, 16000, 22050, 44100]))
@settings(max_examples=15, deadline=None)
def test_another_rate_keeps_a_tone(hertz: int, rate: int) -> None:
    tone = np.sin(2 * np.pi * hertz * np.arange(rate) / rate).astype(np.float32)
    moved = resampled(tone, rate, RATE)
    wanted = np.sin(2 * np.pi * hertz * np.arange(RATE) / RATE)
    assert len(moved) == RATE
    assert np.max(np.abs(moved - wanted)[2400:-2400]) < 0.02


def test_a_peak_between_the_samples_is_seen_and_silence_has_none() -> None:
    times = np.arange(RATE)
    tone = np.sin(2 * np.pi * times / 4 + np.pi / 4).astype(np.float32)
    assert np.max(np.abs(tone)) == pytest.approx(0.707, abs=1e-3)
    assert true_peak(tone) == pytest.approx(1.0, abs=0.02)
    assert true_peak(np.zeros((0, 2), np.float32)) == 0
    assert loudness(np.zeros(RATE, np.float32)) is None


# --- the work ----------------------------------------------------------------------------------------------------


def different(count: int) -> list[dict[str, Any]]:
    """So many dialogues of four lines, none of which is in two."""
    asked = "Can you tell me what happened on day {}, and how you felt in the hours after it?"
    said = "On day {} it was bad: I could hardly stand up, and I had to lie down again at once."
    return [
        episode(
            k,
            [
                ("nurse", asked.format(2 * k + j)) if i == 0 else ("patient", said.format(2 * k + j))
                for j in (0, 1)
                for i in (0, 1)
            ],
        )
        for k in range(count)
    ]


def command(pool: Path, folder: Path, *more: Any) -> list[str]:
    out = ["--out", folder / "manifest.jsonl", "--errors", folder / "errors.jsonl"]
    return [*map(str, [sys.executable, SCRIPT, "--pool", pool, *out, "--store", folder / "store", *more])]


def test_two_workers_give_the_bytes_of_one_and_the_progress_tells_seconds(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "pool.jsonl", different(4))
    made = []
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        done = subprocess.run(
            command(tmp_path / "pool.jsonl", folder, "--workers", workers), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "0 of 16 different lines are spoken already, 16 are not\n" in done.stderr
        assert "line 16/16: " in done.stderr
        assert " s of audio done, about 0 s left\n" in done.stderr
        made.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    assert made[0] == made[1]
    assert made[0][Path("errors.jsonl")] == b""


def children(process: int) -> set[int]:
    return {int(name) for name in Path(f"/proc/{process}/task/{process}/children").read_text().split()}


def running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + HUNG
    while not reached():
        assert time.monotonic() < end
        os.sched_yield()


def test_a_kill_in_the_middle_leaves_no_worker_and_no_line_is_spoken_twice(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "pool.jsonl", different(15))
    folder = tmp_path / "audio"
    line = command(tmp_path / "pool.jsonl", folder, "--workers", 2)

    def kept() -> dict[Path, tuple[int, int]]:
        files = (path for path in (folder / "store").glob("*/*.flac") if not path.name.startswith("."))
        return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}

    first = subprocess.Popen(line, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(kept()) >= 12)
    workers = children(first.pid)
    first.send_signal(signal.SIGKILL)
    first.wait()
    wait_for(lambda: not any(map(running, workers)))
    before = kept()
    assert 12 <= len(before) < 60
    assert not (folder / "manifest.jsonl").exists()
    again = subprocess.run(line, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert f"{len(before)} of 60 different lines are spoken already, {60 - len(before)} are not\n" in again.stderr
    after = kept()
    assert len(after) == 60
    assert {path: after[path] for path in before} == before
    assert len((folder / "manifest.jsonl").read_text("utf-8").splitlines()) == 15


class Stumbling:
    """espeak that fails at some words; it travels to other processes."""

    def __init__(self) -> None:
        engine = load_engine("espeak")
        self.synthesizer = engine
        self.name, self.version, self.licence = engine.name, engine.version, engine.licence
        self.limit, self.voices = engine.limit, engine.voices

    def synthesize(self, text: str, voice: Voice, seed: int) -> tuple[Any, int]:
        if "day three," in text:
            raise TriageSimError("can't say that")
        if "day nine," in text:
            os._exit(9)
        return self.synthesizer.synthesize(text, voice, seed)


def stumbling() -> tuple[Any, None]:
    return Stumbling(), None


@pytest.mark.parametrize("workers", [1, 2])
def test_a_line_that_fails_is_named_and_the_rest_goes_on(render: Any, tmp_path: Path, workers: int) -> None:
    pool = different(4)
    with pytest.raises(RenderError) as caught:
        render(pool, by=stumbling, workers=workers, max_error_rate=0.2)
    said = "1 of 4 dialogues could not be rendered; the others are kept:\n  agenda/case-1-0, line 3: can't say that\n"
    assert said in str(caught.value)
    assert "(audio.max_error_rate is 0.2)" in str(caught.value)
    assert not (tmp_path / "audio" / "manifest.jsonl").exists()
    rows = render(pool, by=stumbling, workers=workers, max_error_rate=0.25)
    assert {row["episode_id"] for row in rows} == {"case-0-0", "case-2-0", "case-3-0"}


def test_the_errors_are_a_file(render: Any, tmp_path: Path) -> None:
    broken = episode(1, SHORT)
    broken["history"] = broken["history"][1:]
    write_jsonl(tmp_path / "pool.jsonl", [episode(0, SHORT), broken])
    line = command(tmp_path / "pool.jsonl", tmp_path / "out", "--max-error-rate", 0.5)
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = map(json.loads, (tmp_path / "out" / "errors.jsonl").read_text("utf-8").splitlines())
    assert (row["pairing"], row["episode_id"], row["line"]) == ("agenda", "case-1-0", None)
    assert "line 1 of the transcript isn't in the history" in row["error"]


def test_a_worker_that_is_ended_is_an_error_that_says_what_to_do(render: Any) -> None:
    with pytest.raises(TriageSimError, match=r"one of 2 speech workers was ended.* set audio\.workers lower"):
        render(different(5), by=stumbling, workers=2)


# --- the config ------------------------------------------------------------------------------------------------------


def config(**audio: Any) -> Any:
    base = {
        "data": {"source": "resources/cases/vignettes.jsonl", "provenance": "synthetic"},
        "models": {"agenda": {"backend": "agenda"}},
        "pairings": [{"nurse": "agenda", "patient": "agenda"}],
    }
    return check_config({**base, "audio": audio})


def test_the_licence_of_cloned_speech_is_accepted_by_the_user_alone() -> None:
    with pytest.raises(InputError, match=r"audio\.xtts\.accept_license: .*Coqui Public Model License"):
        config(engine="xtts")
    assert config(engine="xtts", xtts={"accept_license": True}).audio.xtts.accept_license
    assert not config().audio.xtts.accept_license


@pytest.mark.parametrize(
    "audio", [{"channel": "radio"}, {"format": "mp3"}, {"workers": 0}, {"max_error_rate": 2}, {"xtts": {"tempo": 1}}]
)
def test_an_audio_key_that_is_wrong_is_named(audio: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"audio\.{next(iter(audio))}"):
        config(**audio)
