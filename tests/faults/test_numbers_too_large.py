"""Numbers that JSON can write and a table's column can't hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from triagesim.build import build_cases
from triagesim.config import Select
from triagesim.dataset.columns import columns
from triagesim.dataset.files import TableFiles


@pytest.mark.parametrize("field", ["prior_ed_visits", "age", "acuity", "pain", "dbp", "temperature", "sbp"])
@pytest.mark.parametrize("number", ["9" * 30, "9" * 400, "1e400", "-1e400", "NaN", "-" + "9" * 30])
def test_a_number_without_measure_rejects_its_row_or_is_taken_out(tmp_path: Path, field: str, number: str) -> None:
    source = tmp_path / "cases.jsonl"
    row = '{"case_id": "a", "chief_complaint": "Fall", %s"%s": %s}\n'
    source.write_text(
        row % ("" if field == "acuity" else '"acuity": 3, ', field, number)
        + '{"case_id": "b", "chief_complaint": "Fall", "acuity": 3}\n',
        encoding="utf-8",
    )
    out = tmp_path / "out"
    flow = build_cases(source, out, shards=1, provenance="synthetic", scale=None, select=Select(), terms=None)
    assert (flow["read"], flow["accepted"] + flow["rejected"]) == (2, 2)
    for line in (out / "1-of-1.jsonl").read_text(encoding="utf-8").splitlines():
        case: dict[str, Any] = json.loads(line)
        kept = case.get("vitals", {}).get(field, case.get(field))
        assert kept in (None, "above 10") or not isinstance(kept, int | float) or abs(kept) < 2**63


def test_what_went_wrong_with_a_dataset_is_told_not_what_its_last_rows_say(tmp_path: Path) -> None:
    row = {column.name: None for column in columns("vitals")} | {"after_line": 2**70}

    def fail() -> None:
        with TableFiles(tmp_path, "vitals", "train") as files:
            files.write(row)
            raise RuntimeError("first")

    with pytest.raises(RuntimeError, match="first"):
        fail()
