"""Prompt templates that somebody edited, and broke."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors import personas
from fault_server import FaultServer
from triagesim import load_cases, prompts, simulate
from triagesim.backends.hosted import OpenAICompatible
from triagesim.errors import InputError
from triagesim.resources import RESOURCES

BROKEN = {
    b"{% if x %}\nhello {{ ": r"full/%s\.j2, line 2: unexpected",
    b"{{ nothing.here }}": r"full/%s\.j2: 'nothing' is undefined",
    b"\n\n{{ 1 | nofilter }}": r"full/%s\.j2, line 3: No filter named",
    b'{% include "gone.j2" %}': r"full/%s\.j2: 'gone.j2' not found",
    b'{{ 1 + "a" }}': r"full/%s\.j2: unsupported operand",
    b"caf\xe9": r"%s\.j2: not UTF-8",
}
CACHES = (prompts._environment, prompts._template, prompts._system)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the prompts that is read in place of the shipped ones."""
    shutil.copytree(RESOURCES / "prompts", tmp_path / "prompts")
    monkeypatch.setattr(prompts, "RESOURCES", tmp_path)
    _forget()
    yield tmp_path / "prompts/full"
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    prompts._openings.clear()
    for cached in CACHES:
        cached.cache_clear()


@pytest.mark.parametrize("name", ["nurse_step", "patient_system"])
@pytest.mark.parametrize(("content", "said"), BROKEN.items(), ids=range(len(BROKEN)))
def test_a_broken_template_stops_the_run_with_its_name(folder: Path, name: str, content: bytes, said: str) -> None:
    (folder / f"{name}.j2").write_bytes(content)
    pools = {"nurse_personas": personas("nurse", 1), "patient_personas": personas("patient", 1)}
    cases = load_cases(RESOURCES / "cases/examples.jsonl")[:1]
    with FaultServer() as server:
        backend = OpenAICompatible("m", base_url=server.url, local=True)
        episodes = simulate(cases, nurse_llm=backend, patient_llm=backend, **pools)
        with pytest.raises(InputError, match=r"resources/prompts.*" + said % name):
            next(episodes)
