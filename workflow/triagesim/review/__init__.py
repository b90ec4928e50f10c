"""Review by clinicians: a blinded kit goes out, filled-in files come back, and agreement is computed."""

from __future__ import annotations
