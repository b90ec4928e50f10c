"""A model server that is slow, hangs, breaks off, sends a page, 200 MB or another request's answer: whole runs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from actors import a_case, seats
from fault_server import FaultServer
from triagesim import simulate
from triagesim.backends.hosted import OpenAICompatible
from triagesim.journal import read_records


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triagesim.calls.PAUSE", 0)


def play(server: FaultServer, journal: Path, **options: Any) -> list[str]:
    """Episodes of a judged run, in their order."""
    backend = OpenAICompatible("m", base_url=server.url, max_workers=4, **options)
    made = simulate(
        [a_case(f"case-{number}", provenance="synthetic") for number in range(3)],
        **seats(backend, backend),
        max_turns=2,
        min_questions=1,
        journal=journal,
        speculation="off",
    )
    return sorted(json.dumps(episode) for episode in made)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The run against a server without faults."""
    with FaultServer() as server:
        return play(server, tmp_path_factory.mktemp("calm"))


@pytest.mark.parametrize(
    "fault", ["hang@2", "cut_length@1,5", "cut_chunks@4", "reset@3", "page@1,2", "huge@2", "endless@3", "half_json@4"]
)
def test_a_fault_that_passes_changes_no_byte_and_no_answered_call_is_asked_again(
    fault: str, calm: list[str], tmp_path: Path
) -> None:
    with FaultServer(fault) as server:
        assert play(server, tmp_path, timeout=3 if "hang" in fault else 60) == calm
        faulty = sum(call.fault is not None for call in server.asked)
        assert faulty == len(fault.partition("@")[2].split(","))
        assert len(server.asked) == len(server.counts) + faulty
        kept = Counter(record["key"] for record in read_records(tmp_path) if "key" in record)
        assert set(kept.values()) == {1}
        asked = len(server.asked)
        assert play(server, tmp_path) == calm
        assert len(server.asked) == asked


def test_a_slow_server_changes_no_byte(calm: list[str], tmp_path: Path) -> None:
    with FaultServer(latency=0.05) as server:
        assert play(server, tmp_path) == calm
        assert set(server.counts.values()) == {1}


def test_an_answer_to_another_request_is_refused_and_asked_for_again_or_fits_and_is_kept(tmp_path: Path) -> None:
    with FaultServer("another@4,9,12") as server:
        first = play(server, tmp_path)
        assert {json.loads(episode)["status"] for episode in first} <= {"ok", "skipped"}
        wrong = [record for record in read_records(tmp_path) if record.get("failed") == "invalid"]
        assert wrong
        asked = len(server.asked)
        assert play(server, tmp_path) == first
        assert len(server.asked) == asked
