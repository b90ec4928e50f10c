"""Which call of which episode a request of the peer is: its requests carry a seed and no name."""

from __future__ import annotations

from typing import Any
from zlib import crc32

from dialogue import Call, action, rejected

KINDS = {
    "InSitu": "in_situ",
    "PatientScript": "script",
    "NurseOutput": "nurse",
    "NurseVerdict": "nurse_check",
    "PatientOutput": "patient",
    "Verdict": "patient_check",
    "Reading": "reading",
    "LineEdit": "edit",
    "PatientLineEdit": "edit",
}
#: More calls than any episode has.
MOST_CALLS = 80


class Places:
    """Follows every episode; each request is to be shown once, in the order of its episode.

    Args:
        episodes: ids of all that will be asked for.
        seed: of the run; a request's own is the hash of it, the episode and the number of the call.
    """

    def __init__(self, episodes: list[str], seed: int = 0) -> None:
        self._episode_of = {
            crc32(f"{seed}/{name}/{number}".encode()): name for name in episodes for number in range(MOST_CALLS)
        }
        #: Turn, step and draft by episode.
        self._at = {name: [0, 0, 0] for name in episodes}

    def find(self, request: Any) -> Call:
        """The call that a request makes."""
        name = self._episode_of[request.seed]
        at, kind = self._at[name], KINDS[request.output_type.__name__]
        turn, step, draft = at
        call = Call(name, kind, turn, step if kind == "nurse" else 0, draft)
        if kind == "nurse" and action(turn, step) != "utterance":
            at[1] = step + 1
        elif kind in ("nurse_check", "patient_check"):
            at[2] = draft + 1 if rejected(call) and not draft else 0
        elif kind == "reading":
            at[:] = [turn + 1, 0, 0]
        return call


def episode_ids(job: dict[str, Any]) -> list[str]:
    """The ids that the peer gives to a job's episodes."""
    return [f"{row['case_id']}-{number}" for row in job["cases"] for number in range(job["episodes_per_case"])]
