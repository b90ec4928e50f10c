"""The page on the spoken corpus: its snippets run, and its tables name every column and file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from spoken import episode, run, speak
from triagesim.resources import load_yaml
from triagesim.speech.acoustics import CHECKS, HEADER, MEASURES
from triagesim.speech.heard import HEADER as HEARD
from triagesim.speech.manifests import described

PAGE = (Path(__file__).parent.parent / "docs" / "corpus.md").read_text("utf-8")
LIGHT = [text for text in re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE) if "# light\n" in text]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `results` of a run with one spoken dialogue."""
    folder = tmp_path_factory.mktemp("run")
    manifest = speak(folder / "results", [episode(0)])
    audio = manifest.parent
    options = ["--pool", folder / "results" / "pool.jsonl", "--out", audio / "manifests", "--splits", '{"test": 1}']
    run("audio_manifests.py", manifest, *options, "--metadata", audio / "dialogues" / "metadata.jsonl")
    return folder / "results"


@pytest.mark.parametrize("snippet", LIGHT)
def test_a_snippet_that_needs_no_heavy_library_runs(
    snippet: str, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(results.parent)
    names: dict[str, object] = {}
    exec(compile(snippet, "docs/corpus.md", "exec"), names)
    for found in ("captions", "nurse", "heard"):
        assert found not in names or len(names[found]) > 0  # type: ignore[arg-type]


def test_there_are_such_snippets() -> None:
    assert len(LIGHT) == 3


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_column_of_the_metadata_is_named_and_no_other(results: Path) -> None:
    row = json.loads((results / "audio" / "dialogues" / "metadata.jsonl").read_text("utf-8").splitlines()[0])
    rows = re.findall(r"^\| (`.*?) \| ", section("metadata.jsonl"), re.MULTILINE)
    assert sorted(name for cells in rows for name in re.findall(r"`(\w+)`", cells)) == sorted(row)
    assert described.__doc__


@pytest.mark.parametrize(
    ("title", "columns"), [("acoustics.csv", [*HEADER, *MEASURES]), ("asr.csv", HEARD), ("audio_checks.csv", CHECKS)]
)
def test_every_column_of_a_table_is_named(title: str, columns: list[str]) -> None:
    named = set(re.findall(r"`(\w+)`", section(title)))
    assert set(columns) <= named


def test_every_kind_of_slot_and_every_problem_is_named() -> None:
    assert set(load_yaml("speech/asr.yaml")["slots"]) <= set(re.findall(r"`(\w+)`", section("asr.csv")))
    code = (Path(__file__).parent.parent / "workflow/triagesim/speech/acoustics.py").read_text("utf-8")
    block = code.partition("problems = {")[2].partition("\n    }")[0]
    named = " ".join(section("audio_checks.csv").split())
    assert [name for name in re.findall(r'"([a-z ]+)": ', block) if name not in named] == []
