"""Where a run's results come from, and what tells that one of them was changed; on a real run of the baseline."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from rocrate.rocrate import ROCrate

from test_workflow import clone, contents, edit, only_agenda, snakemake
from triagesim.cli import main
from triagesim.errors import InputError
from triagesim.verify import verify

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small finished run of the baseline, in a copy of the repository."""

    def small(config: dict[str, Any]) -> None:
        only_agenda(config)
        config["data"]["select"] = {"sample": 4}
        config["shards"] = 1

    folder = clone(tmp_path_factory.mktemp("verify") / "triagesim")
    edit(folder, small)
    snakemake(folder, "snakemake")
    return folder


@pytest.fixture
def results(run: Path, tmp_path: Path) -> Path:
    """The results of a copy of the run."""
    return Path(shutil.copytree(run, tmp_path / "triagesim", symlinks=True)) / "results"


def change_a_byte(path: Path, before: bytes, after: bytes) -> None:
    data = path.read_bytes()
    assert before in data
    assert len(before) == len(after)
    path.write_bytes(data.replace(before, after, 1))


def named(problems: list[str], results: Path) -> set[str]:
    """The files that the problems name, below results."""
    return {str(Path(problem.partition(":")[0].partition(", line")[0]).relative_to(results)) for problem in problems}


def test_the_crate_is_one_and_tells_data_code_models_and_times(run: Path) -> None:
    crate = ROCrate(run / "results")
    files = {entity.id: entity for entity in crate.get_entities() if entity.type == "File"}
    made = {name for name in contents(run / "results") if name != "config.json" and "/." not in name}
    assert set(files) == made
    for name in ("pool.jsonl", "metrics/summary.csv", "dataset/README.md"):
        assert files[name]["sha256"] == sha256((run / "results" / name).read_bytes()).hexdigest()
    source = (run / "resources/cases/vignettes.jsonl").read_bytes()
    assert crate.get("#data-1")["sha256"] == sha256(source).hexdigest()
    assert '"rules":' in crate.get("#model-agenda")["description"]
    assert crate.get("#simulation.seed")["value"] == 0
    assert crate.get("#package-pydantic")["softwareVersion"]
    assert crate.get("#rule-simulate")["description"].startswith("1 jobs, ")
    assert crate.get("#run")["startTime"] <= crate.get("#run")["endTime"]
    assert json.loads(crate.get("#config")["value"])["shards"] == 1
    assert str(run) not in (run / "results/ro-crate-metadata.json").read_text(encoding="utf-8")


def test_a_fresh_run_is_what_its_episodes_give_and_verifying_leaves_no_trace(results: Path) -> None:
    before = contents(results.parent)
    problems, checked = verify(results)
    assert problems == []
    assert checked.startswith("4 episodes, ")
    assert checked.endswith("recorded hashes")
    assert contents(results.parent) == before


def test_a_changed_byte_of_a_table_the_pool_or_a_score_names_that_file_alone(results: Path) -> None:
    changed = {
        "metrics/summary.csv": (b"agenda", b"agendo"),
        "pool.jsonl": (b'"text":"', b'"texd":"'),
        "scores/agenda/1-of-1.csv": (b"nurse_end", b"nurse_enb"),
        "dataset/utterances_train.csv": (b"agenda/", b"agendb/"),
    }
    for name, bytes_of in changed.items():
        change_a_byte(results / name, *bytes_of)
    (results / "ro-crate-metadata.json").unlink()
    problems, checked = verify(results)
    assert named(problems, results) == set(changed)
    assert len(problems) == len(changed)
    assert "no recorded hashes" in checked


def test_a_changed_byte_of_an_episode_names_it_by_its_recorded_hash(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = results / "episodes/agenda/1-of-1.jsonl"
    change_a_byte(path, b'"utterance":"', b'"utteranco":"')
    monkeypatch.setattr("sys.argv", ["triagesim", "verify", str(results)])
    with pytest.raises(SystemExit, match="1"):
        main()
    problems = capsys.readouterr().out.splitlines()
    assert f"{path}: isn't the file that ro-crate-metadata.json recorded" in problems
    assert any(problem.startswith(f"{path}, line 1: history.0") for problem in problems)


def test_a_lost_case_and_a_lost_episode_are_missed(results: Path) -> None:
    path = results / "episodes/agenda/1-of-1.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[1:]), encoding="utf-8")
    table = results / "cases/rejects.csv"
    table.write_text(table.read_text(encoding="utf-8") + "x,1,a,b,c\n", encoding="utf-8")
    problems, _ = verify(results)
    lost = json.loads(lines[0])["episode_id"]
    assert f"{path.parent}: 3 episodes don't add up to the 4 of the cases: {lost}" in problems
    assert f"{table}: 1 rows, but flow.json counts 0" in problems
    assert any("can't be made anew: error: pairing agenda: " in problem for problem in problems)


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no config\.json"):
        verify(tmp_path)


def test_a_source_outside_of_the_runs_folder_is_found(results: Path) -> None:
    stated = json.loads((results / "config.json").read_text(encoding="utf-8"))
    hidden = results.parent / ".cases"
    hidden.mkdir()
    shutil.copy2(results.parent / stated["data"]["source"], hidden)
    shutil.copy2(results.parent / stated["data"]["source"], results.parent.parent / "outside.jsonl")
    for place in ("../outside.jsonl", ".cases/vignettes.jsonl"):
        stated["data"]["source"] = place
        (results / "config.json").write_text(json.dumps(stated), encoding="utf-8")
        assert verify(results)[0] == []
