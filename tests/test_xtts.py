"""Cloned voices: who may be cloned, and the real XTTS on a tiny model, where its environment is.

The real engine's tests (`tests/real_xtts/real_engine.py`) run under the Python of an environment that was made with
`envs/audio-cpu.txt`: `TRIAGESIM_AUDIO_PYTHON`, else `.venv-audio` in the repository.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import yaml

from triagesim.errors import InputError
from triagesim.jsonl import write_jsonl
from triagesim.speech.engine import choose_engine, load_engine
from triagesim.speech.speakers import as_voice, check_recordings, read_speakers, recordings_of

ROOT = Path(__file__).resolve().parents[1]
REAL = "tests/real_xtts/real_engine.py"
PYTHON = Path(os.environ.get("TRIAGESIM_AUDIO_PYTHON", ROOT / ".venv-audio" / "bin" / "python")).absolute()
#: Seconds that all tests on the real engine may take on a busy machine.
HUNG = 1800


def speaker(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": name,
        "gender": "female",
        "age_group": "adult",
        "accent": "British",
        "references": [f"{name}.wav"],
        "consent": True,
        "licence": "CC0-1.0",
    } | changes


def listed(folder: Path, *speakers: dict[str, Any], seconds: float = 3.5) -> str:
    """A file of speakers with a recording of each."""
    for number, one in enumerate(speakers):
        tone = 0.1 * np.sin(np.arange(round(seconds * 16000)) * (0.05 + 0.01 * number))
        soundfile.write(folder / f"{one['id']}.wav", tone, 16000)
    (folder / "speakers.yaml").write_text(yaml.safe_dump(list(speakers)), encoding="utf-8")
    return str(folder / "speakers.yaml")


def load(speakers: str, **options: Any) -> Any:
    given = {"model": "m", "accept_license": True, "speakers": speakers, "latents": "latents", **options}
    return load_engine("xtts", given)


def test_a_speaker_becomes_a_voice_by_what_was_recorded_not_where_it_lies(tmp_path: Path) -> None:
    voices = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        found = read_speakers(listed(tmp_path / name, speaker("a"), speaker("b")))
        voices.append([as_voice(*one) for one in found.values()])
    assert voices[0] == voices[1]
    assert voices[0][0].parameters != voices[0][1].parameters
    assert voices[0][0].licence == "CC0-1.0"
    assert str(tmp_path) not in voices[0][0].model_dump_json()


def test_all_that_is_wrong_with_the_speakers_is_said_at_once(tmp_path: Path) -> None:
    path = listed(tmp_path, speaker("a", consent=False), speaker("b"))
    (tmp_path / "b.wav").unlink()
    with pytest.raises(InputError) as caught:
        load(path)
    assert f"{path}: 2 problem(s) with its speakers\n" in str(caught.value)
    assert "a: consent isn't given (consent: true states that it is)" in str(caught.value)
    assert f"b: no file {tmp_path / 'b.wav'}" in str(caught.value)


def test_a_recording_that_is_short_or_no_sound_is_named(tmp_path: Path) -> None:
    path = listed(tmp_path, speaker("a"), speaker("b"), seconds=2.9)
    (tmp_path / "b.wav").write_bytes(b"RIFF")
    with pytest.raises(
        InputError, match=r"(?s)a: a\.wav lasts 2\.9 s; a reference needs at least 3 s.*b: b\.wav can't be read"
    ):
        load(path)
    assert check_recordings(path, read_speakers(listed(tmp_path, speaker("a"), speaker("b"), seconds=3))) is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"consent": None}, "consent"),
        ({"licence": ""}, "licence"),
        ({"references": []}, "references"),
        ({"gender": "other"}, "gender"),
        ({"id": "b"}, "each with an id of its own"),
    ],
)
def test_an_entry_that_is_no_speaker_is_named(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    path = listed(tmp_path, speaker("a"), speaker("b"))
    (tmp_path / "speakers.yaml").write_text(yaml.safe_dump([speaker("a", **change), speaker("b")]), encoding="utf-8")
    with pytest.raises(InputError, match=says):
        read_speakers(path)


def test_none_are_shipped_and_the_error_says_what_to_do() -> None:
    with pytest.raises(InputError, match=r"resources/voices/xtts\.yaml: lists no speaker; .*who agreed"):
        recordings_of("resources/voices/xtts.yaml")


def test_the_commented_example_is_one_that_can_be_used(tmp_path: Path) -> None:
    shipped = (ROOT / "resources/voices/xtts.yaml").read_text(encoding="utf-8")
    example = yaml.safe_load("\n".join(line[2:] for line in shipped.partition("\n#\n")[2].splitlines()[:-1]))
    assert set(example[0]) == set(speaker("s01"))
    (tmp_path / "s01").mkdir()
    path = listed(tmp_path, {**example[0], "id": "s01/reading"}, speaker("b"))
    (tmp_path / "speakers.yaml").write_text(yaml.safe_dump([*example, speaker("b")]), encoding="utf-8")
    assert recordings_of(path) == [tmp_path / name for name in ("speakers.yaml", "s01/reading.wav", "b.wav")]


def test_without_an_accepted_licence_nothing_is_read_and_nothing_is_agreed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"audio\.xtts\.accept_license: .*no commercial use"):
        load(str(tmp_path / "none.yaml"), accept_license=False)
    assert "COQUI_TOS_AGREED" not in os.environ


def test_a_model_that_is_neither_folder_nor_name_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"audio\.xtts\.model: there is no folder gone, and it is no name"):
        load(listed(tmp_path, speaker("a"), speaker("b")), model="gone")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty holds no config\.json and no vocab\.json and no model\.pth"):
        load(listed(tmp_path, speaker("a"), speaker("b")), model=str(tmp_path / "empty"))


def test_no_other_engine_speaks_for_it_where_the_package_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "TTS", None)
    for name in ("config.json", "vocab.json", "model.pth"):
        (tmp_path / name).write_bytes(b"")
    path = listed(tmp_path, speaker("a"), speaker("b"))
    options = {"model": str(tmp_path), "accept_license": True, "speakers": path, "latents": str(tmp_path / "latents")}
    with pytest.raises(InputError, match=r'xtts needs the Python package TTS.*pip install -e "\.\[audio\]"'):
        choose_engine("xtts", [], None, options)


def test_the_script_says_it_in_one_text(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "pool.jsonl", [])
    command = [sys.executable, ROOT / "workflow/scripts/render_audio.py", "--pool", tmp_path / "pool.jsonl"]
    command += ["--out", tmp_path / "m.jsonl", "--store", tmp_path / "store", "--engine", "xtts"]
    command += ["--xtts", f'{{"model": "m", "accept_license": true, "speakers": "{tmp_path}/none.yaml"}}']
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: audio.xtts.speakers: no file {tmp_path}/none.yaml")


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason=f"no XTTS environment: {PYTHON} isn't there (see CONTRIBUTING.md)")
def test_the_real_engine_on_a_tiny_model(tmp_path: Path) -> None:
    # The tests' own conftest.py needs what this environment hasn't.
    alone = ["-o", "addopts=", "--confcutdir=tests/real_xtts"]
    command = [PYTHON, "-m", "pytest", "-q", "-rs", *alone, f"--basetemp={tmp_path / 'real'}", REAL]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=HUNG)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout
