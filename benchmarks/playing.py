"""Plays the episodes of a job with our driver."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))

from dialogue import TURNS
from triagesim.cases import Case
from triagesim.personas import PERSONAS
from triagesim.requests import Backend
from triagesim.simulation import simulate


def play(job: dict[str, Any], backend: Backend, journal: str | None = None) -> Iterator[dict[str, Any]]:
    """Every episode of a job (`measuring.make_job`) as it finishes, all roles with one backend."""
    return simulate(
        [Case.model_validate(row) for row in job["cases"]],
        nurse_llm=backend,
        patient_llm=backend,
        judge_llm=backend,
        nurse_personas=[PERSONAS["nurse"].model_validate(row) for row in job["nurses"]],
        patient_personas=[PERSONAS["patient"].model_validate(row) for row in job["patients"]],
        max_turns=TURNS,
        episodes_per_case=job["episodes_per_case"],
        concurrency=job["concurrency"],
        speculation=job["speculation"],
        skip=job.get("skip", ()),
        journal=journal,
    )
