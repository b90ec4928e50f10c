"""Speaks the dialogues of a job once: the engine alone in a plain loop over the lines, or as a run renders them.

    python speaking.py < job.json

A job: `engine`; `pool`, a file of episodes; `store`, an empty folder; `workers`, 0 for the plain loop; `dialogues`.
Prints wall and CPU seconds, of which `ready` until the engine was loaded, and the seconds of speech.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))

from triagesim.speech.casting import Casting
from triagesim.speech.dialogue import script
from triagesim.speech.engine import choose_engine, load_engine
from triagesim.speech.render import choose, read_pool, render_pool, whole_episodes
from triagesim.speech.spoken import rules_digest
from triagesim.speech.store import find


def loop(job: dict[str, Any]) -> tuple[float, float]:
    """Every different line, one after another, samples thrown away; seconds until loaded, and of speech."""
    begun = time.monotonic()
    engine = load_engine(job["engine"])
    pool = read_pool(Path(job["pool"]))
    casting = Casting(engine.voices, pool)
    kept = partial(
        find,
        store=Path(job["store"]),
        engine=engine.name,
        version=engine.version,
        rules=rules_digest(),
        seed=0,
    )
    ready = time.monotonic() - begun
    said = {}
    for episode in whole_episodes(Path(job["pool"]), choose(pool, None, job["dialogues"])):
        voices = casting(episode)
        said.update({(one := kept(line.spoken, voices[line.speaker])).path: one for line in script(episode)})
    seconds = 0.0
    for one in said.values():
        samples, rate = engine.synthesize(one.spoken, one.voice, one.seed)
        seconds += len(samples) / rate
    return ready, seconds


def render(job: dict[str, Any]) -> tuple[float, float]:
    """The same lines through the workers into files; seconds until loaded, and of speech."""
    said: list[tuple[float, str]] = []
    begun = time.monotonic()
    folder = Path(job["store"])
    load = partial(choose_engine, job["engine"], [], None)
    render_pool(
        Path(job["pool"]),
        folder / "out" / "manifest.jsonl",
        folder / "lines",
        load,
        max_dialogues=job["dialogues"],
        workers=job["workers"],
        log=lambda line: said.append((time.monotonic() - begun, line)),
    )
    spoken = next(line for _, line in reversed(said) if line.startswith("line "))
    return said[0][0], float(spoken.partition(": ")[2].split()[0])


def main() -> None:
    """Do the job on stdin."""
    job = json.load(sys.stdin)
    begun = time.monotonic()
    ready, speech = (render if job["workers"] else loop)(job)
    wall = time.monotonic() - begun
    used = os.times()
    cpu = used.user + used.system + used.children_user + used.children_system
    print(json.dumps({"wall": wall, "ready": ready, "cpu": cpu, "speech": speech}))


if __name__ == "__main__":
    main()
