"""Counts the peer's personas as its package makes them: every combination of levels but the incompatible ones."""

from __future__ import annotations

import sys

from triagesim.personas import NURSE_TRAITS, PATIENT_TRAITS, combinations, compatible  # type: ignore[attr-defined]

# Its nurses have a gender beside their traits.
nurses = sum(2 for combination in combinations(NURSE_TRAITS) if compatible(combination))
patients = sum(1 for combination in combinations(PATIENT_TRAITS) if compatible(combination))
if patients + nurses != int(sys.argv[1]):
    sys.exit(f"{patients:,} patients and {nurses:,} nurses")
