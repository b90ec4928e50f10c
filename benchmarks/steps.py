"""Engine steps that the same calls take through our driver and the peer's, and how near ours is to the least."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dialogue import TURNS, Call, answer, length, trace
from engines import MAX_SEQS, Counts, Engine, ModelEngine, VllmEngine
from instant import EDITS, as_call
from measuring import HERE, arguments, check_peer, conditions, environment, make_job, spread, table
from playing import play
from tokens import smollm2
from triagesim.console import command
from triagesim.engine import loop
from triagesim.errors import InputError
from triagesim.requests import Completion, Request, Usage

SPECULATIONS = ("off", "reading", "full")
#: Episodes of the comparison with the peer: one wave of so many.
EPISODES = 24
COLUMNS = (
    "driver",
    "speculation",
    "calls",
    "engine steps",
    "peer's steps over ours",
    "mean occupancy",
    "generated tokens",
    "against the peer",
    "on the same calls",
    "of dropped calls",
    "prompt tokens computed",
    "wall s",
)
BOUND_COLUMNS = (
    "episodes at once",
    "speculation",
    "engine steps",
    "all requests as one flood",
    "longest episode alone",
    "steps over the larger",
    "mean occupancy",
)


class Played(NamedTuple):
    """A run on an engine.

    Attributes:
        asked: calls that began, whether their answers counted or not; with the prompt's tokens and the answer's length.
        used: tokens of the answers that counted.
        finished: episodes in the order in which they ended.
    """

    counts: Counts
    asked: list[tuple[list[int], int]]
    used: int
    finished: list[str]
    wall: float


class OnEngine:
    """Our backend on an engine: the time is the engine's, the answers are the dialogues'."""

    model = "engine"
    local = True
    reads: Literal["messages"] = "messages"
    label: str | None = None

    def __init__(self, engine: Engine) -> None:
        self.identity: dict[str, Any] = {"model": self.model}
        self._engine = engine
        self._lengths = trace()
        self._in_flight = 0
        self.asked: list[tuple[list[int], int]] = []

    @property
    def spare(self) -> bool:
        """Whether one more request would run at once."""
        return self._in_flight < MAX_SEQS

    async def start(self) -> None:
        """The engine is there already."""

    async def close(self) -> None:
        """The engine is others' too."""

    async def complete(self, request: Request) -> Completion:
        """Wait for the engine, answer from the dialogues."""
        call = as_call(request.name)
        prompt, tokens = smollm2().chat(request.messages), length(call, self._lengths)
        self.asked.append((prompt, tokens))
        self._in_flight += 1
        try:
            await self._engine.generate(prompt, tokens)
        finally:
            self._in_flight -= 1
        text = answer(call, tokens, "ours", EDITS.get(request.name.purpose, "nurse"))
        return Completion(text, usage=Usage(len(prompt), tokens), model=self.model)


def main() -> None:
    """Start an engine, measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--model", action="store_true", help="a model of an engine's scheduler instead of a real vLLM")
    parser.add_argument("--runs", type=int, default=3, help="of each driver, interleaved; default: %(default)s")
    options = parser.parse_args()
    if options.runs < 1:
        raise InputError(f"--runs is {options.runs}; expected 1 or more")
    if options.peer:
        check_peer(options.peer)
    engine: Engine = ModelEngine() if options.model else VllmEngine()
    _wait(engine.start())
    try:
        runs = 1 if options.quick or options.model else options.runs
        _compare(engine, options, runs)
        print(f"\n{runs} runs of each, interleaved: median (lowest to highest). {engine.said}. {conditions()}\n")
        _bound(engine, (4,) if options.quick else (64, 256))
        print(f"\nOne run of each. {engine.said}. {conditions()}")
    finally:
        _wait(engine.close())


def _compare(engine: Engine, options: argparse.Namespace, runs: int) -> None:
    """The table against the peer."""
    count = 4 if options.quick else EPISODES
    drivers = [*([("peer", "–")] if options.peer else []), *(("ours", name) for name in SPECULATIONS)]
    found: dict[tuple[str, str], list[Played]] = {driver: [] for driver in drivers}
    for _ in range(runs):
        for driver in drivers:
            job = make_job(count, 1, count, driver[1])
            played = _peer(engine, job, options.peer) if driver[0] == "peer" else _ours(engine, job)
            found[driver].append(played)
    peer = found.get(("peer", "–"))
    lengths = trace()
    closing = [length(Call(name, "nurse_check", TURNS), lengths) for name in found["ours", "off"][0].finished]
    table(COLUMNS, (_row(driver, played, peer, sum(closing)) for driver, played in found.items()))
    print(
        f"\nOurs has one call more in each episode, the check of the closing line: {len(closing)} calls, "
        f"{sum(closing):,} of the generated tokens. Without them: the column 'on the same calls'."
    )


def _row(driver: tuple[str, str], runs: list[Played], peer: list[Played] | None, closing: int) -> list[str]:
    """A driver's cells; `closing`: tokens of the calls that only ours makes."""
    counts = [run.counts for run in runs]
    ratios = [theirs.counts.steps / ours.counts.steps for theirs, ours in zip(peer or [], runs, strict=False)]
    both = [(ours.counts.generated, theirs.counts.generated) for theirs, ours in zip(peer or [], runs, strict=False)]
    compared = bool(peer) and driver[0] == "ours"
    return [
        *driver,
        spread([len(run.asked) for run in runs]),
        spread([each.steps for each in counts]),
        spread(ratios, ".2f") if compared else "–",
        spread([each.occupied / each.steps for each in counts], ".1f"),
        spread([each.generated for each in counts]),
        spread([ours / theirs - 1 for ours, theirs in both], "+.1%") if compared else "–",
        spread([(ours - closing) / theirs - 1 for ours, theirs in both], "+.1%") if compared else "–",
        spread([run.counts.generated - run.used for run in runs]),
        spread([each.computed for each in counts]),
        spread([run.wall for run in runs], ".0f"),
    ]


