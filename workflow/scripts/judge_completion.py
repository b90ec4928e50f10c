"""Judges whether each finished episode of a shard did its task (rule judge_completion).

How the work is done (concurrency, slots, budget, time limit) comes from the environment variable TRIAGESIM_RUNTIME, as
JSON.
"""

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.completion import Judge, Judging, judge_shard
from triagesim.config import HostedAttestation
from triagesim.console import command
from triagesim.drive import stoppable
from triagesim.environment import RUNTIME, time_limit
from triagesim.limits import Limits
from triagesim.stored import read_model


def main() -> None:
    """Parse the arguments and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("episodes", type=Path, help="a shard of episodes")
    parser.add_argument("--judge", type=Path, required=True, help="results/completion/judge.json")
    parser.add_argument("--journal", type=Path, required=True, help="the folder of this pairing's verdicts")
    parser.add_argument("--max-error-rate", type=float, default=0.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--usage", type=Path, required=True, help="where to write what the verdicts took, as JSON")
    args = parser.parse_args()
    runtime = json.loads(os.environ.get(RUNTIME, "{}"))

    judge = read_model(args.judge, Judge)
    task = Judging(
        judge,
        args.episodes,
        args.out,
        args.usage,
        args.journal,
        runtime.get("models", {}).get(judge.name, {}),
        tuple(HostedAttestation.model_validate(one) for one in runtime.get("attestations", ())),
        runtime.get("concurrency", 64),
        args.max_error_rate,
        Limits(Path(runtime.get("journals") or args.journal.parent), **runtime.get("budget", {})),
    )
    with stoppable(time_limit(runtime.get("time_limit"))):
        judge_shard(task)


if __name__ == "__main__":
    command(main)
