"""The manifests of the spoken corpus: each loads in the library that its users have, with the same speakers and words.

Lhotse, meeteval, pyannote and datasets bring torch along; `tests/real_audio/load_manifests.py` runs them under the
Python of an environment of their own: `TRIAGESIM_AUDIO_PYTHON`, else `.venv-audio` in the repository.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import soundfile
import textgrid
import webvtt
from praatio import textgrid as praat

from spoken import TALK, episode, run, speak
from triagesim.errors import InputError
from triagesim.jsonl import write_jsonl
from triagesim.speech.corpus import read_corpus
from triagesim.speech.manifests import ctm

ROOT = Path(__file__).parent.parent
PYTHON = Path(os.environ.get("TRIAGESIM_AUDIO_PYTHON", ROOT / ".venv-audio" / "bin" / "python")).absolute()
SPLITS = '{"train": 0.5, "test": 0.5}'
IDS = ["agenda+case-0-0", "agenda+case-1-0", "agenda+case-2-0"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `audio` of three spoken dialogues with all manifests."""
    folder = tmp_path_factory.mktemp("corpus")
    pool = [
        episode(0),
        episode(1, TALK[:2], case={"case_id": "case-1", "gender": "female", "provenance": "synthetic"}),
        episode(2, TALK[2:]),
    ]
    describe(speak(folder, pool))
    return folder / "audio"


def describe(manifest: Path) -> None:
    folder = manifest.parent
    options = ["--pool", folder.parent / "pool.jsonl", "--out", folder / "manifests", "--splits", SPLITS]
    run("audio_manifests.py", manifest, *options, "--metadata", folder / "dialogues" / "metadata.jsonl")


def rows(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def spoken_rows(corpus: Path) -> list[dict[str, Any]]:
    return rows(corpus / "manifest-1-of-1.jsonl")


def test_subtitles_load_with_roles_times_and_the_written_words(corpus: Path) -> None:
    captions = webvtt.read(corpus / "manifests" / "webvtt" / "agenda" / "case-0-0.vtt").captions
    assert [caption.voice for caption in captions] == [speaker for speaker, _ in TALK]
    plain = [text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for _, text in TALK]
    assert [caption.text for caption in captions] == plain
    row = next(row for row in spoken_rows(corpus) if row["episode_id"] == "case-0-0")
    for caption, line in zip(captions, row["lines"], strict=True):
        assert caption.start_in_seconds == pytest.approx(line["start"], abs=1)
        assert caption.start == f"00:00:{line['start']:06.3f}"


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_textgrid_loads_in_two_libraries_with_a_tier_a_role(corpus: Path, number: int) -> None:
    path = corpus / "manifests" / "textgrid" / "agenda" / f"case-{number}-0.TextGrid"
    row = next(row for row in spoken_rows(corpus) if row["episode_id"] == f"case-{number}-0")
    wanted = {
        role: [(line["start"], line["end"], line["text"]) for line in row["lines"] if line["speaker"] == role]
        for role in ("nurse", "patient")
    }
    grid = textgrid.TextGrid.fromFile(str(path))
    assert grid.maxTime == pytest.approx(row["duration_s"])
    for tier in grid.tiers:
        assert [(each.minTime, each.maxTime, each.mark) for each in tier if each.mark] == wanted[tier.name]
        assert [each.maxTime for each in tier][:-1] == [each.minTime for each in tier][1:]
        assert (tier[0].minTime, tier[-1].maxTime) == (0, row["duration_s"])
    other = praat.openTextgrid(str(path), includeEmptyIntervals=False)
    assert other.tierNames == ("nurse", "patient")
    for role, lines in wanted.items():
        found = [(entry.start, entry.end, entry.label) for entry in other.getTier(role).entries]
        assert found == [(start, end, text) for start, end, text in lines]


def test_a_line_without_a_sound_is_no_speech(corpus: Path) -> None:
    lines = (corpus / "manifests" / "dialogues.rttm").read_text().splitlines()
    assert len(lines) == sum(text != "..." for _, text in [*TALK, *TALK])
    assert {line.split()[1] for line in lines} == set(IDS)
    assert all(len(line.split()) == 10 for line in lines)


def test_what_is_said_stands_in_the_stm_without_digits(corpus: Path) -> None:
    lines = [line.split(" ", 5) for line in (corpus / "manifests" / "dialogues.stm").read_text().splitlines()]
    assert len(lines) == 10
    said = next(text for name, *_, text in lines if name == IDS[0] and "chest pain" in text)
    assert said == "I've had chest pain since about ten thirty this morning, maybe seven out of ten."


def test_words_have_a_ctm_where_the_engine_gives_their_times(corpus: Path) -> None:
    assert (corpus / "manifests" / "dialogues.ctm").is_file()
    (dialogue, *_) = read_corpus(corpus.parent / "pool.jsonl", [corpus / "manifest-1-of-1.jsonl"])
    words = [{"word": "Hello,", "start": 0.3, "end": 0.61}, {"word": "I'm", "start": 0.61, "end": 0.8}]
    line = {"speaker": "nurse", "text": "Hello, I'm", "spoken": "Hello, I'm", "start": 0.3, "end": 0.8, "words": words}
    timed = dialogue._replace(audio={**dialogue.audio, "lines": [line]})
    assert list(ctm(timed)) == [f"{IDS[0]} 1 0.300 0.310 Hello,", f"{IDS[0]} 1 0.610 0.190 I'm"]


def test_the_metadata_describe_every_file_with_speakers_traits_split_and_labels(corpus: Path) -> None:
    described = rows(corpus / "dialogues" / "metadata.jsonl")
    assert [row["id"] for row in described] == IDS
    for row in described:
        info = soundfile.info(corpus / "dialogues" / row["file_name"])
        assert info.frames / info.samplerate == pytest.approx(row["duration_s"], abs=1e-3)
        assert row["split"] in ("train", "test")
        assert (row["quality"], row["engine"]) == ("demo-quality engine", "espeak")
        assert row["engine_licence"].startswith("GPL-3.0-or-later")
        assert (row["data_provenance"], row["nurse_model_label"]) == ("synthetic", "baseline")
        assert (row["nurse_workload"], row["patient_distress"], row["patient_demeanour"]) == ("quiet", "calm", None)
        assert row["nurse_speaker"] != row["patient_speaker"]
    assert [row["patient_gender"] for row in described] == ["male", "female", "male"]


def test_the_same_corpus_gives_the_same_bytes_and_nothing_stale_is_left(corpus: Path) -> None:
    def everything() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in corpus.rglob("*") if path.is_file()}

    before = everything()
    (corpus / "manifests" / "webvtt" / "agenda" / "gone.vtt").write_text("WEBVTT\n")
    describe(corpus / "manifest-1-of-1.jsonl")
    assert everything() == before


