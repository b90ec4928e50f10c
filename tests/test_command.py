"""The command `triagesim` and the rule's driver, as processes of their own: resume, refuse, stop, survive kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors import personas
from fault_server import FaultServer
from triagesim.jsonl import dumps, read_lines

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "resources" / "cases" / "examples.jsonl"
VIGNETTES = ROOT / "resources" / "cases" / "vignettes.jsonl"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
OPTIONS = (
    *("--model", "--nurse-model", "--patient-model", "--judge-model", "--cases", "--nurse-personas"),
    *("--patient-personas", "--out", "--algorithm", "--limit", "--episodes-per-case", "--max-turns"),
    *("--min-questions", "--max-regenerations", "--sampling", "--vllm-args", "--openrouter-args", "--model-args"),
    *("--concurrency", "--seed", "--appearance", "--belief-state", "--feedback", "--time-limit", "--stop-at"),
)
COMMAND = [sys.executable, "-m", "triagesim.cli"]


def triagesim(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, cwd=cwd, check=False, timeout=120)


def simulate(out: Path, *more: object) -> subprocess.CompletedProcess[str]:
    return triagesim("--model", "agenda", "--cases", EXAMPLES, "--out", out, *more)


def ids(path: Path) -> list[str]:
    return sorted(episode["episode_id"] for _, episode in read_lines(path))


def test_help_names_the_documented_options_and_loads_nothing_heavy() -> None:
    text = triagesim("--help").stdout
    for option in OPTIONS:
        assert option in text
    code = "import sys, triagesim, triagesim.cli; print(sorted({'pydantic', 'numpy', 'xllamacpp'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert shown.stdout.strip() == "[]"


def test_a_run_appends_each_episode_and_prints_the_summary(tmp_path: Path) -> None:
    done = simulate(tmp_path / "run.jsonl", "--episodes-per-case", 2)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["episodes"] == 6
    assert 0 <= summary["accuracy"] <= 1
    assert len(ids(tmp_path / "run.jsonl")) == 6
    assert "6/6 episodes" in done.stderr


def test_the_same_command_again_asks_nothing_and_changes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    simulate(out)
    before = out.read_bytes()
    again = simulate(out)
    assert again.returncode == 0
    assert out.read_bytes() == before
    assert "3 episodes are there already, 0 to go" in again.stderr


def test_an_interrupted_run_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    simulate(out)
    whole = out.read_bytes()
    first = whole.split(b"\n")[0] + b"\n"
    out.write_bytes(first + whole[len(first) : len(first) + 40])
    assert simulate(out).returncode == 0
    assert out.read_bytes().startswith(first)
    assert sorted(out.read_bytes().splitlines()) == sorted(whole.splitlines())


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FaultServer, list[Any], Path]]:
    """The played server, the options and the output of a run with a dialogue master."""
    folder = tmp_path_factory.mktemp("judged")
    for number in (20, 21):
        rows = [persona.model_dump_json() for persona in personas("patient", number)]
        (folder / f"{number}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    with FaultServer() as server:
        options = ["--model", "openai:m", "--judge-model", "openai:m", "--model-args", dumps({"base_url": server.url})]
        options += ["--cases", EXAMPLES, "--limit", 1, "--max-turns", 1, "--patient-personas", folder / "20.jsonl"]
        options += ["--provenance", "synthetic", "--out", folder / "run.jsonl"]
        done = triagesim(*options)
        assert done.returncode == 0, done.stderr
        yield server, options, folder / "run.jsonl"


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        (["--judge-model", "openai:other"], 'models.judge.model: "m", now "other"; models.script.model: "m", now'),
        (["--max-regenerations", 2], "max_regenerations: 1, now 2"),
        (["--belief-state"], "features.belief_state: false, now true"),
        (["--prompts", "compact"], 'prompts.nurse: "'),
        (["--sampling", '{"script": {"temperature": 0.1}}'], "models.script.sampling.temperature: null, now 0.1"),
        (["--seed", 7], "seed: 0, now 7"),
        (["--patient-personas", "21.jsonl"], 'patient_personas: "'),
        (["--algorithm", "ats"], 'algorithm: null, now "ats"'),
    ],
)
def test_a_resume_of_another_run_is_refused_with_the_difference_and_asks_nothing(
    options: list[Any], difference: str, judged: tuple[FaultServer, list[Any], Path]
) -> None:
    server, first, out = judged
    before, asked = out.read_bytes(), len(server.asked)
    files = sorted(out.parent.rglob("*"))
    refused = triagesim(*first, *options, cwd=out.parent)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: {out}: was made by another specification (")
    assert difference in refused.stderr
    assert "name another --out" in refused.stderr
    assert (out.read_bytes(), len(server.asked)) == (before, asked)
    assert sorted(out.parent.rglob("*")) == files


def test_what_changes_no_result_is_no_other_run(judged: tuple[FaultServer, list[Any], Path]) -> None:
    server, first, out = judged
    before, asked = out.read_bytes(), len(server.asked)
    work = ["--concurrency", 3, "--speculation", "full", "--budget-tokens", 10**9, "--time-limit", "1:00:00"]
    again = triagesim(*first, *work)
    assert again.returncode == 0, again.stderr
    assert (out.read_bytes(), len(server.asked)) == (before, asked)


def test_arguments_come_from_a_file_one_a_line(tmp_path: Path) -> None:
    (tmp_path / "run.args").write_text(
        f"# the run\n--model\nagenda\n--cases\n{EXAMPLES}\n\n--out\n{tmp_path / 'a.jsonl'}\n--limit\n1\n",
        encoding="utf-8",
    )
    assert triagesim(f"@{tmp_path / 'run.args'}").returncode == 0
    assert len(ids(tmp_path / "a.jsonl")) == 1


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--model", "ollama:x"], "unknown backend 'ollama'"),
        (["--model", "llamacpp:"], "names no model"),
        (["--nurse-model", "agenda"], "no model for the patient"),
        (["--model", "openai:name"], "base_url"),
        (["--model", "agenda", "--appearance"], "give --judge-model"),
        (["--model", "agenda", "--time-limit", "1h"], "H:MM:SS"),
        (["--model", "agenda", "--stop-at", "noon"], "2026-05-01T18:30"),
        (["--model", "agenda", "--budget-usd", "-1"], "an amount above 0"),
        (["--model", "agenda", "--sampling", "{"], "not JSON"),
        (["--model", "agenda", "--sampling", '{"doctor": {}}'], "unknown role doctor"),
        (["--model", "agenda", "--max-turns", "0"], "whole number from 1"),
        (["--model", "agenda", "--cases", "none.jsonl"], "none.jsonl: no such file"),
    ],
)
def test_a_wrong_option_is_one_clear_error(tmp_path: Path, arguments: list[str], part: str) -> None:
    cases = [] if "--cases" in arguments else ["--cases", str(EXAMPLES)]
    done = triagesim(*cases, "--out", tmp_path / "x.jsonl", *arguments)
    assert done.returncode == 2
    assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x.jsonl").exists()


def test_a_journal_brings_a_deleted_output_back_without_a_call(tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    simulate(out)
    before = sorted(out.read_bytes().splitlines())
    records = sorted(path for path in (tmp_path / "run.jsonl.journal").rglob("*.jsonl"))
    out.unlink()
    simulate(out)
    assert sorted(out.read_bytes().splitlines()) == before
    assert sorted(path for path in (tmp_path / "run.jsonl.journal").rglob("*.jsonl")) == records


def test_status_and_show_read_what_a_run_left(tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    simulate(out)
    status = triagesim("status", tmp_path / "run.jsonl.journal")
    row = status.stdout.splitlines()[1].split()
    assert row[:4] == ["run.jsonl.journal", "3", "0", "0"]
    name = ids(out)[0]
    shown = triagesim("show", name, out).stdout
    episode = next(e for _, e in read_lines(out) if e["episode_id"] == name)
    assert "baseline without a language model" in shown
    for line in episode["transcript"]:
        assert line["text"] in shown
    missing = triagesim("show", name[:-1] + "9", out)
    assert missing.returncode == 2
    assert f"did you mean {name}" in missing.stderr


def test_a_mistyped_task_names_the_near_one(tmp_path: Path) -> None:
    done = triagesim("verfy", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "unknown task 'verfy' (did you mean verify?); there are status, show, verify" in done.stderr


def test_show_names_the_near_pairing_and_says_that_a_case_was_rejected(tmp_path: Path) -> None:
    simulate(tmp_path / "run.jsonl")
    shard = tmp_path / "results" / "episodes" / "agenda" / "1-of-1.jsonl"
    shard.parent.mkdir(parents=True)
    shard.write_bytes((tmp_path / "run.jsonl").read_bytes())
    name = ids(shard)[0]
    mistyped = triagesim("show", name, "--pairing", "agend", cwd=tmp_path)
    assert mistyped.returncode == 2
    assert "no pairing 'agend' in results/episodes (did you mean agenda?)" in mistyped.stderr
    rejects = tmp_path / "results" / "cases" / "rejects.csv"
    rejects.parent.mkdir()
    rejects.write_text(
        "file,line,id,code,text\n"
        "a.csv,3,c01,under_age,under 16\n"
        f"a.csv,4,{name.rpartition('-')[0]},duplicate_row,again\n",
        encoding="utf-8",
    )
    for asked in ("c01-0", "c01"):
        rejected = triagesim("show", asked, cwd=tmp_path)
        assert rejected.returncode == 2
        assert "its case was rejected and stands in results/cases/rejects.csv: under_age, under 16" in rejected.stderr
    assert "rejects.csv" not in triagesim("show", name[:-1] + "9", cwd=tmp_path).stderr


def test_show_passes_over_what_an_earlier_number_of_shards_or_a_kill_left(tmp_path: Path) -> None:
    simulate(tmp_path / "run.jsonl")
    folder = tmp_path / "results" / "episodes" / "agenda"
    folder.mkdir(parents=True)
    name = ids(tmp_path / "run.jsonl")[0]
    now = (tmp_path / "run.jsonl").read_text(encoding="utf-8")
    (folder / "1-of-1.jsonl").write_text(now, encoding="utf-8")
    (folder / "1-of-4.jsonl").write_text(now.replace('"text":"', '"text":"Stale. '), encoding="utf-8")
    for left in (".part0.1-of-1.jsonl", ".part0.2-of-4.jsonl"):
        (folder / left).write_text('{"episode_id":', encoding="utf-8")
    (tmp_path / "results" / "config.json").write_text('{"shards": 1}', encoding="utf-8")
    assert triagesim("show", name, cwd=tmp_path).stdout == triagesim("show", name, tmp_path / "run.jsonl").stdout
    (tmp_path / "results" / "config.json").write_text('{"shards": 7}', encoding="utf-8")
    assert triagesim("show", name, cwd=tmp_path).returncode == 0


# The driver of the rule, killed.


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inputs of one shard: its pairing, cases and personas."""
    folder = tmp_path_factory.mktemp("inputs")
    config = {
        "data": {"source": "x", "provenance": "synthetic"},
        "models": {"agenda": {"backend": "agenda"}},
        "pairings": [{"nurse": "agenda", "patient": "agenda"}],
    }
    from triagesim.config import check_config
    from triagesim.pairing import as_json, resolve
    from triagesim.personas import generate

    checked = check_config(config)
    (folder / "agenda.json").write_text(json.dumps(as_json(resolve(checked, checked.expanded()[0]))), encoding="utf-8")
    lines = VIGNETTES.read_text(encoding="utf-8").splitlines(keepends=True)[:6]
    (folder / "cases.jsonl").write_text("".join(lines), encoding="utf-8")
    for role in ("nurse", "patient"):
        rows = list(generate(role, "uniform", 20))  # type: ignore[arg-type]
        (folder / f"{role}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def driver(inputs: Path, folder: Path, fatal_call: int = 0, moment: str = "before") -> subprocess.CompletedProcess[str]:
    counted = [str(ROOT / "tests" / "fatal.py"), "agenda", str(folder / "counts"), str(fatal_call), moment, "SIGKILL"]
    script = [str(ROOT / "workflow" / "scripts" / "simulate.py")]
    options: dict[str, Any] = {
        "--pairing": inputs / "agenda.json",
        "--cases": inputs / "cases.jsonl",
        "--nurse-personas": inputs / "nurse.jsonl",
        "--patient-personas": inputs / "patient.jsonl",
        "--journal": folder / "journal",
        "--out": folder / "1-of-1.jsonl",
    }
    arguments = [str(part) for option in options.items() for part in option]
    command = [sys.executable, *counted, *script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=120)


@pytest.fixture(scope="module")
def unkilled(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[str]]:
    """The shard of an uninterrupted driver, and the calls that its backend counted."""
    folder = tmp_path_factory.mktemp("unkilled")
    done = driver(inputs, folder)
    assert done.returncode == 0, done.stderr
    return (folder / "1-of-1.jsonl").read_bytes(), (folder / "counts").read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("kill", range(6))
def test_a_killed_driver_goes_on_with_the_same_bytes_and_asks_no_answered_call_again(
    kill: int, inputs: Path, unkilled: tuple[bytes, list[str]], tmp_path: Path
) -> None:
    whole, calls = unkilled
    moment = ("before", "after", "kept")[kill % 3]
    fatal_call = 1 + kill * (len(calls) - 1) // 6
    killed = driver(inputs, tmp_path, fatal_call, moment)
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "1-of-1.jsonl").exists()
    resumed = driver(inputs, tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert (tmp_path / "1-of-1.jsonl").read_bytes() == whole
    counts = (tmp_path / "counts").read_text(encoding="utf-8").splitlines()
    in_flight = 1 if moment == "after" else 0
    assert sorted(set(counts)) == sorted(calls)
    assert len(counts) <= len(calls) + in_flight


def test_more_failures_than_allowed_write_no_shard_and_list_the_episodes(inputs: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import runpy, sys\n"
        "from triagesim.backends.agenda import Agenda\n"
        "from triagesim.requests import Completion\n"
        "async def broken(self, request):\n"
        "    return Completion('no JSON at all')\n"
        "Agenda.complete = broken\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n",
        encoding="utf-8",
    )
    arguments = ["--pairing", inputs / "agenda.json", "--cases", inputs / "cases.jsonl"]
    arguments += ["--nurse-personas", inputs / "nurse.jsonl", "--patient-personas", inputs / "patient.jsonl"]
    arguments += ["--journal", tmp_path / "journal", "--out", tmp_path / "1-of-1.jsonl"]
    command = [sys.executable, broken, ROOT / "workflow" / "scripts" / "simulate.py", *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 1
    assert "6 of 6 episodes failed" in done.stderr
    assert "esi3-upper-belly-pain-0" in done.stderr
    assert not (tmp_path / "1-of-1.jsonl").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_with_its_code_and_keeps_every_answer(tmp_path: Path, number: signal.Signals) -> None:
    halting = tmp_path / "halting.py"
    halting.write_text(
        "import asyncio, sys\n"
        "from triagesim.backends.agenda import Agenda\n"
        "answer = Agenda.complete\n"
        "calls = 0\n"
        "async def halting(self, request):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    if calls == 15:\n"
        "        print('halted', flush=True)\n"
        "    if calls >= 15:\n"
        "        await asyncio.Event().wait()\n"
        "    return await answer(self, request)\n"
        "Agenda.complete = halting\n"
        "from triagesim.cli import main\n"
        "main()\n",
        encoding="utf-8",
    )
    out = tmp_path / "run.jsonl"
    arguments = ["--model", "agenda", "--cases", str(VIGNETTES), "--out", str(out), "--concurrency", "2"]
    with subprocess.Popen(
        [sys.executable, str(halting), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "halted\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=10)
    assert process.returncode == 128 + number
    assert "every answer so far is kept" in errors
    from triagesim.journal import read_records

    assert len([r for r in read_records(tmp_path / "run.jsonl.journal") if "key" in r]) == 14
    assert triagesim(*arguments).returncode == 0
    assert len(ids(out)) == len(VIGNETTES.read_text(encoding="utf-8").splitlines())


def test_a_driver_ends_when_the_snakemake_above_it_is_gone(inputs: Path, tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    waiting = tmp_path / "waiting.py"
    waiting.write_text(
        "import threading\nfrom triagesim.drive import stoppable\nwith stoppable():\n    threading.Event().wait()\n",
        encoding="utf-8",
    )
    environment = {**ENVIRONMENT, "TRIAGESIM_PARENT": str(gone.pid)}
    done = subprocess.run([sys.executable, str(waiting)], env=environment, capture_output=True, check=False, timeout=30)
    assert done.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize("content", ["precious single line", "precious\nlines\n", '{"a": 1}\n'])
def test_a_file_that_is_no_run_is_never_touched(tmp_path: Path, content: str) -> None:
    out = tmp_path / "keep.jsonl"
    out.write_text(content, encoding="utf-8")
    refused = simulate(out)
    assert refused.returncode == 2
    assert "no episode of this program" in refused.stderr
    assert out.read_text(encoding="utf-8") == content


def test_a_case_that_changed_is_not_taken_for_done(tmp_path: Path) -> None:
    cases, out = tmp_path / "cases.jsonl", tmp_path / "run.jsonl"
    cases.write_text(EXAMPLES.read_text(encoding="utf-8"), encoding="utf-8")
    assert triagesim("--model", "agenda", "--cases", cases, "--out", out).returncode == 0
    cases.write_text(cases.read_text(encoding="utf-8").replace('"acuity": 3', '"acuity": 2'), encoding="utf-8")
    refused = triagesim("--model", "agenda", "--cases", cases, "--out", out)
    assert refused.returncode == 2
    assert "was another one when" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--limit", "-1"], "whole number from 1"),
        (["--min-questions", "-5"], "whole number from 0"),
        (["--provenance", "foo"], "invalid choice"),
        (["--sampling", '{"nurse": 3}'], "nurse needs an object of options"),
    ],
)
def test_a_value_out_of_its_range_is_refused(tmp_path: Path, arguments: list[str], part: str) -> None:
    refused = simulate(tmp_path / "x.jsonl", *arguments)
    assert refused.returncode == 2
    assert part in refused.stderr


def test_an_output_that_can_not_be_written_is_one_error(tmp_path: Path) -> None:
    for out in (tmp_path, tmp_path / "file" / "x.jsonl"):
        (tmp_path / "file").write_text("", encoding="utf-8")
        refused = simulate(out)
        assert refused.returncode in (2, 3)
        assert refused.stderr.startswith("error: ")
        assert "Traceback" not in refused.stderr


def test_an_option_and_its_value_may_share_a_line_of_an_argument_file(tmp_path: Path) -> None:
    options = (
        f'--model agenda\n--cases {EXAMPLES}\n--out {tmp_path / "a.jsonl"}\n--sampling {{"nurse": {{"top_p": 1}}}}\n'
    )
    (tmp_path / "run.args").write_text(options, encoding="utf-8")
    assert triagesim(f"@{tmp_path / 'run.args'}").returncode == 0
