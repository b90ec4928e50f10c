"""What ends a whole run: a stop mark that a sibling left, a spent budget, an endpoint that answers nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from triagesim.environment import PARENT
from triagesim.errors import BackendError, StopRun
from triagesim.governance import redact
from triagesim.journal import Tally, process_name, records_in
from triagesim.jsonl import write_json

#: Seconds between two looks at the stop mark, and between two readings of what the other jobs spent.
LOOK_EVERY = 1.0
COUNT_EVERY = 10.0
#: So many calls in a row whose every try failed, and the endpoint counts as dead.
DEAD_AFTER = 5
_DEAD = frozenset({"connection", "rate_limit", "server", "timeout"})


@dataclass
class Limits:
    """The limits that all jobs of a run share.

    Args:
        root: the folder of the run's journals; None has no siblings.
        usd, tokens: what all journals below `root` may hold together; None is without a limit. A call that is in
            flight when the limit is reached is still paid.
        tally: what this process has asked for.

    Attributes:
        leftovers: paid calls in flight whose answers no episode waits for.
    """

    root: Path | None = None
    usd: float | None = None
    tokens: int | None = None
    tally: Tally = field(default_factory=Tally)
    leftovers: set[asyncio.Task[Any]] = field(default_factory=set, init=False)
    _over: StopRun | None = field(default=None, init=False)
    _looked: float = field(default=-1e9, init=False)
    _counted: float = field(default=-1e9, init=False)
    _others: tuple[float, int] = field(default=(0.0, 0), init=False)
    _unanswered: Counter[str] = field(default_factory=Counter, init=False)
    _spent: Spent | None = field(default=None, init=False)

    def check(self) -> None:
        """Look before a call leaves.

        Raises:
            StopRun: a sibling stopped the run, or the budget is spent.
        """
        if self._over is not None:
            raise StopRun(str(self._over), mark=self._over.mark)
        now = time.monotonic()
        if self.root is not None and now - self._looked > LOOK_EVERY:
            self._looked = now
            if (said := stop_mark(self.root)) is not None:
                raise StopRun(f"another job stopped the run: {said}", mark=False)
        if self.usd is not None or self.tokens is not None:
            self._check_budget(now)

    @contextlib.contextmanager
    def marking(self, title: str) -> Iterator[None]:
        """Tell the sibling jobs when there is no point in asking on; a start by hand takes an old mark away."""
        if self.root is not None and PARENT not in os.environ:
            clear_mark(self.root)
        try:
            yield
        except StopRun as error:
            if self.root is not None and error.mark:
                # On a full disk there is no room for the mark either; why this job stopped is what counts.
                with contextlib.suppress(OSError):
                    leave_mark(self.root, f"{title}: {error}")
            raise

    def stop(self, why: StopRun) -> None:
        """Let no further call leave."""
        self._over = self._over or why

    def answered(self, model: str) -> None:
        """Note that an endpoint lives."""
        if self._unanswered:
            del self._unanswered[model]

    def unanswered(self, model: str, error: BackendError) -> None:
        """Note that an endpoint answered none of a call's tries; `error`: the last one.

        Raises:
            StopRun: it answered none of several calls in a row.
        """
        self._unanswered[model] += error.kind in _DEAD
        if self._unanswered[model] >= DEAD_AFTER:
            raise StopRun(
                f"{model} answered none of the last {DEAD_AFTER} calls ({error}); is it up? Every answer so far is "
                "kept, the same command goes on from here"
            )

    def _check_budget(self, now: float) -> None:
        if self.root is not None and now - self._counted > COUNT_EVERY:
            self._counted = now
            self._spent = self._spent or Spent(self.root, without=process_name())
            self._others = self._spent.so_far()
        usd, tokens = self._others[0] + self.tally.cost, self._others[1] + self.tally.tokens
        if self.usd is not None and usd >= self.usd:
            raise StopRun(f"budget.usd is spent: {usd:.2f} of {self.usd:g} US dollars; {_RAISE}")
        if self.tokens is not None and tokens >= self.tokens:
            raise StopRun(f"budget.tokens is spent: {tokens:,} of {self.tokens:,}; {_RAISE}")


_RAISE = "every answer is kept: raise it and the same command goes on from here"


class Spent:
    """Dollars and tokens in the journals below a folder, but for one process's; reads only what is new.

    Every answer counts once a time that it was paid for.
    """

    def __init__(self, root: Path, without: str = "") -> None:
        self._root = root
        self._without = without
        self._read: dict[Path, int] = {}
        self._usd = 0.0
        self._tokens = 0

    def so_far(self) -> tuple[float, int]:
        """US dollars and tokens up to now."""
        for path in self._root.glob("**/[0-9][0-9]/*.jsonl"):
            if self._without and self._without in path.name:
                continue
            with contextlib.suppress(FileNotFoundError):
                self._read[path] = self._add(path, self._read.get(path, 0))
        return self._usd, self._tokens

    def _add(self, path: Path, start: int) -> int:
        """Add up the whole lines from byte `start` on; return where the next reading starts."""
        if path.stat().st_size == start:
            return start
        with path.open("rb") as file:
            file.seek(start)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        for record in records_in(whole.split(b"\n")):
            if "key" in record:
                prompt, completion, _, _, usd = record["usage"]
                self._usd += usd
                self._tokens += prompt + completion
        return start + len(whole)


def stop_mark(root: Path) -> str | None:
    """Why the run was stopped, if a job left a mark."""
    try:
        return str(json.loads(_mark(root).read_text(encoding="utf-8"))["why"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OSError):
        return "a reason that can't be read"


def leave_mark(root: Path, why: str) -> None:
    """Tell the other jobs of the run to stop; the next start of the run takes it away."""
    write_json(_mark(root), {"why": redact(why)})


def clear_mark(root: Path) -> None:
    """Begin anew."""
    _mark(root).unlink(missing_ok=True)


def _mark(root: Path) -> Path:
    return root / "_stop.json"
