"""Names from data or the configuration that would be a path, an option or another name's double."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from triagesim.build import build_cases
from triagesim.cases import load_cases
from triagesim.config import check_config
from triagesim.errors import InputError
from triagesim.jsonl import read_table
from triagesim.pairing import check_files
from triagesim.resources import RESOURCES

BAD = [
    "../x", "..", ".", "/etc/passwd", "a/b", "a\\b", "-x", "--help", ".hidden", "_x", "a b", "a\n", "\na", "a\x00b",
    "é", "e\u0301", "ａ", "x" * 65, "a:b", "a*", "$(id)", "a;b", "a+b", "%2e%2e", "\u202ea", "", "٣", "a\u200b",
]  # fmt: skip
GOOD = ["x__y", "CON", "a.b", "0", "a-1-of-2", "A_", "x" * 64]
GROUND: dict[str, Any] = {"chief_complaint": "Fall", "acuity": 3}


def _cases(folder: Path, names: list[str]) -> Path:
    path = folder / "cases.jsonl"
    rows = [{"case_id": name, "pain": number % 10, **GROUND} for number, name in enumerate(names)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_case_s_id_is_a_plain_name_or_its_row_is_rejected(tmp_path: Path) -> None:
    flow = build_cases(_cases(tmp_path, BAD + GOOD), tmp_path / "out", shards=3, provenance="synthetic")
    # Blanks around an id are no part of it: a line break at its end or beginning goes.
    stripped = [name for name in BAD if name.strip() == "a" and name != "a"]
    assert flow["reject_reasons"] == {"invalid_id": len(BAD) - len(stripped), "conflicting_id": len(stripped)}
    assert flow["accepted"] == len(GOOD)
    assert {path.parent for path in (tmp_path / "out").rglob("*")} == {tmp_path / "out"}


def test_ids_that_differ_in_case_alone_are_one_id(tmp_path: Path) -> None:
    flow = build_cases(
        _cases(tmp_path, ["Fall-1", "fall-1", "other"]), tmp_path / "out", shards=1, provenance="synthetic"
    )
    assert (flow["accepted"], flow["reject_reasons"]) == (1, {"conflicting_id": 2})
    assert [row["line"] for row in read_table(tmp_path / "out/rejects.csv")] == ["1", "2"]
    with pytest.raises(InputError, match="line 2: case_id 'fall-1' is already at line 1"):
        load_cases(_cases(tmp_path, ["Fall-1", "fall-1"]))


def _config(pairing: str = "p", model: str = "m", split: str = "train") -> dict[str, Any]:
    return {
        "data": {"source": "cases.jsonl", "provenance": "synthetic"},
        "models": {model: {"backend": "agenda"}},
        "pairings": [{"name": pairing, "nurse": model, "patient": model}],
        "dataset": {"splits": {split: 1.0}},
    }


@pytest.mark.parametrize("name", BAD)
def test_a_name_in_the_configuration_is_a_plain_one(name: str) -> None:
    with pytest.raises(InputError, match=r"models"):
        check_config(_config(model=name))
    with pytest.raises(InputError, match=r"dataset\.splits"):
        check_config(_config(split=name))
    if name:  # none given: it is made of the models' names
        with pytest.raises(InputError, match=r"pairings\[0\]\.name"):
            check_config(_config(pairing=name))


@pytest.mark.parametrize("name", GOOD)
def test_any_plain_name_is_taken(name: str) -> None:
    assert check_config(_config(pairing=name, model=name)).expanded()[0].slug == name


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"data": {"source": "c{a}.jsonl", "provenance": "synthetic"}}, "data.source"),
        ({"personas": {"nurse": {"file": "{a,b}/nurse.yaml"}}}, "personas.nurse.file"),
        ({"measures": {"reviews": "r}.csv"}}, "measures.reviews"),
        ({"review": {"returned": "back {1}"}}, "review.returned"),
        ({"journal": {"dir": "{"}}, "journal.dir"),
    ],
)
def test_a_path_with_what_snakemake_takes_for_a_wildcard_is_told_by_its_key(change: dict[str, Any], key: str) -> None:
    config = check_config({**_config(), **change})
    with pytest.raises(InputError, match=f"{re.escape(key)}: .*braces"):
        check_files(config)


def test_a_returned_file_is_one_word_of_the_command_whatever_its_name(tmp_path: Path) -> None:
    names = ["$HOME 's \".csv", "*.csv", "Dr Ä; true.csv"]
    returned = tmp_path / "back here"
    returned.mkdir()
    for name in [*names, "._hidden.csv"]:
        (returned / name).touch()
    source = str(RESOURCES / "cases/vignettes.jsonl")
    config = {**_config(), "data": {"source": source, "provenance": "synthetic"}, "review": {"returned": str(returned)}}
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", "snakemake", "review", "-n", "-p", "--directory", str(tmp_path)]
    done = subprocess.run(command, cwd=RESOURCES.parent, capture_output=True, text=True, check=True, timeout=600)
    [words] = re.findall(r"^ *Shell command: +(python \S+/review\.py .*) 2>&1", done.stdout + done.stderr, re.MULTILINE)
    given = shlex.split(words)
    assert given[2 : given.index("--folder")] == sorted(str(returned / name) for name in names)
