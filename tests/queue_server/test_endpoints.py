"""Items that a peer offers, and that are none."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.client.queue.protocol import PutAnswer, Record
from rpcmq.client.queue.records import pack_records
from rpcmq.queue_server.endpoints import OneQueue

GOOD = Record(b"i", 0, b"", 0, 0.0, 0.0, b"", "charge", 1, b"{}")
NOBODY: Any = None


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": b"\xff"},
        {"id": b""},
        {"priority": 10},
        {"method": ""},
        {"delay": float("inf")},
    ],
)
def test_an_item_that_is_malformed_is_refused_with_all_others(wrong: dict[str, Any]) -> None:
    queue = OneQueue("billing", NOBODY, lambda now: 0, NOBODY)
    answer = queue.put(None, 7, pack_records([GOOD, GOOD._replace(**wrong)]))
    assert isinstance(answer, tuple)
    assert PutAnswer(*answer).refusal.startswith("an item is malformed: ") and answer[1:] == ([], [])
