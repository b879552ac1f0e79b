"""Receipts: whoever has one asks for the state of an item, and cancels it; over gevent, threads and asyncio."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import rpcmq
from rpcmq.client.queue.places import ItemPlace
from rpcmq.client.queue.protocol import QUEUES, Crowded
from rpcmq.errors import CallError, NoConsumer, NoResult, UsageError
from rpcmq.testing import eventually
from tests.from_threads import each_shell_at_length as client_shell  # noqa: F401
from tests.queue_server.billing import Billing, message

QUEUED = ("ready", "running")


def test_a_receipt_tells_the_state_of_its_item(client, queue_server, work):
    billing = Billing()
    delayed = client.put(None, "billing", message("charge", invoice=0), delay=3600)
    assert delayed.state().name == "postponed"
    receipt = client.put(None, "billing", message("wait", invoice=1))
    assert receipt.state().name in QUEUED
    work(billing)
    assert billing.started.wait(20)
    assert receipt.state().name == "running"
    billing.go_on.set()
    eventually(lambda: receipt.state().name == "ended")


def test_the_state_of_a_dead_item_has_the_reason(client, queue_server, work):
    work(Billing())
    rejected = client.put(None, "billing", message("reject", invoice=1))
    client.declare_queue("billing", attempts=2, backoff=0.01)
    failed = client.put(None, "billing", message("fail", invoice=2))
    eventually(lambda: rejected.state().name == "dead" and failed.state().name == "dead")
    assert rejected.state().text == "1 was paid"
    assert failed.state().attempts == 2
    assert failed.state().text.endswith("LookupError: no invoice 2")
    assert "rpcmq/client/queue" not in failed.state().text


def test_an_item_that_no_worker_has_is_cancelled(client, queue_server, work):
    receipt = client.put(None, "billing", message("charge", invoice=1), delay=3600)
    assert receipt.cancel() is True
    assert receipt.cancel() is False
    assert receipt.state().name == "ended"
    billing = Billing()
    work(billing)
    running = client.put(None, "billing", message("wait", invoice=2))
    assert billing.started.wait(20)
    assert running.cancel() is False
    billing.go_on.set()
    eventually(lambda: billing.charged == [2])


def test_a_receipt_is_stored_as_text_and_asks_in_another_process(client, router, queue_server):
    receipt = client.put(None, "billing", message("charge", invoice=1), delay=3600, id='inv "1"\n')
    with rpcmq.Client(router.url) as other:
        again = other.receipt(str(receipt))
        assert (again.queue, again.owner, again.id, again.number) == ("billing", "here", 'inv "1"\n', receipt.number)
        assert again.state().name == "postponed"
        assert again.cancel() is True
    assert receipt.state().name == "ended"


def test_a_receipt_without_its_client_says_how_to_ask(router, queue_server):
    with rpcmq.Client(router.url) as client:
        receipt = client.put(None, "billing", message("charge", invoice=1), delay=3600)
        for taken in (pickle.loads(pickle.dumps(receipt)), copy.copy(receipt)):
            assert taken == receipt
            with pytest.raises(UsageError, match=r"ask by client\.receipt\(receipt\)"):
                taken.state()
            assert client.receipt(taken).state().name == "postponed"


def test_an_item_that_had_been_put_before_has_no_place_here(client, queue_server):
    client.put(None, "billing", message("charge", invoice=1), id="a")
    again = client.put(None, "billing", message("charge", invoice=1), id="a")
    with pytest.raises(UsageError, match="the receipt of the first put knows its place"):
        again.cancel()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", '["a","b","c",0]', '["a","b","c",10,1]', '["","b","c",0,1]', '["a","b","c",0,-1]', 7, None],
)
def test_what_is_no_receipt_is_refused(client, text: Any):
    with pytest.raises(UsageError, match=r"receipt|queue's name"):
        client.receipt(text)


def test_a_receipt_does_not_act_on_another_item_in_its_place(client, queue_server, work):
    mine = client.put(None, "billing", message("charge", invoice=1), delay=3600)
    named = client.put(None, "billing", message("charge", invoice=2), id="invoice-2", delay=3600, keep_result=60)
    for real in (mine, named):
        for id in ("WRONG", "1-1", (mine if real is named else named).id):
            other = client.receipt(ItemPlace(real.queue, real.owner, id, real.priority, real.number))
            assert other.cancel() is False
            assert other.state() == ("ended", 0, "")
            with pytest.raises(NoResult):
                other.result(20)
        assert real.state().name == "postponed"
        assert real.cancel() is True


def test_a_queue_that_its_owner_does_not_have_is_named_at_once(client, queue_server):
    receipt = client.receipt('["nosuch","here","A",0,1]')
    for ask in (receipt.state, receipt.cancel, receipt.result):
        with pytest.raises(NoConsumer, match=r"^here has no queue 'nosuch', and so no item 'A' of it"):
            ask(600)


def test_an_owner_that_does_not_answer_is_an_error(client, queue_server):
    receipt = client.put(None, "billing", message("charge", invoice=1), delay=3600)
    queue_server.kill()
    with pytest.raises(CallError):
        receipt.state(0.3)


def test_a_receipt_that_is_crowded_out_at_its_owner_asks_again(client, router):
    class Busy:
        asked = 0

        def state(self, ctx: Any, priority: int, number: int, id: str) -> tuple[str, int, str]:
            self.asked += 1
            if self.asked == 1:
                raise Crowded("too much waits")
            return "ready", 0, ""

    busy = Busy()
    with rpcmq.Service("billing", busy, host="here", exchange=QUEUES, router=router.url):
        assert client.receipt(ItemPlace("billing", "here", "i", 0, 1)).state().name == "ready"
    assert busy.asked == 2
