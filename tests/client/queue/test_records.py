"""Items of a put as bytes."""

from __future__ import annotations

import pytest

from rpcmq.client.queue.protocol import Record
from rpcmq.client.queue.records import pack_records, unpack_records

_RECORDS = [
    Record(b"", 1, b"", 0, 0.0, 0.0, b"", "charge", 1, b"body", 0.0),
    Record(b"i" * 255, (1 << 63) - 1, b"d" * 16, 9, 0.5, 86400.0, b"k" * 255, "größe", 3, b"x" * 100_000, 3600.0),
    Record(b"", 2, b"", 0, 0.0, 0.0, b"", "charge", 0, b"", 0.0),
]


def test_items_are_the_same_on_the_other_side() -> None:
    assert unpack_records(pack_records(_RECORDS)) == _RECORDS
    assert unpack_records(b"") == []


@pytest.mark.parametrize("short", [1, 7, 40, 99_000, 100_100])
def test_items_that_end_too_early_are_refused(short: int) -> None:
    raw = pack_records(_RECORDS[:2])
    with pytest.raises(ValueError, match="in the middle of one"):
        unpack_records(raw[:-short])


def test_a_method_that_is_no_text_is_refused() -> None:
    raw = pack_records(_RECORDS[:1]).replace(b"charge", b"\xff" * 6)
    with pytest.raises(ValueError, match="decode"):
        unpack_records(raw)
