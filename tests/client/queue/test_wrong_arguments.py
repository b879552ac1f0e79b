"""Arguments that no queue can take are refused where they are given."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq import RetryLater
from rpcmq.client.queue.protocol import check_queue
from rpcmq.client.queue.puts import PutOptions, record_of
from rpcmq.errors import UsageError
from rpcmq.payload import Codec


@pytest.mark.parametrize("name", ["my\nqueue", "my\x1b[31mqueue", "my\x9bqueue"])
def test_the_name_of_a_queue_has_no_control_characters(name: str) -> None:
    with pytest.raises(UsageError, match="has a control character"):
        check_queue(name)


@pytest.mark.parametrize("seconds", ["soon", -1, None])
def test_a_pause_that_is_no_time_is_refused(seconds: Any) -> None:
    with pytest.raises(UsageError, match="seconds must be a positive number"):
        RetryLater(seconds)


def test_arguments_without_names_are_refused_before_an_item_fails_with_them() -> None:
    record = record_of(Codec(), None, {"method": "charge", "args": {"invoice": 17}}, PutOptions())
    assert record.method == "charge"
    with pytest.raises(UsageError, match="args must be a mapping of names to values, and 17 is no name"):
        record_of(Codec(), None, {"method": "charge", "args": {"invoice": 17, 17: 17}}, PutOptions())
