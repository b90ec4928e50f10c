"""One case in an open file that says it isn't open."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from triagesim.config import check_config
from triagesim.errors import InputError
from triagesim.mimic import provenance_of
from triagesim.pairing import check_files

ROWS = [{"case_id": f"c{number}", "chief_complaint": "Fall", "acuity": 3} for number in range(200)]


def _source(folder: Path, name: str, provenance: str) -> Path:
    rows = [*ROWS, {**ROWS[0], "case_id": "last", "provenance": provenance}]
    path = folder / name
    if name.endswith(".jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif name.endswith(".json"):
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        lines = [f"{r['case_id']},Fall,3,{r.get('provenance', '')}\n" for r in rows]
        text = "case_id,chief_complaint,acuity,provenance\n" + "".join(lines)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["c.jsonl", "c.json", "c.csv", "c.csv.gz"])
def test_the_whole_source_counts_as_its_strictest_row(tmp_path: Path, name: str) -> None:
    assert provenance_of(_source(tmp_path, name, "deidentified"), "synthetic") == "deidentified"
    assert provenance_of(_source(tmp_path, name, "identifiable"), "deidentified") == "identifiable"
    assert provenance_of(_source(tmp_path, name, "mimic_iv_ed"), "deidentified") == "deidentified"
    assert provenance_of(_source(tmp_path, name, "synthetic"), "deidentified") == "deidentified"
    assert provenance_of(_source(tmp_path, name, ""), "synthetic") == "synthetic"


def test_a_hosted_model_is_refused_before_the_run_not_at_that_case(tmp_path: Path) -> None:
    models = {"far": {"backend": "openrouter", "model": "vendor/model"}}
    source = str(_source(tmp_path, "c.jsonl", "identifiable"))
    raw = {"models": models, "pairings": [{"nurse": "far", "patient": "far"}]}
    config = check_config({**raw, "data": {"source": source, "provenance": "synthetic"}}, "config.yaml")
    with pytest.raises(InputError, match=r"a row of it says so: it is taken for identifiable .* hosted model 'far'"):
        check_files(config)
