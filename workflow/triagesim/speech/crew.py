"""Who does the speaking: this process, or several of which each holds a loaded engine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

from triagesim.errors import TriageSimError
from triagesim.speech.engine import Engine
from triagesim.speech.voices import Voice

T = TypeVar("T")
R = TypeVar("R")

#: Loads the engine, and says why it isn't the wanted one if it isn't; travels to other processes.
Load = Callable[[], tuple[Engine, str | None]]
#: Work on one item. It asks for the engine only if it needs it.
Work = Callable[[Callable[[], Engine], T], R]

#: Of each worker. Two threads take half again as much CPU time a second of speech as one (Kokoro), and the number must
#: not depend on the machine where it could change a sample.
THREADS = 1
_THREAD_COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class About(NamedTuple):
    """What is known of an engine without holding it."""

    name: str
    version: str
    licence: str
    voices: list[Voice]
    fallback: str | None


class Failed(NamedTuple):
    """Why an item could not be done."""

    why: str


class _Seat:
    """A process's own engine, loaded when it is first needed."""

    def __init__(self, load: Load) -> None:
        self._load = load

    @cached_property
    def _loaded(self) -> tuple[Engine, str | None]:
        return self._load()

    def engine(self) -> Engine:
        return self._loaded[0]

    def about(self) -> About:
        engine, fallback = self._loaded
        return About(engine.name, engine.version, engine.licence, list(engine.voices), fallback)

    def do(self, work: Work[T, R], item: T) -> R | Failed:
        """A failure is a result, but for those of the machine (a full disk), which all other items would meet too."""
        try:
            return work(self.engine, item)
        except OSError:
            raise
        except TriageSimError as error:
            return Failed(str(error))
        except Exception as error:
            return Failed(repr(error))


class Crew:
    """Does work on items, here or in workers; see `crew`."""

    def __init__(self, load: Load, pool: ProcessPoolExecutor | None, workers: int) -> None:
        self._here = _Seat(load)
        self._pool = pool
        self._workers = workers

    def about(self) -> About:
        """Of the engine that is loaded; errors of loading are raised as they are."""
        if self._pool is None:
            return self._here.about()
        # A worker begins with its first task: so all of them load at once.
        asked = [self._pool.submit(_about) for _ in range(self._workers)]
        return asked[0].result()

    def do(self, work: Work[T, R], items: Sequence[T]) -> Iterator[tuple[int, R | Failed]]:
        """The number of each item with its result, in the order in which they are done."""
        if self._pool is None:
            yield from ((number, self._here.do(work, item)) for number, item in enumerate(items))
            return
        numbers: dict[Future[R | Failed], int] = {
            self._pool.submit(partial(_do, work), item): number for number, item in enumerate(items)
        }
        for future in as_completed(numbers):
            yield numbers.pop(future), future.result()


@contextmanager
def crew(load: Load, workers: int) -> Iterator[Crew]:
    """A crew of one, which is this process, or of so many worker processes.

    Raises:
        TriageSimError: a worker was ended from outside.
    """
    if workers == 1:
        yield Crew(load, None, 1)
        return
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, (load,))
    try:
        yield Crew(load, pool, workers)
    except BrokenProcessPool:
        raise TriageSimError(
            f"one of {workers} speech workers was ended, as the system does when memory runs out: set audio.workers "
            "lower and run again; what was spoken is kept"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


_seat: _Seat


def _begin(load: Load) -> None:
    """Make this process a worker: one engine, a fixed number of threads, gone when its parent is."""
    global _seat
    _seat = _Seat(load)
    for name in _THREAD_COUNTS:
        os.environ[name] = str(THREADS)
    # The parent is interrupted too, and tells.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent: Any = multiprocessing.parent_process()
    parent.join()
    os._exit(1)


def _about() -> About:
    return _seat.about()


def _do(work: Work[T, R], item: T) -> R | Failed:
    return _seat.do(work, item)
