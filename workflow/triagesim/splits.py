"""Splits by patient: which part of a dataset everything of one patient belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from triagesim.errors import InputError

# Values that eight bytes of a hash can have.
_STEPS = 2**64


def patient_key(case: Mapping[str, Any]) -> str:
    """What tells a patient: the subject id where the case has one (MIMIC-IV-ED), else the case id."""
    subject = case.get("subject_id")
    return str(case["case_id"] if subject is None or subject == "" else subject)


def split_of(key: str, splits: Mapping[str, float], seed: int) -> str:
    """The split of a patient, drawn by a hash of the seed and the key alone: an added patient never moves another one.

    Args:
        key: `patient_key` of the case.
        splits: share by name, in order; shares are relative to their sum, and one of 0 gets nobody.

    Raises:
        InputError: a share is negative, or all are 0.
    """
    whole = sum(splits.values())
    if whole <= 0 or any(share < 0 for share in splits.values()):
        raise InputError(f"dataset.splits: expected shares of 0 or more, at least one above 0, found {dict(splits)}")
    drawn = int.from_bytes(sha256(f"{seed}:{key}".encode()).digest()[:8]) / _STEPS
    used = {name: share / whole for name, share in splits.items() if share > 0}
    end = 0.0
    for name, share in used.items():
        end += share
        if drawn < end:
            return name
    return name
