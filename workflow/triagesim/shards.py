"""Where a case belongs, by its id alone: its shard of the run, and its bucket of a journal."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

BUCKETS = 64


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
