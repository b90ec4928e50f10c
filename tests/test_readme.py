"""The README's commands and code run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from triagesim.config import check_config

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ENVIRONMENT = {
    **os.environ,
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    "PYTHONPATH": str(ROOT / "workflow"),
}


def blocks(language: str) -> list[str]:
    """The code blocks of a language, without the indentation of a list."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", README, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


def test_ci_runs_the_two_commands_of_the_first_screen_word_for_word() -> None:
    first, second = blocks("bash")[:2]
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert f"step '{first.strip()}'" in ci
    assert f"step '{second.strip()}'" in ci
    assert README.index(second) < README.index("\n## ")


def test_the_command_by_hand_runs(tmp_path: Path) -> None:
    [command] = [block for block in blocks("bash") if block.startswith("triagesim ")]
    (tmp_path / "resources").symlink_to(ROOT / "resources")
    done = subprocess.run(command.split(), cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run.jsonl").exists()


def test_the_python_code_runs() -> None:
    [code] = blocks("python")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=ENVIRONMENT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"accuracy" in done.stdout


def test_the_sweep_gives_the_pairings_that_it_shows() -> None:
    [sweep] = blocks("yaml")
    config = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
    expanded = check_config({**config, **yaml.safe_load(sweep)}).expanded()
    assert [pairing.slug for pairing in expanded] == ["agenda", "agenda--smollm2", "smollm2--agenda"]


@pytest.mark.parametrize("command", ["snakemake results/pool.jsonl", "snakemake --cores 8 --profile pbs"])
def test_the_documented_commands_stand_word_for_word(command: str) -> None:
    assert f"`{command}`" in README


def test_every_link_leads_to_a_file() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert len(links) > 5
    assert [link for link in links if not (ROOT / link).exists()] == []
