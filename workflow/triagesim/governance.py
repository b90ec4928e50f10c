"""What kinds of data there are, where each may go, and what is kept of it.

The check that stands before every request, the modes of files, the notice beside results, and pseudonyms.
"""

from __future__ import annotations

import hmac
import html
import json
import os
import re
import secrets
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, timedelta
from functools import lru_cache
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, quote_plus, urlsplit

from triagesim.errors import InputError, StopRun
from triagesim.temporaries import beside

if TYPE_CHECKING:
    from triagesim.cases import Case
    from triagesim.config import HostedAttestation
    from triagesim.requests import Backend

Provenance = Literal["synthetic", "mimic_iv_ed_demo", "mimic_iv_ed", "deidentified", "identifiable"]
#: Data that may be sent to a hosted endpoint. The demo is open (ODbL); the rest isn't.
OPEN = frozenset({"synthetic", "mimic_iv_ed_demo"})
#: Data that a complete attestation lets go to a hosted endpoint; identifiable data goes nowhere.
ATTESTABLE = frozenset({"mimic_iv_ed", "deidentified"})

#: The rights of group and others.
_OTHERS = 0o077
_KEYS = re.compile(r"(Bearer\s+)\S+|\bsk-[\w-]{6,}", re.IGNORECASE)
_HEX = re.compile("%[0-9A-F]{2}")
#: A text of fewer characters is no secret: for a server that wants none, people write `none` or `EMPTY` as the key.
_LEAST_SECRET = 8
_secrets: set[str] = set()


def keep_secret(key: str) -> None:
    """Take a key out of every text that this process writes from now on, as far as it goes through `redact`."""
    _secrets.add(key)


def redact(text: str) -> str:
    """A text without keys: those in use, bearer tokens, `sk-…`, and what an environment variable `…_KEY` or `…_TOKEN`
    holds.
    """
    held = {value for name, value in os.environ.items() if name.endswith(("_KEY", "_TOKEN"))}
    return _KEYS.sub(lambda match: f"{match[1] or ''}[key]", _without(text, held | _secrets))


def hide(text: str) -> str:
    """A text without the keys that are in use."""
    return _without(text, _secrets)


def _without(text: str, keys: set[str]) -> str:
    for key in sorted(keys, key=len, reverse=True):
        for spelling in _spellings(key) if len(key) >= _LEAST_SECRET else ():
            text = text.replace(spelling, "[key]")
    return text


@lru_cache(maxsize=64)
def _spellings(key: str) -> tuple[str, ...]:
    """A key as a server can send it back, longest first.

    As it is, in JSON (also twice), in an address, in HTML, and in Base64 behind any other text.
    """
    in_json = json.dumps(key)[1:-1]
    found = {key, in_json, in_json.replace("/", "\\/"), json.dumps(in_json)[1:-1], html.escape(key)}
    found |= {repr(key)[1:-1], html.escape(key, quote=False), quote(key, safe=""), quote(key), quote_plus(key)}
    found.add("".join(f"\\u{ord(character):04x}" for character in key))
    found |= {_HEX.sub(lambda match: match[0].lower(), one) for one in found} | {quote(quote(key, safe=""))}
    data = key.encode(errors="replace")
    for before in range(3):
        # Of a group of three bytes with others beside them, the characters that these have a part in are left out.
        whole = data[: len(data) - (before + len(data)) % 3]
        coded = b64encode(b"\0" * before + whole).decode()[(0, 2, 3)[before] :]
        found |= {coded, coded.replace("+", "-").replace("/", "_")}
    return tuple(sorted((one for one in found if len(one) >= _LEAST_SECRET), key=lambda one: (-len(one), one)))


def reason(provenance: str | None) -> str:
    """Why such data may not leave, as far as there is a rule that says it."""
    return " (PhysioNet's agreement forbids sharing it with APIs)" if provenance == "mimic_iv_ed" else ""


#: So long an attestation counts, in days from its date.
ATTESTED_DAYS = 180


def provider_of(base_url: str) -> str:
    """Who is behind an endpoint: the host of its address, as in `openrouter.ai`."""
    return urlsplit(base_url).hostname or ""