def test_audio_of_another_pool_is_an_error(corpus: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "pool.jsonl", [episode(0)])
    with pytest.raises(InputError, match=r"line \d: agenda/case-[12]-0 isn't in .*pool.jsonl; render the audio"):
        read_corpus(tmp_path / "pool.jsonl", [corpus / "manifest-1-of-1.jsonl"])
    manifest = corpus / "manifest-1-of-1.jsonl"
    with pytest.raises(InputError, match="is there twice; delete stale manifests"):
        read_corpus(corpus.parent / "pool.jsonl", [manifest, manifest])


def ffmpeg_of_pyav(folder: Path) -> Path:
    """FFmpeg's libraries as the wheel of PyAV carries them, under the names by which torchcodec looks for them."""
    packages = subprocess.run(
        [PYTHON, "-c", "import av, pathlib; print(pathlib.Path(av.__file__).parents[1])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    folder.mkdir()
    for library in Path(packages, "av.libs").iterdir():
        stem, _, version = library.name.partition(".so.")
        (folder / library.name).symlink_to(library)
        plain = folder / f"{stem.rpartition('-')[0]}.so.{version.partition('.')[0]}"
        if not plain.exists():
            plain.symlink_to(library)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason=f"no audio environment: {PYTHON} isn't there (see CONTRIBUTING.md)")
def test_lhotse_meeteval_pyannote_and_datasets_load_the_corpus(corpus: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [PYTHON, ROOT / "tests" / "real_audio" / "load_manifests.py", corpus],
        env={**os.environ, "LD_LIBRARY_PATH": str(ffmpeg_of_pyav(tmp_path / "ffmpeg"))},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    audio = spoken_rows(corpus)
    voices = sorted({f"espeak-{voice['id']}" for row in audio for voice in row["voices"].values()})
    lhotse, meeteval, pyannote, datasets = (found[name] for name in ("lhotse", "meeteval", "pyannote", "datasets"))
    assert (lhotse["recordings"], lhotse["supervisions"], lhotse["rttm"]) == (3, 10, 10)
    assert lhotse["quietest"] > 0.02
    assert (meeteval["stm"], meeteval["rttm"], meeteval["cpwer_with_itself"]) == (10, 10, 0)
    assert meeteval["ctm"] == len((corpus / "manifests" / "dialogues.ctm").read_text().splitlines())
    assert (pyannote["files"], pyannote["segments"]) == (IDS, 10)
    assert lhotse["speakers"] == meeteval["speakers"] == pyannote["speakers"] == voices
    assert datasets["rows"] == 3
    assert datasets["rate"] == audio[0]["rate"]
    assert datasets["shape"][0] == 2
    assert datasets["shape"][1] / datasets["rate"] == pytest.approx(datasets["duration_s"], abs=1e-3)
    assert datasets["said"] == [text for _, text in TALK]
    assert {"split", "quality", "engine_licence", "patient_distress", "nurse_speaker"} <= set(datasets["columns"])
