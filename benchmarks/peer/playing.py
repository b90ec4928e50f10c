"""Plays the episodes of a job with the peer's driver; runs in the peer's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import triagesim
from dialogue import TURNS


def play(job: dict[str, Any], backend: Any) -> Iterator[dict[str, Any]]:
    """Every episode of a job (`../measuring.make_job`) as it finishes, all roles with one backend."""
    episodes: Iterator[dict[str, Any]] = triagesim.simulate(
        [triagesim.Case.model_validate(row) for row in job["cases"]],
        nurse_llm=backend,
        patient_llm=backend,
        judge_llm=backend,
        nurse_personas=[triagesim.NursePersona.model_validate(row) for row in job["nurses"]],
        patient_personas=[triagesim.PatientPersona.model_validate(row) for row in job["patients"]],
        max_turns=TURNS,
        episodes_per_case=job["episodes_per_case"],
        concurrency=job["concurrency"],
    )
    return episodes
