"""`simulate`: many episodes side by side, each yielded as it finishes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from triagesim.backends import share_devices
from triagesim.calls import Seat
from triagesim.cases import Case, Scale
from triagesim.config import Features, Speculation
from triagesim.engine import as_backend, iterate
from triagesim.episode import Setup, play
from triagesim.errors import InputError, StopRun
from triagesim.journal import Journal
from triagesim.limits import Limits
from triagesim.personas import Persona, Pool
from triagesim.requests import ROLES, Role

J = TypeVar("J")
R = TypeVar("R")

NO_FEATURES = Features()
#: Seconds that paid calls in flight get to be answered when a run ends.
LAST_ANSWERS = 30.0


def simulate(
    cases: Iterable[Case],
    *,
    nurse_llm: Any,
    patient_llm: Any,
    nurse_personas: Iterable[Persona],
    patient_personas: Iterable[Persona],
    algorithm: Scale | None = None,
    judge_llm: Any = None,
    max_regenerations: int = 1,
    max_turns: int = 12,
    min_questions: int = 3,
    episodes_per_case: int = 1,
    seed: int = 0,
    concurrency: int = 256,
    sampling: Mapping[str, Mapping[str, Any]] | None = None,
    skip: Collection[str] = (),
    features: Features = NO_FEATURES,
    journal: str | Path | None = None,
    speculation: Speculation = "auto",
) -> Iterator[dict[str, Any]]:
    """Simulate episodes and yield each as it finishes, as a dict that is one line of JSON.

    Args:
        nurse_llm, patient_llm: backends (`load_backend`), or objects with `model` and `complete(requests)`.
        judge_llm: likewise, for the dialogue master; without it there is none.
        max_regenerations: how often a rejected line goes back to its speaker, before the master writes it.
        algorithm: the scale for all cases; otherwise each case's `acuity_scale`, otherwise ESI.
        max_turns: questions that the nurse may ask; `min_questions` before it may end.
        sampling: options by role (nurse, patient, judge, script), over the model's own.
        skip: ids of episodes to leave out.
        journal: a folder that keeps every answer; with it, a run that was stopped asks nothing twice. One simulation
            at a time.
        speculation: how far calls run ahead of the checks they depend on; it changes no episode.

    Raises:
        InputError, TypeError: an argument isn't what it should be; at the call, not at the first `next`.
    """
    if isinstance(cases, Case | str | Path) or isinstance(skip, str):
        raise InputError("cases and skip are lists: of cases (load_cases), and of episode ids")
    chosen = list(cases)
    _check_cases(chosen)
    _check_counts(1, max_turns=max_turns, episodes_per_case=episodes_per_case, concurrency=concurrency)
    _check_counts(0, min_questions=min_questions, max_regenerations=max_regenerations)
    _check_choices(algorithm, features, speculation, sampling or {}, judged=judge_llm is not None)
    models: dict[Role, Any] = {"nurse": nurse_llm, "patient": patient_llm}
    if judge_llm is not None:
        models |= {"judge": judge_llm, "script": judge_llm}
    adapted = {id(given): as_backend(given) for given in models.values()}
    share_devices(adapted.values())
    setup = Setup(
        {role: Seat(adapted[id(llm)], sampling=dict((sampling or {}).get(role, {}))) for role, llm in models.items()},
        Pool(nurse_personas, "nurse"),
        Pool(patient_personas, "patient"),
        algorithm=algorithm,
        max_turns=max_turns,
        min_questions=min_questions,
        max_regenerations=max_regenerations,
        seed=seed,
        features=features,
        speculation=speculation,
    )
    done = set(skip)
    jobs = [(case, k) for case in chosen for k in range(episodes_per_case) if f"{case.case_id}-{k}" not in done]
    return run(jobs, setup, Path(journal) if journal is not None else None, concurrency)


def _check_cases(cases: list[Case]) -> None:
    if odd := [case for case in cases if not isinstance(case, Case)]:
        raise InputError(f"cases holds {odd[0]!r:.80}; expected cases, as load_cases or Case.model_validate makes them")
    counts = Counter(case.case_id.lower() for case in cases)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise InputError(
            f"case ids are unique (without regard to upper and lower case); twice there: {', '.join(twice)}"
        )


def _check_counts(least: int, **numbers: Any) -> None:
    for name, number in numbers.items():
        if not isinstance(number, int) or number < least:
            raise InputError(f"{name} is {number}; expected a whole number from {least} on")


def _check_choices(
    algorithm: Any, features: Any, speculation: Any, sampling: Mapping[str, Any], *, judged: bool
) -> None:
    if not isinstance(features, Features):
        raise InputError(f"features is {features!r:.80}; expected Features(appearance=…, belief_state=…, feedback=…)")
    if algorithm not in (None, *get_args(Scale)):
        raise InputError(f"algorithm is {algorithm!r}; expected {' or '.join(get_args(Scale))}")
    if features.appearance and not judged:
        raise InputError("the feature appearance needs a dialogue master: give judge_llm")
    if speculation not in get_args(Speculation):
        raise InputError(f"speculation is {speculation!r}; expected one of {', '.join(get_args(Speculation))}")
    if unknown := set(sampling) - set(ROLES):
        raise InputError(f"sampling: unknown role {', '.join(sorted(unknown))}; expected {', '.join(ROLES)}")


def run(
    jobs: list[tuple[Case, int]], setup: Setup, journal: Path | None, concurrency: int, limits: Limits | None = None
) -> Generator[dict[str, Any]]:
    """Play (case, episode number) jobs, at most `concurrency` at once, and yield the artifacts as they finish.

    Raises:
        StopRun: from any of them; the others are stopped, and all that was answered is in the journal.
    """
    bounds = limits or Limits()

    def open_journal() -> Journal:
        return Journal(journal, [case.case_id for case, _ in jobs], bounds.tally, setup.spec)

    async def one(job: tuple[Case, int], book: Journal) -> dict[str, Any]:
        return await play(*job, setup, book, bounds)

    return side_by_side(jobs, one, open_journal, concurrency, bounds)


def side_by_side(
    jobs: Sequence[J],
    one: Callable[[J, Journal], Awaitable[R]],
    open_journal: Callable[[], Journal],
    concurrency: int,
    bounds: Limits,
) -> Generator[R]:
    """Do `one` for every job, at most `concurrency` at once, and yield the results as they come.

    Raises:
        StopRun: from any of them; the others are stopped, and all that was answered is in the journal.
    """

    async def work(emit: Callable[[Any], None]) -> None:
        book = await asyncio.to_thread(open_journal)
        waiting = iter(jobs)

        async def worker() -> None:
            for job in waiting:
                emit(await one(job, book))
                await asyncio.sleep(0)  # a backend that never waits must not keep a stop from being heard

        workers = [asyncio.ensure_future(worker()) for _ in range(min(concurrency, len(jobs)))]
        try:
            await _all(workers, bounds)
        finally:
            for tasks in (workers, bounds.leftovers):  # a worker that is cancelled may leave one more
                ending = list(tasks)
                for task in ending:
                    task.cancel()
                await asyncio.gather(*ending, return_exceptions=True)
            book.close()

    return iterate(work)


async def _all(workers: list[asyncio.Task[None]], bounds: Limits) -> None:
    """Wait for the workers, and for paid calls that nobody waits for any more.

    Where one has to stop the run, no further call leaves, and those in flight get some time to be answered and kept.

    Raises:
        StopRun: or whatever else a worker raises.
    """
    ended, going = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION) if workers else (set(), set())
    failures = [failure for task in ended if (failure := task.exception()) is not None]
    stop = next((failure for failure in failures if isinstance(failure, StopRun)), None)
    if stop is not None:
        bounds.stop(stop)
    elif failures:
        raise failures[0]
    until = time.monotonic() + LAST_ANSWERS
    while waiting := {task for task in (*going, *bounds.leftovers) if not task.done()}:
        left = until - time.monotonic()
        if left <= 0:
            break
        await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
    if stop is not None:
        raise stop
