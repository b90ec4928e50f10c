"""What may go where, what is secret, and what names nobody."""

from __future__ import annotations

import hashlib
import hmac
import threading
from pathlib import Path

import pytest

from triagesim.cases import CASE_ID
from triagesim.errors import InputError
from triagesim.governance import load_salt, pseudonym


def test_a_pseudonym_is_a_keyed_hash_that_is_a_case_id() -> None:
    salt = bytes(range(32))
    made = pseudonym("30115042", salt)
    assert made == hmac.new(salt, b"30115042", hashlib.sha256).hexdigest()[:16]
    assert CASE_ID.fullmatch(made)
    assert made != pseudonym("30115043", salt)
    assert made != pseudonym("30115042", bytes(32))


def test_a_salt_is_made_once_and_is_the_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal" / "export.salt"
    salt = load_salt(path)
    assert len(salt) == 32
    assert load_salt(path) == salt
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert load_salt(tmp_path / "other" / "export.salt") != salt


def test_jobs_that_ask_for_a_salt_at_the_same_time_get_the_same(tmp_path: Path) -> None:
    salts: list[bytes] = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        salts.append(load_salt(tmp_path / "export.salt"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(salts) == 8
    assert len(set(salts)) == 1


@pytest.mark.parametrize("content", ["", "abc", "00" * 31, "not hex"])
def test_a_file_without_a_salt_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "export.salt").write_text(content)
    with pytest.raises(InputError, match="64 hex digits"):
        load_salt(tmp_path / "export.salt")
