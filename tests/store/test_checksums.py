"""The checksums of rows."""

from __future__ import annotations

import pytest

from rpcmq.store.sqlite_file import is_whole, item_checksum, row_checksum


@pytest.mark.parametrize(("id", "body", "digest"), [(b"", b"body", b""), (b"i", b"", b"d"), (b"", b"", b"d")])
def test_the_checksum_of_an_item_is_that_of_its_row(id: bytes, body: bytes, digest: bytes) -> None:
    numbers = 1, 1_700_000_000_000, 0, (1 << 63) - 1, 5
    assert item_checksum(*numbers, id, body, digest) == row_checksum(numbers, id, body, digest)
    assert is_whole(item_checksum(*numbers, id, body, digest), numbers, id, body, digest)
