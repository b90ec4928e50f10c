"""The workflow through its documented commands, in a fresh copy of the repository."""

from __future__ import annotations

import csv
import datetime as dt
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fault_server import FaultServer
from triagesim.journal import read_records
from triagesim.jsonl import read_lines

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
NOT_COPIED = (
    "results",
    "journal",
    "logs",
    ".git",
    ".venv*",
    ".snakemake",
    "__pycache__",
    "*.egg-info",
    ".*_cache",
    "build",
)
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("SNAKEMAKE", "TRIAGESIM_PARENT"))},
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
}
DEMO = ROOT.parent / "shared" / "data" / "mimic-iv-ed-demo" / "ed"
Runner = Callable[..., subprocess.CompletedProcess[str]]


def clone(folder: Path) -> Path:
    """A copy of the repository as a fresh checkout would be."""
    return Path(shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True))


def snakemake(folder: Path, command: str, expect: int | None = 0) -> str:
    """Run a documented command in a folder; return all that it printed."""
    done = subprocess.run(
        command.split(), cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=600
    )
    text = done.stdout + done.stderr
    assert expect is None or done.returncode == expect, text
    return text


def jobs(text: str) -> dict[str, int]:
    """The jobs by rule that Snakemake says it runs or would run."""
    table = re.findall(r"^(\w+) +(\d+)$", text, re.MULTILINE)
    return {rule: int(count) for rule, count in table if rule != "total"}


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder but the crate, in which clock times stand."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != "ro-crate-metadata.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def answers(folder: Path) -> set[str]:
    """The files of the journal: a process that asks any call makes a new one."""
    return {str(path) for path in (folder / "journal").rglob("[0-9][0-9]/*.jsonl")}


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the configuration of a copy."""
    path = folder / "config" / "config.yaml"
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    change(config)
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")


def only_agenda(config: dict[str, Any]) -> None:
    """The quick run: the baseline alone, nothing spoken."""
    config["pairings"] = [{"nurse": "agenda", "patient": "agenda"}]
    config["audio"] = {"max_dialogues": 0}


@pytest.fixture(scope="module")
def default_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped run, finished."""
    folder = clone(tmp_path_factory.mktemp("default") / "triagesim")
    (folder / "printed.txt").write_text(snakemake(folder, "snakemake"), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def agenda_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the baseline alone."""
    folder = clone(tmp_path_factory.mktemp("agenda") / "triagesim")
    edit(folder, only_agenda)
    snakemake(folder, "snakemake")
    return folder


@pytest.fixture
def finished(agenda_run: Path, tmp_path: Path) -> Path:
    """A copy of the finished baseline run, with the times of its files."""
    return Path(shutil.copytree(agenda_run, tmp_path / "triagesim", symlinks=True))


def test_the_default_run_gives_episodes_scores_a_pool_and_speech(default_run: Path) -> None:
    results = default_run / "results"
    vignettes = len((default_run / "resources/cases/vignettes.jsonl").read_text(encoding="utf-8").splitlines())
    with (results / "metrics/summary.csv").open(encoding="utf-8") as file:
        rows = {row["pairing"]: row for row in csv.DictReader(file)}
    assert int(rows["agenda"]["episodes"]) == int(rows["agenda"]["ok"]) == vignettes
    assert int(rows["smollm2"]["episodes"]) == int(rows["smollm2"]["ok"]) == 3
    assert rows["smollm2"]["labels"] == "demo-quality model"
    assert rows["agenda"]["labels"] == "baseline without a language model"
    pool = [episode for _, episode in read_lines(results / "pool.jsonl")]
    assert pool
    assert all(e["final_triage"] == e["case"]["acuity"] and e["end_reason"] == "nurse_end" for e in pool)
    spoken = [row for _, row in read_lines(results / "audio/manifest-1-of-1.jsonl")]
    assert [row["pairing"] for row in spoken] == ["agenda", "agenda"]
    import soundfile

    for row in spoken:
        samples, rate = soundfile.read(results / "audio" / row["file"], always_2d=True)
        assert samples.shape[1] == 2
        assert len(samples) / rate == pytest.approx(row["duration_s"], abs=0.05)
        assert all(abs(samples[:, channel]).max() > 0.05 for channel in (0, 1))
        assert [line["start"] for line in row["lines"]] == sorted(line["start"] for line in row["lines"])


def test_what_the_default_run_speaks_is_understood_described_and_without_fault(
    default_run: Path, tmp_path: Path
) -> None:
    import jiwer

    from triagesim.fetch import fetch
    from triagesim.speech.heard import compared
    from triagesim.speech.recognise import Recogniser, files_of_recogniser, transcribe

    results = default_run / "results"
    for name in files_of_recogniser("whisper-tiny"):
        fetch(name)
    transcribe(results / "audio/manifest-1-of-1.jsonl", tmp_path / "heard", Recogniser("whisper-tiny"), lambda _: None)
    dialogues = [row["lines"] for _, row in read_lines(tmp_path / "heard")]
    said, heard = (
        [" ".join(compared(line[form]) for line in lines) for lines in dialogues] for form in ("text", "heard")
    )
    # Where kokoro couldn't be had, espeak spoke, which is harder to understand.
    spoken_by = {row["engine"] for _, row in read_lines(tmp_path / "heard")}
    assert jiwer.wer(said, heard) < (0.25 if spoken_by == {"kokoro"} else 0.4)
    # The control: what was heard of the other dialogue.
    assert jiwer.wer(said, heard[::-1]) > 0.8
    described = [row for _, row in read_lines(results / "audio/dialogues/metadata.jsonl")]
    assert len(described) == len(dialogues) == 2
    with (results / "metrics/audio_checks.csv").open(encoding="utf-8") as file:
        assert [row["problems"] for row in csv.DictReader(file)] == ["", ""]
    assert not (results / "metrics/asr.csv").exists()


def test_speech_is_heard_only_where_the_configuration_asks_for_it(tmp_path: Path) -> None:
    folder = clone(tmp_path / "triagesim")
    planned = jobs(snakemake(folder, "snakemake -n"))
    assert (planned["audio_manifests"], planned["acoustics"]) == (1, 1)
    assert not {"transcribe", "asr_metrics"} & set(planned)
    edit(folder, lambda config: config["audio"].update(transcribe={}, shards=3))
    heard = jobs(snakemake(folder, "snakemake -n"))
    assert (heard["render_audio"], heard["transcribe"], heard["asr_metrics"]) == (3, 3, 1)
    assert heard["fetch"] == planned["fetch"] + 1


def test_a_run_that_would_hear_without_the_package_for_it_says_so_before_any_job(tmp_path: Path) -> None:
    folder = clone(tmp_path / "triagesim")
    edit(folder, only_agenda)
    edit(folder, lambda config: config.update(audio={"transcribe": {}, "max_dialogues": 1}))
    # As if it weren't installed.
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['faster_whisper'] = None\n", encoding="utf-8")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**ENVIRONMENT, "PYTHONPATH": str(tmp_path)}
        command = ["snakemake", *arguments]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    refused = run()
    assert refused.returncode == 1
    assert "error: audio.transcribe needs the Python package faster_whisper" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (folder / "results").exists()
    assert run("-n").returncode == 0
    assert run("results/cases/cases.csv").returncode == 0


def test_the_run_ends_with_a_table_its_labels_and_the_paths_to_open(default_run: Path) -> None:
    printed = (default_run / "printed.txt").read_text(encoding="utf-8")
    for part in ("demo-quality model", "results/metrics/summary.csv\n", "results/pool.jsonl\n", "0 rejected"):
        assert part in printed
    assert re.search(r"simulate smollm2 \d-of-4: \d/\d episodes", printed)
    log = "".join(path.read_text(encoding="utf-8") for path in (default_run / "logs/simulate/agenda").iterdir())
    assert re.search(r"simulate agenda 1-of-4: (\d+)/\1 episodes", log)


@pytest.mark.parametrize("command", ["snakemake results/pool.jsonl", "snakemake -n", "snakemake"])
def test_after_the_default_run_nothing_is_to_be_done(default_run: Path, command: str) -> None:
    assert "Nothing to be done" in snakemake(default_run, command)


def test_deleted_results_come_back_the_same_without_a_call(default_run: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(default_run, tmp_path / "triagesim", symlinks=True))
    before, asked = contents(folder / "results"), answers(folder)
    shutil.rmtree(folder / "results")
    (folder / "results").mkdir()
    snakemake(folder, "snakemake")
    assert answers(folder) == asked
    assert contents(folder / "results") == before


@pytest.mark.parametrize(
    "command", ["snakemake --cores 8 --profile pbs -n", "snakemake -n", "snakemake results/pool.jsonl -n"]
)
def test_a_fresh_copy_plans_the_whole_run(tmp_path: Path, command: str) -> None:
    planned = jobs(snakemake(clone(tmp_path / "triagesim"), command))
    expected = {"build_cases": 1, "generate_personas": 2, "simulate": 8, "select_pool": 1}
    assert expected.items() <= planned.items()
    assert not (tmp_path / "triagesim" / "results").exists()


def test_another_folder_holds_the_run_with_directory(tmp_path: Path) -> None:
    folder, elsewhere = clone(tmp_path / "triagesim"), tmp_path / "elsewhere"
    edit(folder, only_agenda)
    snakemake(folder, f"snakemake --directory {elsewhere}")
    assert (elsewhere / "results/pool.jsonl").exists()
    assert (elsewhere / "journal/agenda").exists()
    assert not (folder / "results").exists()
    assert "Nothing to be done" in snakemake(folder, f"snakemake --directory {elsewhere}")


def test_another_folder_s_own_configuration_counts(tmp_path: Path) -> None:
    folder, elsewhere = clone(tmp_path / "triagesim"), tmp_path / "elsewhere"
    shutil.copytree(folder / "config", elsewhere / "config")
    edit(elsewhere, only_agenda)
    edit(elsewhere, lambda config: config.update(shards=3))
    assert jobs(snakemake(folder, f"snakemake -n --directory {elsewhere}"))["simulate"] == 3


def test_the_workflow_is_usable_as_a_module(tmp_path: Path) -> None:
    folder = clone(tmp_path / "triagesim")
    other = tmp_path / "other"
    other.mkdir()
    shutil.copytree(folder / "config", other / "config")
    edit(other, only_agenda)
    edit(other, lambda config: config["data"].update(source="resources/cases/examples.jsonl"))
    edit(other, lambda config: config.update(shards=1))
    guide = (ROOT / "config/README.md").read_text(encoding="utf-8").partition("### From another workflow")[2]
    shown = guide.partition("```python\n")[2].partition("```")[0]
    (other / "Snakefile").write_text(shown.replace("path/to/triagesim", str(folder)), encoding="utf-8")
    printed = snakemake(other, "snakemake --cores 1 results/pool.jsonl")
    assert re.search(r"^open: .*results/pool\.jsonl$", printed, re.MULTILINE)
    assert {row["pairing"] for _, row in read_lines(other / "results/pool.jsonl")} == {"agenda"}
    assert json.loads((other / "results/config.json").read_text(encoding="utf-8"))["shards"] == 1
    assert not (folder / "results").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config.update(runtime={"concurrency": 3}),
        lambda config: config["models"]["smollm2"].update(slots=2, threads=1),
    ],
)
def test_how_the_work_is_done_reruns_nothing(finished: Path, change: Callable[[dict[str, Any]], None]) -> None:
    edit(finished, change)
    assert "Nothing to be done" in snakemake(finished, "snakemake -n")


@pytest.mark.parametrize(
    "folder", ["workflow/scripts", "workflow/triagesim", "workflow/rules", "resources/personas", "config"]
)
def test_an_edited_comment_reruns_nothing(finished: Path, folder: str) -> None:
    files = [path for pattern in ("*.py", "*.smk", "*.yaml") for path in (finished / folder).glob(pattern)]
    for path in files:
        path.write_text(path.read_text(encoding="utf-8") + "\n# a remark\n", encoding="utf-8")
    assert files
    assert "Nothing to be done" in snakemake(finished, "snakemake -n")


def test_another_number_of_shards_keeps_every_case_once_and_asks_nothing(finished: Path) -> None:
    asked = answers(finished)
    before = sorted(line for path in (finished / "results/episodes").rglob("*.jsonl") for line in path.open("rb"))
    edit(finished, lambda config: config.update(shards=3))
    snakemake(finished, "snakemake")
    after = sorted(
        line for number in (1, 2, 3) for line in (finished / f"results/episodes/agenda/{number}-of-3.jsonl").open("rb")
    )
    assert after == before
    assert answers(finished) == asked


def test_one_more_pairing_runs_only_itself_and_what_gathers(finished: Path) -> None:
    def one_more(config: dict[str, Any]) -> None:
        config["pairings"].append({"name": "short", "nurse": "agenda", "patient": "agenda", "max_turns": 4})

    edit(finished, one_more)
    planned = jobs(snakemake(finished, "snakemake -n"))
    once = ("all", "summarise", "duplicates", "describe", "select_pool", "render_audio", "report", "export", "manifest")
    shards = dict.fromkeys(("simulate", "score"), 4)
    assert planned == {"resolve_pairing": 1, **shards, **dict.fromkeys(once, 1)}


def test_one_more_case_changes_the_episodes_of_one_shard_only(finished: Path) -> None:
    edit(finished, lambda config: config["data"].update(source="more.jsonl"))
    vignettes = (finished / "resources/cases/vignettes.jsonl").read_text(encoding="utf-8").splitlines()
    extra = json.dumps({**json.loads(vignettes[0]), "case_id": "one-more"})
    (finished / "more.jsonl").write_text("\n".join([*vignettes, extra]) + "\n", encoding="utf-8")
    before = contents(finished / "results/episodes")
    snakemake(finished, "snakemake")
    after = contents(finished / "results/episodes")
    assert sum(before[name] != after[name] for name in before) == 1


def test_a_changed_answer_s_source_reruns_its_pairing(finished: Path) -> None:
    edit(finished, lambda config: config.update(simulation={"seed": 5}))
    assert jobs(snakemake(finished, "snakemake -n"))["simulate"] == 4


def test_other_intervals_rerun_the_summary_and_what_shows_it(finished: Path) -> None:
    edit(finished, lambda config: config.update(score={"bootstrap": 300, "prevalence": [0.1, 0.2, 0.4, 0.2, 0.1]}))
    assert jobs(snakemake(finished, "snakemake")) == {
        "summarise": 1,
        "describe": 1,
        "report": 1,
        "manifest": 1,
        "all": 1,
    }
    tidy = json.loads((finished / "results/metrics/metrics.json").read_text(encoding="utf-8"))
    assert tidy["score"]["bootstrap"] == 300


def test_all_errors_of_the_configuration_are_told_before_anything_runs(finished: Path) -> None:
    def break_it(config: dict[str, Any]) -> None:
        config["pairings"][0]["nurse"] = "agend"
        config["data"]["provenance"] = "mimic_iv_ed"
        config["models"]["far"] = {"backend": "openrouter", "model": "x/y"}
        config["pairings"].append({"nurse": "far", "patient": "agenda"})

    edit(finished, break_it)
    text = snakemake(finished, "snakemake -n", expect=1)
    assert "pairings[0].nurse: no model 'agend' in models (did you mean agenda?)" in text
    assert "pairings[1].nurse: data.provenance mimic_iv_ed may not be sent to the hosted model 'far'" in text
    assert "Traceback" not in text


def test_a_configuration_that_is_no_yaml_says_where(finished: Path) -> None:
    path = finished / "config/config.yaml"
    path.write_text(path.read_text(encoding="utf-8") + "shards: [4\n", encoding="utf-8")
    text = snakemake(finished, "snakemake -n", expect=1)
    assert re.search(r"error: /.*/config/config\.yaml, line \d+: not YAML", text)


def test_a_missing_source_is_told_although_the_results_are_there(finished: Path) -> None:
    edit(finished, lambda config: config["data"].update(source="none.jsonl"))
    assert "data.source: no file none.jsonl" in snakemake(finished, "snakemake -n", expect=1)


def test_a_checkout_may_have_a_space_in_its_path(tmp_path: Path) -> None:
    folder = clone(tmp_path / "sp ace" / "re po")
    edit(folder, only_agenda)
    shutil.copy(folder / "resources/personas/example_nurse.yaml", folder / "my nurses.yaml")
    edit(folder, lambda config: config.update(personas={"nurse": {"file": "my nurses.yaml"}}, shards=1))
    snakemake(folder, "snakemake")
    assert (folder / "results/pool.jsonl").exists()


def test_a_missing_episode_is_noticed_by_the_summary(finished: Path) -> None:
    path = finished / "results/episodes/agenda/1-of-4.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[1:]), encoding="utf-8")
    snakemake(finished, "snakemake", expect=1)
    log = (finished / "logs/summarise.log").read_text(encoding="utf-8")
    assert f"missing: {json.loads(lines[0])['episode_id']}" in log


@pytest.mark.parametrize("moment", ["rule build_cases", "rule simulate", "rule score"])
def test_a_killed_snakemake_goes_on_after_unlock_with_the_same_bytes(
    moment: str, agenda_run: Path, tmp_path: Path
) -> None:
    folder = clone(tmp_path / "triagesim")
    edit(folder, only_agenda)
    with subprocess.Popen(
        ["snakemake"],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr
        for line in process.stderr:
            if line.rstrip().endswith(f"{moment}:"):
                break
        os.kill(process.pid, signal.SIGKILL)
        process.stderr.read()
    assert process.returncode == -signal.SIGKILL
    snakemake(folder, "snakemake --unlock")
    snakemake(folder, "snakemake")
    assert contents(folder / "results") == contents(agenda_run / "results")
    names = [record["name"] for record in read_records(folder / "journal" / "agenda") if "name" in record]
    assert len(names) == len(set(names))


def test_the_workflow_passes_its_lint() -> None:
    assert "Congratulations" in snakemake(ROOT, "snakemake --lint")


def test_a_run_with_a_dialogue_master_and_a_server_of_one_s_own(tmp_path: Path) -> None:
    folder = clone(tmp_path / "triagesim")

    with FaultServer() as server:

        def judged(config: dict[str, Any]) -> None:
            config["data"]["source"] = "resources/cases/examples.jsonl"
            config["models"]["own"] = {
                "backend": "openai",
                "model": "vendor/m:1",
                "base_url": server.url,
                "local": True,
                "identity": "made by a test",
            }
            config["pairings"] = [
                {"nurse": "agenda", "patient": "agenda", "judge": "agenda"},
                {"name": "served", "nurse": "own", "patient": "agenda", "judge": "own", "max_turns": 2},
            ]
            config["simulation"] = {"features": {"appearance": True}}
            config["runtime"] = {"speculation": "off"}
            config["audio"] = {"max_dialogues": 0}
            config["shards"] = 2

        edit(folder, judged)
        snakemake(folder, "snakemake")
        asked = len(server.asked)
        assert asked
        kept = contents(folder / "results" / "episodes")
        usage = json.loads((folder / "results" / "metrics" / "usage.json").read_text(encoding="utf-8"))
        assert usage["served"]["calls"] == asked + usage["served"]["by_purpose"]["patient"]
        assert usage["served"]["cost"] > 0
        for name, data in kept.items():
            for episode in map(json.loads, data.splitlines()):
                assert episode["status"] in ("ok", "skipped"), (name, episode["error"])
        shutil.rmtree(folder / "results")
        snakemake(folder, "snakemake results/pool.jsonl")
        assert contents(folder / "results" / "episodes") == kept
        assert len(server.asked) == asked
        assert jobs(snakemake(folder, "snakemake -n results/pool.jsonl")) == {}


def test_every_sampling_of_personas_makes_a_pool_with_its_weights(tmp_path: Path) -> None:
    folder = clone(tmp_path / "triagesim")
    pools = ("results/personas/patient", "results/personas/nurse")
    for patient, nurse, sizes in (("prevalence", "covering", (40, 15)), ("all", "prevalence", (104_976, 30))):
        personas = {"patient": {"sampling": patient, "n": 40}, "nurse": {"sampling": nurse, "n": 30}}
        edit(folder, lambda config, personas=personas: config.update(personas=personas))  # type: ignore[misc]
        snakemake(folder, f"snakemake {pools[0]}.jsonl {pools[1]}.jsonl")
        for name, size in zip(pools, sizes, strict=True):
            assert sum(1 for _ in read_lines(folder / f"{name}.jsonl")) == size
            with (folder / f"{name}.weights.csv").open(encoding="utf-8", newline="") as file:
                assert {"trait", "level", "weight", "source", "share"} <= next(csv.DictReader(file)).keys()


def test_data_that_looks_like_credentialed_mimic_meets_no_hosted_model_whatever_the_config_says(tmp_path: Path) -> None:
    folder = clone(tmp_path / "triagesim")
    with FaultServer() as server:

        def hosted(config: dict[str, Any]) -> None:
            config["data"] = {"source": "mine.csv", "provenance": "synthetic", "scale": "esi"}
            config["models"]["far"] = {"backend": "openai", "model": "m", "base_url": server.url}
            config["pairings"] = [{"nurse": "far", "patient": "agenda"}]
            config["audio"] = {"max_dialogues": 0}

        edit(folder, hosted)
        (folder / "mine.csv").write_text(
            "subject_id,stay_id,temperature,heartrate,resprate,o2sat,sbp,dbp,pain,acuity,chiefcomplaint\n"
            "10000032,33333333,98.4,70,16,97,106,63,0,3,Abdominal pain\n",
            encoding="utf-8",
        )
        text = snakemake(folder, "snakemake -n", expect=1)
        assert "pairings[0].nurse: data.provenance mimic_iv_ed may not be sent to the hosted model 'far'" in text
        assert "looks like MIMIC-IV-ED and isn't its open demo" in text
        assert server.asked == []


def test_attested_data_goes_to_its_hosted_model_and_all_that_is_made_of_it_is_the_owners_alone(tmp_path: Path) -> None:
    folder = clone(tmp_path / "triagesim")
    for name in ("results", "journal", "logs"):
        (folder / name).mkdir(mode=0o755)
    with FaultServer() as server:

        def attested(config: dict[str, Any]) -> None:
            config["data"] = {"source": "mine.jsonl", "provenance": "deidentified", "scale": "esi"}
            config["models"]["far"] = {"backend": "openai", "model": "m", "base_url": server.url}
            config["pairings"] = [{"nurse": "far", "patient": "agenda", "max_turns": 3}]
            config["audio"] = {"max_dialogues": 0}
            config["shards"] = 1
            block = {"user": "A. B.", "date": dt.date.today(), "provider": "127.0.0.1", "model": "m"}
            block |= dict.fromkeys(("zero_retention", "no_training", "no_human_review"), True)
            config["governance"] = {"hosted_attestation": {**block, "agreement_ref": "contract 12"}}

        edit(folder, attested)
        case = {"case_id": "a1", "chief_complaint": "Fall", "acuity": 3, "vitals": {"heartrate": 80}}
        (folder / "mine.jsonl").write_text(json.dumps(case) + "\n", encoding="utf-8")
        snakemake(folder, "snakemake")
        asked = len(server.asked)
        assert asked > 0
        made = [path for name in ("results", "journal") for path in (folder / name, *(folder / name).rglob("*"))]
        assert {path.stat().st_mode & 0o077 for path in made} == {0}
        assert all((folder / name).stat().st_mode & 0o077 == 0 for name in ("logs", ".snakemake"))
        assert "de-identified records" in " ".join((folder / "results/NOTICE.txt").read_text(encoding="utf-8").split())
        # A renewed attestation reruns nothing; an expired one stops before anything is asked.
        edit(folder, lambda config: config["governance"]["hosted_attestation"].update(agreement_ref="contract 13"))
        assert jobs(snakemake(folder, "snakemake -n")) == {}
        edit(folder, lambda config: config["governance"]["hosted_attestation"].update(date=dt.date(2025, 1, 1)))
        text = snakemake(folder, "snakemake --forceall", expect=1)
        assert "governance.hosted_attestation for provider '127.0.0.1', model 'm' of 2025-01-01 expired" in text
        assert len(server.asked) == asked


@pytest.mark.skipif(not DEMO.is_dir(), reason="the MIMIC-IV-ED demo isn't beside the repository")
def test_the_open_demo_runs_through_the_whole_chain(tmp_path: Path) -> None:
    folder = clone(tmp_path / "triagesim")

    def demo(config: dict[str, Any]) -> None:
        only_agenda(config)
        config["data"] = {"source": str(DEMO), "provenance": "mimic_iv_ed_demo", "scale": "esi"}

    edit(folder, demo)
    printed = snakemake(folder, "snakemake")
    assert "Contains information from the MIMIC-IV-ED Demo" in printed
    assert "Contains information from" in (folder / "results" / "NOTICE.txt").read_text(encoding="utf-8")
    flow = json.loads((folder / "results" / "cases" / "flow.json").read_text(encoding="utf-8"))
    assert flow["read"] == flow["accepted"] + flow["rejected"] == 222
    assert flow["read_by_acuity"] == {"1": 18, "2": 97, "3": 90, "4": 2, "none": 15}
    episodes = [
        json.loads(line) for path in (folder / "results/episodes/agenda").glob("*.jsonl") for line in path.open()
    ]
    assert len(episodes) == flow["selected"]
    assert {episode["case"]["provenance"] for episode in episodes} == {"mimic_iv_ed_demo"}
