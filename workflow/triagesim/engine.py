"""The one event loop that owns every engine, and what it takes to use anybody's backend on it."""

from __future__ import annotations

import asyncio
import atexit
import gc
import inspect
import queue
import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Literal

from triagesim.errors import AnswerError, BackendError, TriageSimError
from triagesim.requests import Backend, Completion, Request

_FINISHED = object()
#: New objects after which Python looks for unreachable cycles, at least. A dialogue leaves next to none, and at 256 of
#: them the usual 700 costs a tenth of the driver's time.
COLLECT_AFTER = 10_000
_making = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_works: set[asyncio.Task[None]] = set()
_starts: dict[int, tuple[Backend, asyncio.Future[None]]] = {}


def loop() -> asyncio.AbstractEventLoop:
    """The engine loop, in a thread of its own: engines outlive one simulation and work beside a running loop."""
    global _loop, _thread
    with _making:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_loop.run_forever, name="triagesim", daemon=True)
            _thread.start()
            often, *others = gc.get_threshold()
            if often:  # 0: somebody turned it off
                gc.set_threshold(max(often, COLLECT_AFTER), *others)
            atexit.register(close_backends)
        return _loop


async def ready(backend: Backend) -> None:
    """Start a backend at its first use; all who wait for it share one start, and a failed one is tried again later."""
    if id(backend) not in _starts:
        _starts[id(backend)] = (backend, asyncio.ensure_future(backend.start()))
    starting = _starts[id(backend)][1]
    if starting.done() and not starting.cancelled() and starting.exception() is None:
        return
    try:
        await asyncio.shield(starting)
    except Exception:
        _starts.pop(id(backend), None)
        raise


def close_backends(patience: float = 30) -> None:
    """Stop every simulation that still runs and close every backend that was started; a later use starts it again.

    Args:
        patience: seconds until this gives up waiting.

    Raises:
        TimeoutError: something didn't end in time.
    """
    started = [backend for backend, _ in _starts.values()]
    _starts.clear()

    async def close() -> None:
        for task in _works:
            task.cancel()
        await asyncio.gather(*_works, return_exceptions=True)
        await asyncio.gather(*(backend.close() for backend in started), return_exceptions=True)

    if started or _works:
        asyncio.run_coroutine_threadsafe(close(), loop()).result(timeout=patience)


def iterate(work: Callable[[Callable[[Any], None]], Coroutine[Any, Any, None]]) -> Generator[Any]:
    """Run `work(emit)` on the engine loop and yield what it emits, as it comes.

    The work begins at the first `next`, and stops when the iterator is closed or dropped.
    """
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()
    ended = threading.Event()
    tasks: list[asyncio.Task[None]] = []

    def begin() -> None:
        tasks.append(asyncio.ensure_future(work(results.put)))
        _works.add(tasks[0])
        tasks[0].add_done_callback(end)

    def end(task: asyncio.Task[None]) -> None:
        _works.discard(task)
        ended.set()
        results.put(_FINISHED)

    loop().call_soon_threadsafe(begin)
    try:
        while (item := results.get()) is not _FINISHED:
            yield item
        tasks[0].result()
    finally:
        loop().call_soon_threadsafe(lambda: tasks[0].cancel())
        # The loop can't be waited for by its own thread (which may collect a dropped iterator), nor once it is frozen.
        if threading.current_thread() is not _thread and not sys.is_finalizing():
            ended.wait()


def as_backend(given: Any) -> Backend:
    """A backend of this package as it is; somebody else's through an adapter.

    Theirs needs `model` and `complete(requests) -> list[str | Exception]`, plain or async.

    Raises:
        TypeError: it has neither.
    """
    if hasattr(given, "identity") and hasattr(given, "reads"):
        backend: Backend = given
        return backend
    if not isinstance(getattr(given, "model", None), str) or not callable(getattr(given, "complete", None)):
        raise TypeError(f"{given!r} is no backend: it needs `model` (text) and `complete(requests)`")
    return _Gathering(given)


class _Gathering:
    """Gives a foreign backend, at each turn of the loop, the requests that are ready."""

    reads: Literal["messages", "view"] = "messages"

    def __init__(self, inner: Any) -> None:
        self.model: str = inner.model
        self.identity: dict[str, Any] = {"model": inner.model}
        self.local: bool | None = getattr(inner, "local", None)
        self.label: str | None = getattr(inner, "label", None)
        self.spare: bool = getattr(inner, "spare", False)
        self._complete = inner.complete
        self._waiting: list[tuple[Request, asyncio.Future[Completion]]] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Wait for no answer any more."""
        if self._task is not None:
            self._task.cancel()

    async def complete(self, request: Request) -> Completion:
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._serve())
        return await answer

    async def _serve(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)
            batch, self._waiting = self._waiting, []
            requests = [request for request, _ in batch]
            try:
                if inspect.iscoroutinefunction(self._complete):
                    texts = await self._complete(requests)
                else:
                    texts = await asyncio.to_thread(self._complete, requests)
                if len(texts) != len(batch):
                    raise BackendError(f"{self.model} gave {len(texts)} answers to {len(batch)} requests")
            except BaseException as error:  # sys.exit in somebody's backend must not end the loop
                texts = [error] * len(batch)
            for (_, answer), text in zip(batch, texts, strict=True):
                if answer.done():
                    continue
                if isinstance(text, str):
                    answer.set_result(Completion(text, model=self.model))
                else:
                    answer.set_exception(_as_failure(text))


def _as_failure(error: Any) -> Exception:
    if isinstance(error, TriageSimError | AnswerError | BackendError):
        return error
    return BackendError(f"{type(error).__name__}: {error}")
