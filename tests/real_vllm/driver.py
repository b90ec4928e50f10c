"""A run on vLLM in a process of its own.

    python driver.py MODEL EPISODES

Prints the numbers of the engine's processes as one JSON list once it can answer, then simulates.
"""

from __future__ import annotations

import asyncio
import json
import sys

from actors import a_case, personas
from triagesim import VLLM, simulate
from triagesim.drive import stoppable
from triagesim.engine import loop, ready


def main(model: str, episodes: int) -> None:
    """Start, report, simulate, and leave the end to the interpreter."""
    backend = VLLM(model, max_model_len=8192, max_num_seqs=2, gpu_memory_utilization=0.2, enforce_eager=True)
    with stoppable():
        asyncio.run_coroutine_threadsafe(ready(backend), loop()).result()
        assert backend.engine is not None
        print(json.dumps(backend.engine.processes()), flush=True)
        people = {"nurse_personas": personas("nurse"), "patient_personas": personas("patient")}
        cases = [a_case(f"case-{number}") for number in range(episodes)]
        for episode in simulate(cases, nurse_llm=backend, patient_llm=backend, **people):
            print(episode["status"], flush=True)


# Without the guard that processes started by "spawn" usually need.
main(sys.argv[1], int(sys.argv[2]))
