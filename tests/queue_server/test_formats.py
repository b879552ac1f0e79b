"""Items in a format that a worker does not take, from whoever put them: nothing is lost, and the reason is told."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pytest

import rpcmq
from rpcmq.payload import Codec, Format
from rpcmq.testing import eventually
from tests.from_threads import each_shell_at_length as client_shell  # noqa: F401
from tests.queue_server.billing import Billing, message

pytestmark = pytest.mark.usefixtures("queue_server")


@pytest.fixture
def json_only(router) -> Any:
    """A client that takes JSON alone."""
    with rpcmq.Client(router.url, codec=Codec(prefer=Format.JSON, accepted=0)) as client:
        yield client


def test_a_worker_that_does_not_take_the_format_fails_the_item_and_another_one_does_it(router, rpcmq_client, json_only):
    rpcmq_client.declare_queue("billing", attempts=1000, backoff=0.01, backoff_factor=1.0)
    refusing, able = Billing(), Billing()
    with rpcmq.Worker("billing", refusing, client=json_only):
        receipt = rpcmq_client.put(None, "billing", message("charge", invoice=1))
        eventually(lambda: receipt.state().attempts > 1)
        assert "pickle" in receipt.state().text
        assert refusing.attempts == {}
        with rpcmq.Worker("billing", able, router=router.url):
            eventually(lambda: able.charged == [1])


def test_it_is_dead_with_the_reason_where_no_worker_takes_it(rpcmq_client, json_only):
    rpcmq_client.declare_queue("billing", attempts=2, backoff=0.01)
    with rpcmq.Worker("billing", Billing(), client=json_only):
        receipt = rpcmq_client.put(None, "billing", message("charge", invoice=1))
        eventually(lambda: receipt.state().name == "dead")
        assert "PayloadRefused" in receipt.state().text and "pickle" in receipt.state().text


def test_items_in_json_are_for_everybody(json_only, router):
    able = Billing()
    with rpcmq.Worker("billing", able, client=json_only):
        json_only.put({"user": "ann"}, "billing", message("charge", invoice=1))
        eventually(lambda: able.charged == [1])
    with rpcmq.Worker("billing", able, router=router.url):
        json_only.put(None, "billing", message("charge", invoice=2))
        eventually(lambda: able.charged == [1, 2])


def test_values_of_rich_types_come_as_they_were_put(client, work):
    billing = Billing()
    work(billing)
    value = (datetime.datetime(2026, 11, 23, 12, 0), decimal.Decimal("17.40"), b"\x00\xff")
    client.put(None, "billing", message("charge", invoice=value))
    eventually(lambda: billing.charged == [value])