def unattested(
    provenance: str | None, attestations: Sequence[HostedAttestation], provider: str, model: str, today: date
) -> str | None:
    """Why no attestation lets data of this provenance go to a hosted model, as a clause; None where one does.

    Args:
        attestations: of `governance.hosted_attestation`, each whole: pydantic has seen to it.
        provider: as `provider_of` says it; `model`: its id there.
    """
    if provenance not in ATTESTABLE:
        return f"no attestation is accepted for {provenance} data"
    where = f"provider {provider!r}, model {model!r}"
    if not attestations:
        return f"governance.hosted_attestation isn't there for {where}"
    mine = [one for one in attestations if (one.provider, one.model) == (provider, model)]
    if not mine:
        there = "; ".join(f"provider {one.provider!r}, model {one.model!r}" for one in attestations)
        return f"governance.hosted_attestation is for {there}, and not for {where}"
    latest = max(one.date for one in mine)
    if latest > today:
        return f"governance.hosted_attestation for {where} is dated {latest}, which is to come"
    if today > (last := latest + timedelta(days=ATTESTED_DAYS)):
        return (
            f"governance.hosted_attestation for {where} of {latest} expired after {last} ({ATTESTED_DAYS} days): look "
            "at the provider's terms again, then renew its date"
        )
    return None


def check_endpoint(case: Case, backend: Backend, attestations: Sequence[HostedAttestation] = ()) -> None:
    """Refuse to send a case that isn't open data to an endpoint that isn't declared local.

    A `backend` of the caller's own declares nothing; only a case whose provenance is known not to be open is kept
    from it.

    Raises:
        StopRun: the case may not leave this machine.
    """
    local, model = backend.local, backend.model
    if local is True or case.provenance in OPEN:
        return
    if case.provenance is None:
        if local is None:
            return
        raise StopRun(
            f"case {case.case_id}: nothing says where it comes from, so it isn't sent to {model}. Set data.provenance "
            f"(or --provenance, or `provenance` in the case) to one of {', '.join(sorted(OPEN))}, or use a local model."
        )
    provider = getattr(backend, "provider", "")
    why_not = unattested(case.provenance, attestations, provider, model.partition(":")[2], date.today())
    if why_not is None:
        return
    raise StopRun(
        f"case {case.case_id}: {case.provenance} data may not be sent to {model}, which isn't declared local"
        f"{reason(case.provenance)}; {why_not}. Use a local model; if this endpoint runs on your own machine, set "
        "models.<name>.local: true."
    )


@contextmanager
def private_files(provenances: Iterable[str | None]) -> Iterator[None]:
    """What is written meanwhile is the owner's alone (files 0600, folders 0700) if any of the data isn't open.

    Data of an unknown provenance counts as open here: a file of a user's own, whose modes are the user's affair.
    """
    if all(provenance is None or provenance in OPEN for provenance in provenances):
        yield
        return
    before = os.umask(_OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def close_folders(*folders: Path) -> None:
    """Take from others the rights to folders that are there already, from a run with other data or another umask."""
    for folder in folders:
        if folder.is_dir():
            # A folder of somebody else stays as it is; the files in it are written as the owner's alone.
            with suppress(PermissionError):
                folder.chmod(folder.stat().st_mode & 0o7777 & ~_OTHERS)


def attributions(provenances: Iterable[str]) -> list[str]:
    """The lines that must stand wherever results from such data are shown (`resources/notices.yaml`)."""
    known = _notices()["provenances"]
    found = (known.get(provenance, {}).get("attribution") for provenance in sorted(set(provenances)))
    return [line for line in found if line]


def notice(provenances: Iterable[str]) -> str:
    """The text of NOTICE.txt: what holds for whatever is made from cases of these provenances."""
    content = _notices()
    paragraphs = [content["simulation"]]
    for provenance in sorted(set(provenances)):
        entry = content["provenances"].get(provenance, {})
        paragraphs += [entry[key] for key in ("attribution", "notice") if key in entry]
    return "\n\n".join(fill(paragraph, 100) for paragraph in paragraphs) + "\n"


def _notices() -> dict[str, Any]:
    from triagesim.resources import load_yaml

    content: dict[str, Any] = load_yaml("notices.yaml")
    return content


#: Bytes of a salt; it is written as twice as many hex digits.
_SALT_BYTES = 32


def load_salt(path: Path) -> bytes:
    """The run's secret for `pseudonym`, made at first use: it lies beside the journal, never in results.

    Who has it can tell whether an id that they know is in an export, so its file is the owner's alone (0600).

    Raises:
        InputError: the file holds no salt.
    """
    if not path.exists():
        with beside(path) as temporary:
            temporary.write_text(secrets.token_hex(_SALT_BYTES) + "\n", encoding="ascii")
            # Of two jobs that make one at the same time the first wins, and both read that.
            with suppress(FileExistsError):
                os.link(temporary, path)
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
