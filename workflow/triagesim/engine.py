"""The one event loop that owns every engine, and what it takes to use anybody's backend on it."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import queue
import threading
from collections.abc import Callable, Coroutine, Generator
from functools import cache
from typing import Any, Literal

from triagesim.errors import BackendError
from triagesim.requests import Backend, Completion, Request

_FINISHED = object()
_starts: dict[int, tuple[Backend, asyncio.Future[None]]] = {}


@cache
def loop() -> asyncio.AbstractEventLoop:
    """The engine loop, in a thread of its own: engines outlive one simulation and work beside a running loop."""
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, name="triagesim", daemon=True).start()
    atexit.register(close_backends)
    return made


async def ready(backend: Backend) -> None:
    """Start a backend at its first use; all who wait for it share one start."""
    if id(backend) not in _starts:
        _starts[id(backend)] = (backend, asyncio.ensure_future(backend.start()))
    await asyncio.shield(_starts[id(backend)][1])


def close_backends() -> None:
    """Close every backend that was started. They start again when they are used again."""
    started = [backend for backend, _ in _starts.values()]
    _starts.clear()

    async def close() -> None:
        await asyncio.gather(*(backend.close() for backend in started), return_exceptions=True)

    if started:
        asyncio.run_coroutine_threadsafe(close(), loop()).result(timeout=30)


def iterate(work: Callable[[Callable[[Any], None]], Coroutine[Any, Any, None]]) -> Generator[Any]:
    """Run `work(emit)` on the engine loop and yield what it emits, as it comes.

    The work begins at the first `next`, and stops when the iterator is closed or dropped.
    """
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()
    ended = threading.Event()
    tasks: list[asyncio.Task[None]] = []

    def begin() -> None:
        tasks.append(asyncio.ensure_future(work(results.put)))
        tasks[0].add_done_callback(end)

    def end(task: asyncio.Task[None]) -> None:
        ended.set()
        results.put(_FINISHED)

    loop().call_soon_threadsafe(begin)
    try:
        while (item := results.get()) is not _FINISHED:
            yield item
        tasks[0].result()
    finally:
        loop().call_soon_threadsafe(lambda: tasks[0].cancel())
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
        self._complete = inner.complete
        self._waiting: list[tuple[Request, asyncio.Future[Completion]]] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

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
            except Exception as error:
                texts = [error] * len(batch)
            for (_, answer), text in zip(batch, texts, strict=True):
                if answer.done():
                    continue
                if isinstance(text, str):
                    answer.set_result(Completion(text, model=self.model))
                else:
                    answer.set_exception(_as_failure(text))


def _as_failure(error: Any) -> Exception:
    if isinstance(error, Exception) and type(error).__module__ == BackendError.__module__:
        return error
    return BackendError(f"{type(error).__name__}: {error}")
