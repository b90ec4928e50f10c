"""A folder of results in which an earlier configuration left its files."""

from __future__ import annotations

from pathlib import Path

from triagesim.config import check_config
from triagesim.provenance import recorded

MINE = [
    "audio/dialogues/a/x-1-of-9-0.flac",
    "audio/manifest-1-of-1.jsonl",
    "cases/2-of-2.jsonl",
    "completion/a/1-of-2.jsonl",
    "completion/judge.json",
    "episodes/a/1-of-2.jsonl",
    "episodes/b-1-of-7/1-of-2.jsonl",
    "metrics/summary.csv",
    "pairings/a.json",
    "pairings/b-1-of-7.json",
    "pool.jsonl",
    "scores/a/2-of-2.csv",
]
LEFT = [
    "audio/manifest-1-of-2.jsonl",
    "audio/asr-2-of-2.jsonl",
    "cases/3-of-3.jsonl",
    "completion/gone/1-of-2.jsonl",
    "episodes/a/1-of-3.jsonl",
    "episodes/gone/1-of-2.jsonl",
    "pairings/gone.json",
    "scores/a/.2-of-2.csv.k3j4",
    "config.json",
]


def test_the_record_of_a_run_names_no_file_of_an_earlier_one(tmp_path: Path) -> None:
    raw = {
        "data": {"source": "c.jsonl", "provenance": "synthetic"},
        "models": {"m": {"backend": "agenda"}},
        "pairings": [{"name": name, "nurse": "m", "patient": "m"} for name in ("a", "b-1-of-7")],
        "shards": 2,
    }
    for name in (*MINE, *LEFT):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x", encoding="utf-8")
    found = recorded(tmp_path, check_config(raw, "config.yaml"))
    assert [path.relative_to(tmp_path).as_posix() for path in found] == sorted(MINE)
