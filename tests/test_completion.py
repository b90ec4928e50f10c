"""The rule judge_completion: a model judges finished episodes; nothing is asked twice, nothing is silent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from actors import Puppet, a_case, personas
from fault_server import Fault, FaultServer
from triagesim import simulate
from triagesim.completion import NAME, as_json, resolve_judge, transcript_view
from triagesim.config import check_config
from triagesim.errors import InputError
from triagesim.jsonl import read_lines, write_json, write_jsonl
from triagesim.measures import TaskCompletion, Verdict, completion_rate
from triagesim.prompts import prompts_digest, render

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "workflow" / "scripts" / "judge_completion.py"


def episodes(count: int = 4) -> list[dict[str, Any]]:
    """Finished episodes, one of them skipped."""
    cases = [a_case(f"syncope-{number}", chief_complaint=f"Syncope {number}") for number in range(count)]
    played = simulate(
        cases,
        nurse_llm=Puppet(),
        patient_llm=Puppet(),
        nurse_personas=personas("nurse"),
        patient_personas=personas("patient"),
    )
    done = [{**episode, "pairing": "played"} for episode in played]
    return [*done, {**done[0], "episode_id": "syncope-x-0", "status": "skipped"}]


def configured(url: str, data: str = "synthetic", **measures: Any) -> Any:
    """A configuration whose finished episodes a served model judges."""
    raw = {
        "data": {"source": "resources/cases/vignettes.jsonl", "provenance": data},
        "models": {
            "agenda": {"backend": "agenda"},
            "served": {"backend": "openai", "model": "played", "base_url": url, "identity": "played-1"},
        },
        "pairings": [{"nurse": "agenda", "patient": "agenda"}],
        "measures": {"judge": "served", **measures},
    }
    return check_config(raw)


def judge(folder: Path, url: str, *words: str, local: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the rule's command on `folder/episodes.jsonl`."""
    config = configured(url)
    write_json(folder / "judge.json", as_json(resolve_judge(config)))
    runtime = {"models": {"served": {"base_url": url, "local": local}}, "journals": str(folder / "journal")}
    command = [sys.executable, SCRIPT, folder / "episodes.jsonl", "--judge", folder / "judge.json"]
    command += ["--journal", folder / "journal" / "_completion-played", "--out", folder / "out.jsonl"]
    command += ["--usage", folder / "usage.json", *words]
    environment = {**os.environ, "TRIAGESIM_RUNTIME": json.dumps(runtime), "OPENAI_API_KEY": "none"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_every_finished_episode_gets_a_verdict_and_a_second_run_asks_nothing(tmp_path: Path) -> None:
    played = episodes()
    write_jsonl(tmp_path / "episodes.jsonl", played)
    with FaultServer() as server:
        done = judge(tmp_path, server.url)
        assert done.returncode == 0, done.stderr
        first, asked = (tmp_path / "out.jsonl").read_bytes(), len(server.asked)
        again = judge(tmp_path, server.url)
        assert again.returncode == 0, again.stderr
        assert len(server.asked) == asked == 4
    assert (tmp_path / "out.jsonl").read_bytes() == first
    assert json.loads((tmp_path / "usage.json").read_text(encoding="utf-8"))["by_purpose"] == {"completion": 4}
    rows = [row for _, row in read_lines(tmp_path / "out.jsonl")]
    assert [row["episode_id"] for row in rows] == [e["episode_id"] for e in played if e["status"] == "ok"]
    verdicts = [Verdict[TaskCompletion].model_validate(row["verdict"]) for row in rows]
    assert {verdict.evaluator for verdict in verdicts} == {NAME}
    assert completion_rate(verdicts) == sum(verdict.value.completed for verdict in verdicts) / 4


def test_episodes_without_a_verdict_fail_the_job_by_name_and_are_asked_anew(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "episodes.jsonl", episodes(2))
    with FaultServer(Fault("refusal")) as server:
        done = judge(tmp_path, server.url)
    assert done.returncode == 1
    assert "2 of 2 episodes have no verdict" in done.stderr
    assert "syncope-0-0" in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
    with FaultServer() as server:
        assert judge(tmp_path, server.url).returncode == 0
        assert len(server.asked) == 2


def test_within_the_error_rate_the_reason_stands_in_the_row(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "episodes.jsonl", episodes(2))
    with FaultServer(Fault("refusal", marker="Syncope 0")) as server:
        done = judge(tmp_path, server.url, "--max-error-rate", "0.5")
    assert done.returncode == 0, done.stderr
    rows = [row for _, row in read_lines(tmp_path / "out.jsonl")]
    assert sorted(row["verdict"] is None for row in rows) == [False, True]
    assert all((row["error"] is None) == (row["verdict"] is not None) for row in rows)


def test_the_judge_reads_the_talk_and_the_decision_and_no_truth() -> None:
    episode = episodes(1)[0]
    text = " ".join(message["content"] for message in render(transcript_view(episode), "full"))
    assert all(line["text"] in text for line in episode["transcript"])
    assert f"Triage level {episode['final_triage']} of 5" in text
    assert str(episode["case"]["vitals"]["heartrate"]) not in text


def test_a_changed_prompt_of_this_judge_changes_no_pairing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import shutil

    import triagesim.prompts

    before = {role: prompts_digest("full", role) for role in ("nurse", "patient", "judge", "script", "completion")}
    copy = Path(shutil.copytree(ROOT / "resources", tmp_path / "resources"))
    path = copy / "prompts" / "full" / "completion_system.j2"
    path.write_text(path.read_text(encoding="utf-8") + "More.\n", encoding="utf-8")
    monkeypatch.setattr(triagesim.prompts, "RESOURCES", copy)
    after = {role: prompts_digest("full", role) for role in before}
    assert {role for role in before if before[role] != after[role]} == {"completion"}


@pytest.mark.parametrize(("name", "problem"), [("servd", "did you mean served"), ("agenda", "no language model")])
def test_a_judge_that_cannot_judge_is_refused_by_its_key(name: str, problem: str) -> None:
    with pytest.raises(InputError, match=rf"measures\.judge.*{problem}"):
        configured("http://localhost:1/v1", judge=name)


def test_a_hosted_judge_gets_no_case_that_may_not_leave_whoever_runs_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"measures\.judge: data\.provenance deidentified may not be sent"):
        configured("http://127.0.0.1:1/v1", data="deidentified")
    closed = [{**one, "case": {**one["case"], "provenance": "deidentified"}} for one in episodes(1)[:1]]
    write_jsonl(tmp_path / "episodes.jsonl", closed)
    with FaultServer() as server:
        done = judge(tmp_path, server.url, local=False)
        assert server.asked == []
    assert done.returncode not in (0, 1)
    assert "deidentified data may not be sent" in done.stderr
