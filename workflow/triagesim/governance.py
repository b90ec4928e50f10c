"""What kinds of data there are and where each may go: the one check that stands before every request."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Literal

from triagesim.errors import StopRun

if TYPE_CHECKING:
    from triagesim.cases import Case

Provenance = Literal["synthetic", "mimic_iv_ed_demo", "mimic_iv_ed", "deidentified", "identifiable"]
#: Data that may be sent to a hosted endpoint. The demo is open (ODbL); the rest isn't.
OPEN = frozenset({"synthetic", "mimic_iv_ed_demo"})

_KEYS = re.compile(r"(Bearer\s+)\S+|\bsk-[\w-]{6,}", re.IGNORECASE)


def redact(text: str) -> str:
    """A text without keys: bearer tokens, `sk-…`, and whatever an environment variable `…_KEY` or `…_TOKEN` holds."""
    for name, value in os.environ.items():
        if name.endswith(("_KEY", "_TOKEN")) and len(value) >= 8:
            text = text.replace(value, "[key]")
    return _KEYS.sub(lambda match: f"{match[1] or ''}[key]", text)


def reason(provenance: str | None) -> str:
    """Why such data may not leave, as far as there is a rule that says it."""
    return " (PhysioNet's agreement forbids sharing it with APIs)" if provenance == "mimic_iv_ed" else ""


def check_endpoint(case: Case, model: str, local: bool | None) -> None:
    """Refuse to send a case that isn't open data to an endpoint that isn't declared local.

    Args:
        local: None for a backend object of the caller's own, about which nothing is declared.

    Raises:
        StopRun: the case may not leave this machine.
    """
    if local is True or case.provenance in OPEN:
        return
    if case.provenance is None:
        if local is None:
            return
        raise StopRun(
            f"case {case.case_id}: nothing says where it comes from, so it isn't sent to {model}. Set data.provenance "
            f"(or --provenance, or `provenance` in the case) to one of {', '.join(sorted(OPEN))}, or use a local model."
        )
    raise StopRun(
        f"case {case.case_id}: {case.provenance} data may not be sent to {model}, which isn't declared local"
        f"{reason(case.provenance)}. Use a local model; if this endpoint runs on your own machine, set "
        "models.<name>.local: true."
    )
