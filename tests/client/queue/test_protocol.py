"""Messages between queue servers and workers of different releases."""

from __future__ import annotations

from typing import Any

from rpcmq.client.queue.protocol import WorkOrder

ORDER = WorkOrder("billing", "here", "17", 1, (2, 3), 0.5, 30.0, "charge", 1, b"{}", True, False, True, 7.5, 17.5)


def test_an_order_is_read_as_it_was_sent() -> None:
    sent = list(ORDER)
    sent[4] = list(ORDER.fence)  # as it travels
    assert WorkOrder.of(sent) == ORDER


def test_an_order_of_a_later_release_is_read_without_what_that_has_added() -> None:
    assert WorkOrder.of([*ORDER, "more", None]) == ORDER


def test_an_order_of_an_earlier_release_is_read_with_the_defaults_of_what_it_lacks() -> None:
    names = ("is_last", "unwanted_left", "sent")
    for lacks in (1, 2, 3):
        defaults: dict[str, Any] = dict(zip(names[-lacks:], (False, 0.0, 0.0)[-lacks:], strict=True))
        assert WorkOrder.of(ORDER[:-lacks]) == ORDER._replace(**defaults)
