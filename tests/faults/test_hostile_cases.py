"""Cases whose text or structure was made to break something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from triagesim.build import build_cases
from triagesim.cases import Case, load_cases
from triagesim.config import Select, check_config
from triagesim.errors import InputError
from triagesim.pairing import check_files


def _write(path: Path, **fields: object) -> Path:
    row = {"case_id": "a", "chief_complaint": "Fall", "acuity": 3, **fields}
    path.write_text(json.dumps(row) + "\n" + json.dumps({**row, "case_id": "b", "own": [[1]]}) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("depth", [60, 900])
def test_a_field_nested_without_end_rejects_its_row_and_no_other(tmp_path: Path, depth: int) -> None:
    value: object = 1
    for _ in range(depth):
        value = [value]
    source = _write(tmp_path / "cases.jsonl", own=value)
    flow = build_cases(
        source, tmp_path / "out", shards=1, provenance="synthetic", scale=None, select=Select(), terms=None
    )
    assert (flow["accepted"], flow["rejected"]) == (1, 1)
    assert "own: nested more than 50 deep" in (tmp_path / "out/rejects.csv").read_text(encoding="utf-8")
    with pytest.raises(InputError, match=r"line 1: .*own: nested"):
        load_cases(source)


def test_a_field_nested_as_deep_as_people_nest_is_kept() -> None:
    value: object = {"x": [{"y": [1]}]}
    assert Case.model_validate({"case_id": "a", "own": value}).model_dump()["own"] == value


@pytest.mark.parametrize("name", ["x" * 5000, "é" * 200, "\x00", "~nobody-of-that-name/x.csv", "/dev/null", "a\nb"])
def test_a_path_that_can_be_none_is_told_by_its_key(name: str) -> None:
    raw = {
        "data": {"source": name, "provenance": "synthetic"},
        "models": {"a": {"backend": "agenda"}},
        "pairings": [{"nurse": "a", "patient": "a"}],
        "personas": {"nurse": {"file": name}},
    }
    with pytest.raises(InputError, match=r"data\.source|/dev/null"):
        check_files(check_config(raw))
    with pytest.raises(InputError):
        load_cases(name)
