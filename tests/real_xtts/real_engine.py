"""What the engine xtts does with the real coqui-tts and a tiny model; `tests/test_xtts.py` runs this where that is.

    .venv-audio/bin/python -m pytest -o addopts= tests/real_xtts/real_engine.py

The model's weights are random, so what it says is noise: this tests the path, not the speech.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import yaml

from make_xtts_model import main as make_model
from triagesim.errors import InputError
from triagesim.jsonl import read_lines
from triagesim.speech.engine import Engine, load_engine
from triagesim.speech.voices import Voice

ROOT = Path(__file__).resolve().parents[2]
HUNG = 600


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model, and two speakers whose recordings espeak-ng spoke."""
    folder = tmp_path_factory.mktemp("xtts")
    make_model(folder / "tiny")
    espeak = load_engine("espeak")
    text = "Good morning. I have had this pain in my chest since about half past ten, and it is getting worse."
    speakers = []
    for voice in (espeak.voices[0], espeak.voices[6]):
        samples, rate = espeak.synthesize(text, voice, 1)
        soundfile.write(folder / f"{voice.id}.wav", samples, rate)
        shared = voice.model_dump(include={"id", "gender", "age_group", "accent"})
        speakers.append({**shared, "references": [f"{voice.id}.wav"], "consent": True, "licence": "synthetic"})
    (folder / "speakers.yaml").write_text(yaml.safe_dump(speakers), encoding="utf-8")
    return folder


def options(home: Path, **more: Any) -> dict[str, Any]:
    given = {"model": str(home / "tiny"), "accept_license": True, "speakers": str(home / "speakers.yaml")}
    return {**given, "latents": str(home / "latents"), "device": "cpu", **more}


@pytest.fixture(scope="module")
def engine(home: Path) -> Engine:
    return load_engine("xtts", options(home))


def say(engine: Engine, text: str, voice: Voice, seed: int = 1) -> bytes:
    samples, rate = engine.synthesize(text, voice, seed)
    assert (samples.dtype, rate) == (np.float32, 24000)
    assert 0.3 * rate < len(samples) < 5 * rate
    assert 0 < np.max(np.abs(samples)) <= 1
    return samples.tobytes()


def test_a_line_sounds_the_same_by_seed_and_otherwise_by_voice_and_text(engine: Engine) -> None:
    her, him = engine.voices
    first = say(engine, "It hurts here.", her)
    assert say(engine, "It hurts here.", him) != first
    assert say(engine, "It hurts here.", her) == first
    assert say(engine, "It hurts here.", her, seed=2) != first
    slow = say(engine, "It hurts here.", her.model_copy(update={"tempo": 0.8}))
    assert len(slow) == pytest.approx(1.25 * len(first), rel=0.05)


def test_an_engine_says_what_speaks_and_under_which_licence(engine: Engine) -> None:
    assert "CPML" in engine.licence
    assert "not for commercial use" in engine.licence
    assert engine.limit == 250
    assert engine.version.startswith("coqui-tts 0.28.0, model tiny ")


def test_a_speaker_is_listened_to_once(home: Path, engine: Engine) -> None:
    her = engine.voices[0]
    first = say(engine, "Hello.", her)
    kept = {path: path.stat().st_mtime_ns for path in (home / "latents").iterdir()}
    assert kept
    again = load_engine("xtts", options(home))
    assert say(again, "Hello.", her) == first
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    for path in kept:
        path.write_bytes(b"torn")
    with pytest.raises(InputError, match=r"\.npz: can't be read .*remove it and run again"):
        load_engine("xtts", options(home)).synthesize("Hello.", her, 1)
    for path in kept:
        path.unlink()


def test_the_latents_are_those_of_the_package_itself(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from TTS.tts.models import xtts as coqui

    def load_audio(path: Any, rate: int) -> Any:
        """As the package's own, but for the decoder: soundfile instead of ffmpeg."""
        samples, own = soundfile.read(path, dtype="float32")
        return coqui.torchaudio.functional.resample(torch.from_numpy(samples)[None], own, rate).clip(-1, 1)

    monkeypatch.setattr(coqui, "load_audio", load_audio)
    voice = engine.voices[1]
    theirs = engine._model.get_conditioning_latents(
        audio_path=[str(path) for path in engine._recordings[voice.id]],
        max_ref_length=engine._cloning["max_ref_len"],
        gpt_cond_len=engine._cloning["gpt_cond_len"],
        gpt_cond_chunk_len=engine._cloning["gpt_cond_chunk_len"],
    )
    for own, other in zip(engine._listen(voice), theirs, strict=True):
        assert np.allclose(own, other.numpy(), atol=1e-5)


def test_text_without_words_is_a_moment_of_silence(engine: Engine) -> None:
    samples, rate = engine.synthesize("...", engine.voices[0], 1)
    assert 0 < len(samples) < 0.05 * rate
    assert not np.any(samples)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"language": "xx"}, r"audio\.xtts\.language: the model doesn't speak 'xx'; it speaks en, "),
        ({"device": "cuda"}, r"audio\.xtts\.device: cuda, and torch finds no GPU here"),
    ],
)
def test_an_option_that_is_wrong_is_named(home: Path, change: dict[str, Any], says: str) -> None:
    import torch

    if torch.cuda.is_available() and "device" in change:
        return
    with pytest.raises(InputError, match=says):
        load_engine("xtts", options(home, **change))


def test_the_workflow_speaks_with_it_from_cases_to_files(home: Path, tmp_path: Path) -> None:
    config = {
        "data": {"source": str(ROOT / "resources/cases/vignettes.jsonl"), "provenance": "synthetic"},
        "models": {"agenda": {"backend": "agenda"}},
        "pairings": [{"nurse": "agenda", "patient": "agenda", "cases": {"limit": 6}}],
        "simulation": {"max_turns": 1, "min_questions": 0},
        "pool": {"nurse_ended": False},
        "shards": 1,
        "audio": {
            "engine": "xtts",
            "max_dialogues": 1,
            "xtts": {key: value for key, value in options(home).items() if key != "latents"},
        },
    }
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    command = [sys.executable, "-m", "snakemake", "-s", ROOT / "Snakefile", "--directory", tmp_path, "--cores", "1"]
    target = "results/audio/manifest-1-of-1.jsonl"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [*command, target], env=environment, capture_output=True, text=True, check=False, timeout=HUNG
    )
    assert done.returncode == 0, done.stderr[-4000:]
    ((_, row),) = read_lines(tmp_path / target)
    assert row["engine"]["name"] == "xtts"
    assert row["engine"]["fallback"] is None
    assert {voice["licence"] for voice in row["voices"].values()} == {"synthetic"}
    info = soundfile.info(tmp_path / "results/audio" / row["file"])
    assert (info.samplerate, info.channels) == (24000, 2)
    assert len(row["lines"]) >= 2
    log = (tmp_path / "logs/render_audio/1-of-1.log").read_text(encoding="utf-8")
    assert "CPML" in log
    assert len(list((tmp_path / "journal/_speech/latents").iterdir())) == len(
        {line["speaker"] for line in row["lines"]}
    )
    assert json.loads((tmp_path / "results/config.json").read_text())["audio"]["xtts"]["accept_license"] is True