def _bound(engine: Engine, sizes: tuple[int, ...]) -> None:
    """The table of ours against the least that an engine could take."""
    table(BOUND_COLUMNS, (_bound_row(engine, size, name) for size in sizes for name in SPECULATIONS))


def _bound_row(engine: Engine, size: int, speculation: str) -> list[str]:
    rows = 16 if size >= 16 else size
    job = make_job(rows, size // rows, size, speculation)
    played = _ours(engine, job)
    flood = _wait(_flood(engine, played.asked))
    others = set(played.finished)
    alone = max(_ours(engine, {**job, "skip": sorted(others - {name})}).counts.steps for name in played.finished[-3:])
    return [
        str(size),
        speculation,
        f"{played.counts.steps:,}",
        f"{flood.steps:,}",
        f"{alone:,}",
        f"{played.counts.steps / max(flood.steps, alone):.2f}",
        f"{played.counts.occupied / played.counts.steps:.1f}",
    ]


def _ours(engine: Engine, job: dict[str, Any]) -> Played:
    """Play a job with our driver."""
    _wait(engine.forget())
    backend, before, started = OnEngine(engine), engine.counts, time.perf_counter()
    episodes = list(play(job, backend))
    wall, after = time.perf_counter() - started, engine.counts
    _check([episode["status"] for episode in episodes])
    used = sum(role["completion"] for episode in episodes for role in episode["usage"].values())
    return Played(after.since(before), backend.asked, used, [episode["episode_id"] for episode in episodes], wall)


def _peer(engine: Engine, job: dict[str, Any], python: Path) -> Played:
    """Play a job with the peer's driver, in its own process."""
    _wait(engine.forget())
    asked: list[tuple[list[int], int]] = []
    before, started = engine.counts, time.perf_counter()
    statuses = _wait(_rounds(engine, job, python, asked))
    wall, after = time.perf_counter() - started, engine.counts
    _check(statuses)
    return Played(after.since(before), asked, sum(tokens for _, tokens in asked), [], wall)


async def _rounds(engine: Engine, job: dict[str, Any], python: Path, asked: list[tuple[list[int], int]]) -> list[str]:
    """Give the engine every round of the peer's; how its episodes ended."""
    process = await asyncio.create_subprocess_exec(
        *(python, HERE / "peer/on_engine.py"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**28,
        env=environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(job).encode() + b"\n")
    lengths = trace()
    while line := await process.stdout.readline():
        said = json.loads(line)
        if isinstance(said, dict):
            statuses: list[str] = said["statuses"]
            await process.wait()
            return statuses
        calls = [(Call(*place), speaker, smollm2().chat(messages)) for place, speaker, messages in said]
        wanted = [(prompt, length(call, lengths)) for call, _, prompt in calls]
        asked += wanted
        await asyncio.gather(*(engine.generate(*each) for each in wanted))
        texts = [answer(call, length(call, lengths), "peer", speaker) for call, speaker, _ in calls]
        process.stdin.write(json.dumps(texts).encode() + b"\n")
    raise InputError(f"the peer's driver ended with {await process.wait()}; its own words are above")


async def _flood(engine: Engine, asked: list[tuple[list[int], int]]) -> Counts:
    """Give the engine every request at once, as if none depended on another."""
    await engine.forget()
    before = engine.counts
    await asyncio.gather(*(engine.generate(*each) for each in asked))
    return engine.counts.since(before)


def _check(statuses: list[str]) -> None:
    if set(statuses) != {"ok"}:
        raise InputError(f"an episode failed: {statuses}")


def _wait(work: Coroutine[Any, Any, Any]) -> Any:
    """Run something on the loop that owns the engines."""
    return asyncio.run_coroutine_threadsafe(work, loop()).result()


if __name__ == "__main__":
    command(main)
