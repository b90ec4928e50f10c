"""Pooled episodes that are really spoken, for tests of what comes after the voices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from triagesim.jsonl import write_jsonl

SCRIPTS = Path(__file__).resolve().parents[1] / "workflow" / "scripts"
TALK = [
    ("nurse", "Hello, I'm the triage nurse. What brought you in today?"),
    ("patient", "I've had chest pain since about 10:30 this morning, maybe 7/10."),
    ("nurse", 'Is it on the left side? Say "yes" or "no" & point <here>.'),
    ("patient", "..."),
    ("nurse", "It's 148/92. Are you taking any medication?"),
    ("patient", "Only 325 mg of aspirin. No allergies, no fever."),
]


def episode(number: int = 0, talk: list[tuple[str, str]] = TALK, **changes: Any) -> dict[str, Any]:
    """A pooled episode of a case of its own."""
    return {
        "pairing": "agenda",
        "episode_id": f"case-{number}-0",
        "status": "ok",
        "algorithm": "esi",
        "case": {"case_id": f"case-{number}", "gender": "male", "acuity": 2, "provenance": "synthetic"},
        "models": {"nurse": "agenda", "patient": "agenda"},
        "labels": {"nurse": "baseline", "patient": "baseline"},
        "nurse_persona": {"gender": "female", "workload": "quiet"},
        "patient_persona": {"age_group": "adult", "distress": "calm"},
        "final_triage": 2,
        "transcript": [{"speaker": speaker, "text": text} for speaker, text in talk],
        "history": [],
    } | changes


def speak(folder: Path, episodes: list[dict[str, Any]], *options: str) -> Path:
    """Render a pool; the manifest, with `pool.jsonl` beside its folder."""
    write_jsonl(folder / "pool.jsonl", episodes)
    manifest = folder / "audio" / "manifest-1-of-1.jsonl"
    arguments = ["--pool", folder / "pool.jsonl", "--out", manifest, "--store", folder / "store", *options]
    run("render_audio.py", *arguments)
    return manifest


def run(script: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    """Run a script of the workflow, which must succeed."""
    command = [sys.executable, SCRIPTS / script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done
