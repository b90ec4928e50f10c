"""The package's modules: who imports whom, what they need installed, and what the scripts say of themselves."""

from __future__ import annotations

import ast
import graphlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "workflow" / "triagesim"
SCRIPTS = sorted((ROOT / "workflow" / "scripts").glob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# Runs a file or a module of the package where only certain packages can be imported, as after a plain `pip install`.
BASE_ONLY = """
import runpy, sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in others:
            raise ModuleNotFoundError(f"{name} isn't among the base dependencies", name=name)

folder, others, commands = __import__("json").loads(sys.stdin.read())
sys.path.insert(0, folder)
sys.meta_path.insert(0, Without())
for what, *arguments in commands:
    sys.argv = [what, *arguments]
    try:
        if what.endswith(".py"):
            runpy.run_path(what, run_name="__main__")
        else:
            runpy.run_module(what, run_name="__main__")
    except SystemExit as end:
        if end.code:
            sys.exit(f"{what}: exit code {end.code}")
"""


def modules() -> dict[str, Path]:
    """Every module of the package by its name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(statements: list[ast.stmt]) -> Iterator[str]:
    """The modules that are imported when a module is, and the names that are taken from them, with dots."""
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, "the package's modules name each other in full"
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from imported(statement.orelse)
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in ("body", "orelse", "finalbody"):
                yield from imported(getattr(statement, part, []))


def graph() -> dict[str, set[str]]:
    """The modules of the package that each imports at its own import."""
    known = modules()
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        names = imported(ast.parse(path.read_text(encoding="utf-8")).body)
        homes = {one if one in known else one.rpartition(".")[0] for one in names}
        found[name] = {home for home in homes if home in known} - {name}
    return found


def other_packages() -> list[str]:
    """The names under which installed packages are imported that aren't base dependencies, nor what these need."""
    waiting = [re.match(r"[\w.-]+", line)[0] for line in PROJECT["project"]["dependencies"]]  # type: ignore[index]
    found: set[str] = set()
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name not in found:
            found.add(name)
            with suppress(PackageNotFoundError):  # what another Python or system would need
                lines = [line for line in requires(name) or () if "extra ==" not in line]
                waiting += [re.match(r"[\w.-]+", line)[0] for line in lines]  # type: ignore[index]
    named = packages_distributions()
    base = {one for one, owners in named.items() if {o.lower().replace("_", "-") for o in owners} & found}
    return sorted(named.keys() - base - {"triagesim"})


def with_base_only(folder: Path, *commands: list[str], cwd: Path) -> str:
    """What commands print that find the package in `folder`, and beside it the base dependencies alone."""
    sent = json.dumps([str(folder), other_packages(), commands])
    command = [sys.executable, "-E", "-s", "-c", BASE_ONLY]
    done = subprocess.run(command, input=sent, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_modules_import_each_other_without_a_circle() -> None:
    assert len(list(graphlib.TopologicalSorter(graph()).static_order())) == len(modules())


def test_the_package_never_imports_snakemake_nor_the_scripts() -> None:
    names = {
        one.partition(".")[0]
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for one in imported([node] if isinstance(node, ast.Import | ast.ImportFrom) else [])
    }
    assert not names & {"snakemake", *(path.stem for path in SCRIPTS)}


def drawn() -> tuple[dict[str, str], set[tuple[str, str]]]:
    """The box of each module in docs/architecture.md, and the arrows between the boxes."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    chart = page.partition("```mermaid\n")[2].partition("```")[0]
    boxes = re.findall(r'^ +(\w+)\["[^"]*<br>([^"]+)"\]$', chart, re.MULTILINE)
    arrows = set(re.findall(r"^ +(\w+) --> (\w+)$", chart, re.MULTILINE))
    return {f"triagesim.{module}": box for box, words in boxes for module in words.split()}, arrows


def test_the_drawing_of_the_package_is_true() -> None:
    boxes, arrows = drawn()
    assert [name for name in boxes if name not in modules()] == []

    def box_of(name: str) -> str:
        while name not in boxes:
            name = name.rpartition(".")[0]
            assert name, "a module has no box"
        return boxes[name]

    pairs = {
        (box_of(one), box_of(other))
        for one, others in graph().items()
        for other in others
        if "triagesim" not in (one, other) and box_of(one) != box_of(other)
    }
    below = {box: {other for one, other in arrows if one == box} for box in boxes.values()}
    for box in graphlib.TopologicalSorter(below).static_order():
        below[box] |= {far for near in below[box] for far in below[near]}
    assert sorted((one, other) for one, other in pairs if other not in below[one]) == []
    assert sorted(arrows - pairs) == []


def test_a_source_distribution_holds_all_of_the_checkout() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no checkout, so nothing says what belongs to it")
    tops = {line.partition("/")[0] for line in listed.stdout.splitlines()}
    # The first comes by itself, the second is a link to what comes.
    assert tops - {".gitignore", "pbs", "pyproject.toml"} == set(
        PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    )


def test_what_snakemake_s_own_report_needs_comes_with_the_workflow() -> None:
    assert "pygments>=2" in PROJECT["project"]["optional-dependencies"]["workflow"]


def test_each_script_says_what_it_does_and_for_that_needs_the_base_dependencies_alone(tmp_path: Path) -> None:
    printed = with_base_only(PACKAGE.parent, *([str(path), "--help"] for path in SCRIPTS), cwd=tmp_path)
    words = " ".join(printed.split())
    for path in SCRIPTS:
        about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert " ".join(about.split()) in words


@pytest.mark.slow
def test_the_command_works_from_a_wheel_with_the_base_dependencies_alone(tmp_path: Path) -> None:
    """Laid out as hatchling lays out the wheel, far from the checkout."""
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    site = tmp_path / "site"
    for folder in wheel["packages"]:
        shutil.copytree(ROOT / folder, site / Path(folder).name, ignore=shutil.ignore_patterns("__pycache__"))
    for source, place in wheel["force-include"].items():
        shutil.copytree(ROOT / source, site / place)
    run = ["--model", "agenda", "--judge-model", "agenda", "--appearance", "--out", "run.jsonl"]
    cases = str(ROOT / "resources/cases/examples.jsonl")
    (tmp_path / "where.py").write_text(
        "from triagesim.resources import RESOURCES\nprint(RESOURCES)\n", encoding="utf-8"
    )
    printed = with_base_only(
        site,
        [str(tmp_path / "where.py")],
        ["triagesim.cli", *run, "--cases", cases],
        ["triagesim.cli", "status", "run.jsonl.journal"],
        ["triagesim.cli", "show", "splinter-01-0", "run.jsonl"],
        cwd=tmp_path,
    )
    assert '"graded": 3' in printed
    assert "ground truth" in printed
    assert str(site / "triagesim" / "resources") in printed
