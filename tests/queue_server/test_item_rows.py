"""Items as operators are told of them."""

from __future__ import annotations

import pytest

from rpcmq.client.queue.messages import Message
from rpcmq.core.queue.story import Ending, Story
from rpcmq.core.queue.views import ItemView, view_of
from rpcmq.queue_server.item_rows import item_row
from rpcmq.store.contract import Damaged, Lane, Position


@pytest.mark.parametrize(
    ("known", "shown"),
    [({"id": b"invoice-17"}, "invoice-17"), ({"maker": (255, 3)}, "ff-3"), ({}, "")],
)
def test_the_id_is_the_user_s_or_the_producer_s_or_unknown(known: dict[str, object], shown: str) -> None:
    view = ItemView("billing", 0, 17, "dead", damage="it is damaged", **known)  # type: ignore[arg-type]
    assert item_row(view, 1000)["id"] == shown


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [("rejected", "rejected: no such account"), ("failed", "failed: at line 2")],
)
def test_the_reason_of_who_rejects_is_its_first_line_and_of_a_failure_the_last(outcome: str, reason: str) -> None:
    story = Story().with_ending(Ending(1, "worker-1", outcome, "\nno such account\nat line 2\n"))
    message = Message(b"charge", 1, b"{}").to_bytes()
    assert item_row(ItemView("billing", 0, 17, "dead", message=message, story=story), 1000)["reason"] == reason


def test_of_a_damaged_item_its_place_and_the_damage_are_told() -> None:
    row = item_row(view_of("dead", Damaged(Position(due=900), Lane("billing", 5), 17)), 1900)
    assert (row["item"], row["id"], row["age"], row["dead_for"]) == ("5/17", "", None, 1.0)
    assert row["reason"] == "damaged: its row in the store is not as it was written" and "method" not in row
