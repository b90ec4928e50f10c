"""Prompt tokens that an engine computes with a prefix cache: our prompts and the peer's, for the same dialogues."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from dialogue import MEASURED, TURNS
from engines import BLOCK, Cache, Counted
from instant import Instant, as_call
from measuring import arguments, check_peer, conditions, make_job, measure, table
from playing import play
from tokens import MODEL, Tokenizer, smollm2
from triagesim.console import command
from triagesim.requests import Completion, Request

COLUMNS = ("call", "prompts", "n", "prompt tokens, mean", "longest", "in the cache", "computed a call")


class Prompt(NamedTuple):
    """A prompt, and what it is for."""

    kind: str
    tokens: list[int]


class _Recorder(Instant):
    """Remembers every request whose answer counts."""

    async def complete(self, request: Request) -> Completion:
        """The pool's answer."""
        self.kept.append(request)
        return self.answer(request)


def main() -> None:
    """Play, count and print."""
    options = arguments(__doc__).parse_args()
    if options.peer:
        check_peer(options.peer)
    job = make_job(2 if options.quick else 24, 1, 1)
    tokenizer = smollm2()
    drivers = {"ours": list(_ours(job, tokenizer))}
    if options.peer:
        drivers["peer"] = list(_peers(job, tokenizer, options.peer))
    counted = {driver: _counted(prompts) for driver, prompts in drivers.items()}
    table(COLUMNS, _rows(counted))
    print(
        f"\n{len(job['cases'])} episodes one after the other, {TURNS} turns, with a dialogue master; one run, as "
        f"nothing in it is left to chance. Tokens of {MODEL}, blocks of {BLOCK}, a cache without limit that holds "
        f"prompts and no answers. {conditions()}"
    )


def _ours(job: dict[str, Any], tokenizer: Tokenizer) -> Iterator[Prompt]:
    recorder = _Recorder()
    for _ in play(job, recorder):
        pass
    for request in recorder.kept:
        yield Prompt(as_call(request.name).kind, tokenizer.chat(request.messages))


def _peers(job: dict[str, Any], tokenizer: Tokenizer, python: Any) -> Iterator[Prompt]:
    for (_, kind, *_), messages in measure("peer/instant.py", {**job, "prompts": True}, python):
        yield Prompt(kind, tokenizer.chat(messages))


def _counted(prompts: list[Prompt]) -> dict[str, list[Counted]]:
    cache, counted = Cache(), defaultdict(list)
    for kind, tokens in prompts:
        counted[kind].append(cache.count(tokens))
    return {kind: counted[kind] for kind in MEASURED if kind in counted}


def _rows(drivers: dict[str, dict[str, list[Counted]]]) -> Iterator[list[str]]:
    for kind in MEASURED:
        for driver, counted in drivers.items():
            if kind in counted:
                yield _row(kind, driver, counted[kind])
    for driver, counted in drivers.items():
        yield _row("all", driver, [each for part in counted.values() for each in part])


def _row(kind: str, driver: str, counted: list[Counted]) -> list[str]:
    total, computed = sum(each.length for each in counted), sum(each.computed for each in counted)
    return [
        kind,
        driver,
        f"{len(counted):,}",
        f"{statistics.mean(each.length for each in counted):,.0f}",
        f"{max(each.length for each in counted):,}",
        f"{1 - computed / total:.1%}",
        f"{computed / len(counted):,.0f}",
    ]


if __name__ == "__main__":
    command(main)
