"""What can go wrong, by what the caller should do about it."""

from __future__ import annotations

from typing import Literal

#: Why a call failed, where it may pass: too many requests, the server's fault, no answer in time, no connection,
#: an answer without a choice or text, anything else.
Kind = Literal["rate_limit", "server", "timeout", "connection", "empty", "other"]


class TriageSimError(Exception):
    """A problem that the user can mend; its text names file, line or key and says what to do."""

    exit_code = 2


class InputError(TriageSimError):
    """A file, a key or an argument isn't what it should be."""


class StopRun(TriageSimError):
    """Asking on is pointless or not allowed (no credit, unknown model, governance, a full disk).

    Attributes:
        mark: whether it concerns the other jobs of the run too, which are told to stop.
    """

    exit_code = 3

    def __init__(self, message: str, *, mark: bool = True) -> None:
        super().__init__(message)
        self.mark = mark


class AnswerError(Exception):
    """A call can't be answered as it is (its prompt doesn't fit): asking the same again won't help."""


class BackendError(Exception):
    """A call failed for a reason that may pass.

    Attributes:
        kind: what it is counted as.
        retry_after: seconds to wait before the next try, where the endpoint says it.
    """

    def __init__(self, message: str, *, kind: Kind = "other", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after
