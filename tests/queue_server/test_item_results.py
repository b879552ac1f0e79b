"""Results of items: kept where that is asked for, and waited for from anywhere; over gevent, threads and asyncio."""

from __future__ import annotations

import gevent
import pytest

import rpcmq
from rpcmq.errors import CallTimeout, ItemDead, NoResult
from rpcmq.testing import eventually
from tests.from_threads import each_shell_at_length as client_shell  # noqa: F401
from tests.queue_server.billing import Billing, message


def test_the_result_of_an_item_is_waited_for(client, queue_server, work):
    receipt = client.put(None, "billing", message("charge", invoice=(1, b"\xff")), keep_result=60)
    waiting = gevent.spawn(receipt.result, 30.0)
    gevent.sleep(0.05)
    work(Billing())
    assert waiting.get(timeout=30) == (1, b"\xff")
    assert receipt.result() == (1, b"\xff")


def test_a_result_is_asked_for_in_another_process_after_a_restart(client, router, queue_server, work):
    work(Billing())
    receipt = client.put(None, "billing", message("charge", invoice=7), keep_result=3600)
    assert receipt.result(30) == 7
    queue_server.kill()
    queue_server.restart()
    with rpcmq.Client(router.url) as other:
        assert other.receipt(str(receipt)).result(60) == 7


def test_an_item_that_has_not_ended_in_time(client, queue_server):
    receipt = client.put(None, "billing", message("charge", invoice=1), keep_result=60)
    with pytest.raises(CallTimeout, match=r"of queue 'billing' at here has not ended within 0\.2 s: it is"):
        receipt.result(0.2)


def test_a_result_that_was_not_asked_for(client, queue_server, work):
    billing = Billing()
    work(billing)
    receipt = client.put(None, "billing", message("charge", invoice=1))
    eventually(lambda: receipt.state().name == "ended")
    with pytest.raises(NoResult, match="put it with keep_result=SECONDS"):
        receipt.result(20)


def test_a_dead_item_has_a_reason_and_no_result(client, queue_server, work):
    work(Billing())
    receipt = client.put(None, "billing", message("reject", invoice=1), keep_result=60)
    with pytest.raises(ItemDead, match="is dead: rejected: 1 was paid"):
        receipt.result(30)
    client.declare_queue("billing", attempts=1)
    receipt = client.put(None, "billing", message("fail", invoice=1), keep_result=60)
    with pytest.raises(ItemDead, match=r"(?s)is dead: failed: Traceback.*LookupError: no invoice 1"):
        receipt.result(30)


def test_a_cancelled_item_has_no_result(client, queue_server):
    receipt = client.put(None, "billing", message("charge", invoice=1), delay=3600, keep_result=60)
    assert receipt.cancel()
    with pytest.raises(NoResult):
        receipt.result(20)


def test_a_result_that_cannot_be_encoded_is_no_reason_to_do_the_work_again(client, queue_server, work):
    billing = Billing()
    work(billing)
    receipt = client.put(None, "billing", message("end", invoice=1, how="unpicklable"), keep_result=60)
    with pytest.raises(NoResult, match=r"is done: its result cannot be encoded: .*lock"):
        receipt.result(30)
    assert billing.attempts[1] == 1


def test_a_result_that_is_too_large_is_no_reason_to_do_the_work_again(client, queue_server, work):
    billing = Billing()
    work(billing)
    receipt = client.put(None, "billing", message("charge", invoice="x" * (2 << 20)), keep_result=60)
    with pytest.raises(NoResult, match=r"its result of 2\d{6} bytes is not kept: 1048576 are the most"):
        receipt.result(30)
    assert billing.attempts.total() == 1
    receipt = client.put(None, "billing", message("charge", invoice="x" * ((1 << 20) - 100)), keep_result=60)
    assert len(receipt.result(30)) == (1 << 20) - 100


def test_of_items_with_one_unique_text_one_waits(client, queue_server, work):
    first = client.put(None, "billing", message("wait", invoice=1), delay=0.3, unique="refresh")
    again = client.put(None, "billing", message("wait", invoice=2), unique="refresh")
    other = client.put(None, "billing", message("charge", invoice=3), unique="another")
    assert (first.is_new, again.is_new, other.is_new) == (True, False, True)
    billing = Billing()
    work(billing)
    assert billing.started.wait(20)
    assert client.put(None, "billing", message("charge", invoice=4), unique="refresh").is_new
    billing.go_on.set()
    eventually(lambda: sorted(billing.charged) == [1, 3, 4])
