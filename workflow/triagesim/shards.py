"""Where a case belongs, by its id alone: its shard of the run, and its bucket of a journal; and files of shards."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

BUCKETS = 64
_NAME = re.compile(r"(?:^|-)\d+-of-(\d+)$")


@lru_cache(maxsize=4096)
def bucket(case_id: str) -> str:
    """The bucket of a case's answers, `00` … `63`."""
    return f"{sha256(case_id.encode()).digest()[0] % BUCKETS:02d}"


def shard_of(case_id: str, shards: int) -> int:
    """The shard of a case, 1 … `shards`: another case added changes one shard.

    The buckets are dealt out to the shards in order, so that a shard's job reads its few of them and not what all the
    others asked.
    """
    place = int(bucket(case_id)) << 64 | int.from_bytes(sha256(case_id.encode()).digest()[8:16])
    return place * shards // (BUCKETS << 64) + 1


def of_run(files: Iterable[Path], shards: int | None) -> list[Path]:
    """Those files, by name, that no run with another number of shards left; all where the number isn't known."""
    return sorted(path for path in files if shards is None or shards_in(path) in (None, shards))


def shards_in(path: Path) -> int | None:
    """Of how many shards a file is one, as its name says."""
    found = _NAME.search(path.stem)
    return int(found[1]) if found else None
