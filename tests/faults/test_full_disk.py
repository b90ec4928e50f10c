"""A disk that is full while results are written. /dev/full stands for it: every write there fails as on a full disk."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import IO

import pytest

from triagesim.jsonl import write_atomically


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    def fill(_: IO[str]) -> None:
        with open("/dev/full", "w", encoding="utf-8") as full:
            full.write("x")

    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(tmp_path / "table.csv", fill)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "table.csv"))
    assert not list(tmp_path.iterdir())
