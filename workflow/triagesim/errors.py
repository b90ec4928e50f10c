"""What can go wrong, by what the caller should do about it."""

from __future__ import annotations


class TriageSimError(Exception):
    """A problem that the user can mend; its text names file, line or key and says what to do."""

    exit_code = 2


class InputError(TriageSimError):
    """A file, a key or an argument isn't what it should be."""


class StopRun(TriageSimError):
    """Asking on is pointless or not allowed (no credit, unknown model, governance, a full disk)."""

    exit_code = 3


class AnswerError(Exception):
    """A call can't be answered as it is (its prompt doesn't fit): asking the same again won't help."""


class BackendError(Exception):
    """A call failed for a reason that may pass (a time-out, an overloaded server)."""
