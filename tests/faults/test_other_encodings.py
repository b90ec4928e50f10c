"""Terminals that can't show every character: what they can't is replaced, and nothing ends for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENCODINGS = ("ascii", "latin-1", "cp437")


def run(folder: Path, encoding: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-c", "from triagesim.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds a dialogue whose case has characters of three alphabets and a temperature."""
    folder = tmp_path_factory.mktemp("encodings")
    case = '{"case_id": "odd", "chief_complaint": "Schmerz – болит 痛い", "acuity": 3, "acuity_scale": "esi", '
    (folder / "cases.jsonl").write_text(case + '"vitals": {"temperature": 38.5}}\n', encoding="utf-8")
    done = run(folder, "utf-8", "--model", "agenda", "--cases", "cases.jsonl", "--out", "run.jsonl")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_dialogue_is_shown_in_any_encoding(folder: Path, encoding: str) -> None:
    shown = run(folder, encoding, "show", "odd-0", "run.jsonl")
    assert shown.returncode == 0, shown.stderr
    assert "ground truth 3" in shown.stdout.decode(encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_error_names_what_the_terminal_cannot_show(folder: Path, encoding: str) -> None:
    missing = run(folder, encoding, "show", "odd-0", "痛い.jsonl")
    assert missing.returncode == 2
    assert b"error: " in missing.stderr
    assert b"Traceback" not in missing.stderr
