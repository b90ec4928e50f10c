"""What another Python writes in another way: packed data is the same whichever one packs it."""

from __future__ import annotations

import gzip

from triagesim.jsonl import gzipped


def test_packed_data_names_no_time_no_file_and_no_system() -> None:
    # RFC 1952, section 2.3: method 8, no flags, no time, no extra flags, an unknown system.
    assert gzipped(b"abc").hex() == "1f8b08000000000000ff4b4c4a0600c241243503000000"
    assert gzip.decompress(gzipped(b"abc" * 1000)) == b"abc" * 1000
