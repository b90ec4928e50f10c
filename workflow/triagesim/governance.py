"""What kinds of data there are and where each may go: the one check that stands before every request."""

from __future__ import annotations

import hmac
import os
import re
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from triagesim.errors import InputError, StopRun

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


#: Bytes of a salt; it is written as twice as many hex digits.
_SALT_BYTES = 32


def load_salt(path: Path) -> bytes:
    """The run's secret for `pseudonym`, made at first use: it lies beside the journal, never in results.

    Who has it can tell whether an id that they know is in an export, so its file is the owner's alone (0600).

    Raises:
        InputError: the file holds no salt.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(_SALT_BYTES) + "\n")
        # Of two jobs that make one at the same time the first wins, and both read that.
        with suppress(FileExistsError):
            os.link(name, path)
        Path(name).unlink()
    try:
        salt = bytes.fromhex(path.read_text(encoding="ascii"))
    except ValueError:
        salt = b""
    if len(salt) != _SALT_BYTES:
        raise InputError(
            f"{path}: expected the {2 * _SALT_BYTES} hex digits of a salt; delete the file and export everything anew"
        )
    return salt


def pseudonym(identifier: str, salt: bytes) -> str:
    """What stands for a stay's, case's or subject's id in an export: 16 hex digits, a valid case id.

    It is an HMAC-SHA256, so an id can't be found from it by trying all eight-digit numbers without the salt. Half a
    million ids get different ones but for a chance of 1 in 10⁸.
    """
    return hmac.new(salt, identifier.encode(), "sha256").hexdigest()[:16]
