"""Where patient data may go: the one check that stands before every request."""

from __future__ import annotations

from triagesim.cases import Case
from triagesim.errors import StopRun

#: Data that may be sent to a hosted endpoint. The demo is open (ODbL); the rest isn't.
OPEN = frozenset({"synthetic", "mimic_iv_ed_demo"})


def check_endpoint(case: Case, model: str, local: bool | None) -> None:
    """Refuse to send a case that isn't open data to an endpoint that isn't declared local.

    Args:
        local: None for a backend object of the caller's own, about which nothing is declared.

    Raises:
        StopRun: the case may not leave this machine.
    """
    if local or case.provenance in OPEN:
        return
    if case.provenance is None:
        if local is None:
            return
        raise StopRun(
            f"case {case.case_id}: nothing says where it comes from, so it isn't sent to {model}. Set data.provenance "
            f"(or --provenance, or `provenance` in the case) to one of {', '.join(sorted(OPEN))}, or use a local model."
        )
    raise StopRun(
        f"case {case.case_id}: {case.provenance} data may not be sent to {model}, which isn't declared local. "
        "PhysioNet's data use agreement forbids sharing credentialed data with third parties, APIs included. "
        "Use a local model; if this endpoint runs on your own machine, set models.<name>.local: true."
    )
