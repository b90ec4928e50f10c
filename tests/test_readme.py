"""The README's commands and code run as they stand; what needs a GPU or a key is resolved up to its first call."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from triagesim.cases import load_cases
from triagesim.cli import make_plan, parser
from triagesim.config import check_config
from triagesim.drive import Plan, write_shards
from triagesim.jsonl import read_lines

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "resources" / "cases" / "examples.jsonl"
VIGNETTES = ROOT / "resources" / "cases" / "vignettes.jsonl"
ENVIRONMENT = {
    **os.environ,
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    "PYTHONPATH": str(ROOT / "workflow"),
}


def blocks(language: str) -> list[str]:
    """The code blocks of a language, without the indentation of a list."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", README, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


def commands(program: str) -> list[str]:
    """The shell commands that call a program: those in blocks, and those in the text with an argument behind them."""
    lines = "\n".join(blocks("bash")).replace("\\\n", " ").split("\n")
    lines += re.findall(r"^    (\w.*?)(?: +#.*)?$", README, re.MULTILINE)
    lines += re.findall(r"`([^`\n]+ [^`\n]+)`", README)
    return list(dict.fromkeys(line for line in lines if line.split(maxsplit=1)[:1] == [program]))


SNIPPETS = blocks("yaml")
BY_HAND = [command for command in commands("triagesim") if " --out " in command]
[BASELINE] = [command for command in BY_HAND if ":" not in command]
PLANNED = ["snakemake results/pool.jsonl", "snakemake --cores 8 --profile pbs"]
[SHOW] = [command for command in commands("triagesim") if command.startswith("triagesim show ")]


def run(command: str, folder: Path) -> str:
    """Run a command as it stands in the README, in a folder that has the resources; what it printed."""
    if not (folder / "resources").exists():
        (folder / "resources").symlink_to(ROOT / "resources")
    arguments = shlex.split(command)
    done = subprocess.run(arguments, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def plan_with(command: str, folder: Path) -> str:
    """Let a `snakemake` command only plan, with the folder as the run's."""
    return run(f"{command} -n --directory {folder} --snakefile {ROOT / 'Snakefile'}", folder)


def episodes_in(path: Path) -> list[dict[str, Any]]:
    return [episode for _, episode in read_lines(path)]


def test_ci_runs_the_two_commands_of_the_first_screen_word_for_word() -> None:
    first, second = blocks("bash")[:2]
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert f"step '{first.strip()}'" in ci
    assert f"step '{second.strip()}'" in ci
    assert README.index(second) < README.index("\n## ")


def test_every_command_is_one_that_a_test_runs() -> None:
    assert len(BY_HAND) == 3
    others = {SHOW, "triagesim status", "triagesim verify results", "triagesim @run.args", "triagesim --help"}
    assert set(commands("triagesim")) == {*BY_HAND, *others}
    assert set(commands("snakemake")) == {*PLANNED, "snakemake --configfile my-run.yaml", "snakemake --unlock"}


def test_a_command_that_needs_neither_gpu_nor_key_runs(tmp_path: Path) -> None:
    run(BASELINE, tmp_path)
    assert len(episodes_in(tmp_path / "run.jsonl")) == len(load_cases(EXAMPLES))


def test_the_same_options_may_stand_in_a_file(tmp_path: Path) -> None:
    options = BASELINE.removeprefix("triagesim ").replace(" --", "\n--")
    (tmp_path / "run.args").write_text(options + "\n", encoding="utf-8")
    run("triagesim @run.args", tmp_path)
    assert len(episodes_in(tmp_path / "run.jsonl")) == len(load_cases(EXAMPLES))


@pytest.mark.parametrize("command", BY_HAND)
def test_a_command_by_hand_is_resolved_to_its_models_cases_and_limits(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(ROOT)
    args = parser().parse_args(shlex.split(command)[1:])
    plan = make_plan(args)
    asked_for = {
        "nurse": args.nurse_model or args.model,
        "patient": args.patient_model or args.model,
        **({"judge": args.judge_model, "script": args.judge_model} if args.judge_model else {}),
    }
    assert {role: seat.backend.model for role, seat in plan.setup.seats.items()} == asked_for
    assert len(plan.jobs) == len(load_cases(EXAMPLES)) * args.episodes_per_case
    assert plan.limits.usd == args.budget_usd
    for seat in plan.setup.seats.values():
        seated: Any = seat.backend
        if seated.model.startswith("vllm:"):
            assert args.vllm_args.items() <= seated.arguments.items()


@pytest.mark.slow
@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_is_a_run_that_snakemake_plans(tmp_path: Path, snippet: str) -> None:
    value = yaml.safe_load(snippet)
    shipped = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
    models = {**shipped["models"], **value.get("models", {})}
    config = check_config({**shipped, **value, "models": models})
    if config.data.source != shipped["data"]["source"]:
        source = tmp_path / config.data.source
        source.parent.mkdir(parents=True)
        source.write_text("case_id,chief_complaint,acuity\na,Cough,4\n", encoding="utf-8")
    (tmp_path / "my-run.yaml").write_text(snippet, encoding="utf-8")
    planned = plan_with("snakemake --configfile my-run.yaml", tmp_path)
    for pairing in config.expanded():
        assert f"results/pairings/{pairing.slug}.json" in planned


@pytest.mark.slow
@pytest.mark.parametrize("command", [*PLANNED, f"{PLANNED[1]} --set-resources simulate:gpu_model=H200"])
def test_a_documented_snakemake_command_plans_the_run(tmp_path: Path, command: str) -> None:
    assert all(f"`{part}`" in README for part in re.split(r" (?=--set)", command))
    planned = plan_with(command.replace("--profile pbs", f"--profile {ROOT / 'pbs'}"), tmp_path)
    assert "results/pool.jsonl" in planned
    assert ("gpu_model=H200" in planned) == ("gpu_model=H200" in command)


def test_the_sweep_gives_the_pairings_that_it_shows() -> None:
    [sweep] = [snippet for snippet in SNIPPETS if "grid" in snippet]
    config = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
    expanded = check_config({**config, **yaml.safe_load(sweep)}).expanded()
    assert [pairing.slug for pairing in expanded] == ["agenda", "agenda--smollm2", "smollm2--agenda"]


def test_a_dialogue_is_shown_and_the_journal_is_summed_up(tmp_path: Path) -> None:
    case = next(case for case in load_cases(VIGNETTES) if f"{case.case_id}-0" in SHOW.split())
    options = ["--model", "agenda", "--cases", str(VIGNETTES), "--out", "x.jsonl"]
    setup = replace(make_plan(parser().parse_args(options)).setup, pairing="agenda")
    out = tmp_path / "results" / "episodes" / "agenda" / "1-of-1.jsonl"
    write_shards([Plan([(case, 0)], setup, out, tmp_path / "journal" / "agenda", "simulate agenda")])
    [episode] = episodes_in(out)
    shown = run(SHOW, tmp_path)
    assert all(line["text"] in shown for line in episode["transcript"])
    assert run("triagesim status", tmp_path).splitlines()[1].split()[:2] == ["agenda", "1"]


def test_the_python_code_runs(tmp_path: Path) -> None:
    [code] = blocks("python")
    (tmp_path / "code.py").write_text(code, encoding="utf-8")
    assert "accuracy" in run(f"{sys.executable} code.py", tmp_path)


def test_every_link_leads_to_a_file() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert len(links) > 5
    assert [link for link in links if not (ROOT / link).exists()] == []
