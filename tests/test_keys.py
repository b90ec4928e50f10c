"""A run that asks a hosted model for which there is no key: told before the first job, and no hindrance to a replay."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import test_workflow
from fault_server import FaultServer
from test_workflow import clone, edit, jobs, snakemake
from triagesim.backends.keys import check_keys
from triagesim.config import AgendaModel, OpenAIModel, OpenRouterModel
from triagesim.errors import InputError

FAR = OpenRouterModel(backend="openrouter", model="vendor/m")
OTHERS = [AgendaModel(backend="agenda"), OpenAIModel(backend="openai", model="x", base_url="http://127.0.0.1:1/v1")]


@pytest.fixture(autouse=True)
def no_key_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No key of the machine's, in an empty working folder."""
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def answered(tmp_path: Path) -> Path:
    """A journal with a file of answers."""
    file = tmp_path / "journal" / "far" / "07" / "one.jsonl"
    file.parent.mkdir(parents=True)
    file.touch()
    return file.parents[1]


def test_a_run_that_could_ask_nothing_is_refused(answered: Path) -> None:
    with pytest.raises(InputError, match=r"^openrouter:vendor/m: there is no key; set OPENROUTER_API_KEY .*\.env"):
        check_keys([(answered, [FAR]), (answered.with_name("new"), [*OTHERS, FAR])])


def test_a_run_that_the_journal_may_answer_is_warned(answered: Path) -> None:
    said = check_keys([(answered, [FAR, *OTHERS])])
    assert said is not None
    assert said.startswith("openrouter:vendor/m: there is no key")


def test_jobs_elsewhere_may_find_what_is_not_here(answered: Path) -> None:
    assert check_keys([(answered.with_name("new"), [FAR])], here=False) is not None


def test_who_needs_no_key_or_has_it_is_told_nothing(answered: Path) -> None:
    assert check_keys([(answered.with_name("new"), OTHERS)]) is None
    Path(".env").write_text("OPENROUTER_API_KEY=sk-x\n", encoding="utf-8")
    assert check_keys([(answered.with_name("new"), [FAR])]) is None


@pytest.mark.slow
def test_the_workflow_says_so_before_its_first_job_and_replays_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(test_workflow.ENVIRONMENT, "OPENROUTER_API_KEY", raising=False)
    folder = clone(tmp_path / "triagesim")
    command = "snakemake results/completion/far/1-of-1.jsonl"

    def hosted(config: dict[str, Any]) -> None:
        config["data"] |= {"source": "resources/cases/examples.jsonl", "select": {"sample": 1}}
        config["models"]["far"] = {**FAR.model_dump(exclude_defaults=True), "base_url": server.url}
        config["pairings"] = [{"name": "far", "nurse": "far", "patient": "agenda", "max_turns": 1}]
        config |= {"shards": 1, "measures": {"judge": "far"}, "audio": {"max_dialogues": 0}}

    with FaultServer() as server:
        edit(folder, hosted)
        text = snakemake(folder, command, expect=1)
        assert "error: openrouter:vendor/m: there is no key; set OPENROUTER_API_KEY" in text
        assert "rule build_cases" not in text
        (folder / ".env").write_text("OPENROUTER_API_KEY=sk-x\n", encoding="utf-8")
        assert "there is no key" not in snakemake(folder, command)
        asked = len(server.asked)
        assert asked
        (folder / ".env").unlink()
        shutil.rmtree(folder / "results/completion")
        shutil.rmtree(folder / "results/episodes")
        text = snakemake(folder, command)
        assert "warning: openrouter:vendor/m: there is no key" in text
        assert len(server.asked) == asked
        assert "there is no key" not in snakemake(folder, "snakemake -n")
        assert jobs(snakemake(folder, f"{command} -n")) == {}
