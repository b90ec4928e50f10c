"""Dialogues written by hand, and many of the baseline, for the tests of what is computed from stored episodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from triagesim import NursePersona, PatientPersona, load_backend, load_cases, simulate
from triagesim.personas import generate
from triagesim.resources import RESOURCES

#: A nurse's line, a patient's, a vital sign taken (name and value), in their order.
Said = Sequence[tuple[str, Any]]

CASE = {
    "case_id": "belly-1",
    "chief_complaint": "Belly pain",
    "acuity": 3,
    "acuity_scale": "esi",
    "pain": 4,
    "gender": "female",
    "diagnoses": ["Acute appendicitis, unspecified", "Essential (primary) hypertension"],
}
NURSE = {"gender": "male", "questioning_style": "mixed", "workload": "busy"}
PATIENT = {"gender": "female", "age_group": "adult", "verbosity": "terse"}


def episode(said: Said = (), **changes: Any) -> dict[str, Any]:
    """An episode as it is stored, with what the tables read; a turn ends with the patient's reply."""
    history, turn = [], 0
    for who, what in said:
        if who in ("nurse", "patient"):
            history.append({"turn": turn, "actor": who, "utterance": what})
            turn += who == "patient"
        else:
            history.append({"turn": turn, "actor": "system", "event": "vital", "name": who, "value": what})
    lines = [{"speaker": who, "text": what} for who, what in said if who in ("nurse", "patient")]
    stored = {
        "episode_id": "belly-1-0",
        "pairing": "made",
        "status": "ok",
        "case": CASE,
        "algorithm": "esi",
        "models": {"nurse": "a", "patient": "b"},
        "features": {"feedback": False},
        "nurse_persona": NURSE,
        "patient_persona": PATIENT,
        "patient_script": None,
        "end_reason": "nurse_end",
        "final_triage": 3,
        "num_turns": turn,
        "transcript": lines,
        "history": history,
        "trace": [],
        "red_flags": [],
    }
    return {**stored, **changes}


def many(cases: int, of_each: int, **changes: Any) -> list[dict[str, Any]]:
    """Right episodes of so many cases, levels 1 to 5 in turn."""
    return [
        episode(
            [("nurse", "What brings you in?"), ("patient", f"Pain number {case} and {number}.")],
            episode_id=f"c{case}-{number}",
            case={**CASE, "case_id": f"c{case}", "acuity": case % 5 + 1},
            final_triage=case % 5 + 1,
            **changes,
        )
        for case in range(cases)
        for number in range(of_each)
    ]


def stored(path: Path, episodes: Sequence[dict[str, Any]]) -> Path:
    """A file of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in episodes), encoding="utf-8")
    return path


@cache
def baseline(of_each: int) -> tuple[dict[str, Any], ...]:
    """Every vignette so many times with the baseline in both roles, and personas from the whole registry."""
    model = load_backend("agenda")
    pools = {
        role: [kind(**levels) for levels in generate(role, "uniform", 500, seed=5)]
        for role, kind in (("nurse", NursePersona), ("patient", PatientPersona))
    }
    episodes = simulate(
        load_cases(RESOURCES / "cases/vignettes.jsonl"),
        nurse_llm=model,
        patient_llm=model,
        nurse_personas=pools["nurse"],
        patient_personas=pools["patient"],
        episodes_per_case=of_each,
        seed=5,
    )
    return tuple(sorted(({**one, "pairing": "agenda"} for one in episodes), key=lambda one: one["episode_id"]))
