"""Greenlets put at the same time, by fewer calls than items, at a real queue server."""

from __future__ import annotations

from typing import Any

import gevent
import pytest

from rpcmq.client import Middleware
from rpcmq.errors import PutRefused
from rpcmq.testing import eventually
from tests.queue_server.billing import Billing, message

pytestmark = pytest.mark.usefixtures("queue_server")


class Calls(Middleware):
    """Counts the calls by which items are put."""

    def __init__(self) -> None:
        self.puts = 0

    def __call__(self, request: Any, send: Any) -> Any:
        """See :class:`Middleware`."""
        self.puts += request.message["method"] == "put"
        return send(request)


def test_what_greenlets_put_at_once_goes_in_fewer_calls_and_each_has_its_own_receipt(connect, work):
    calls = Calls()
    client = connect(middleware=[calls])
    client.put(None, "billing", message("charge", invoice="first"))
    putting = [
        gevent.spawn(client.put, None, "billing", message("charge", invoice=n), keep_result=60) for n in range(200)
    ]
    receipts = [each.get(timeout=60) for each in putting]
    assert 2 <= calls.puts < 100
    assert len({receipt.number for receipt in receipts}) == len({receipt.id for receipt in receipts}) == 200
    billing = Billing()
    work(billing)
    assert [receipt.result(timeout=60) for receipt in receipts] == list(range(200))
    assert len(billing.charged) == 201


def test_a_refusal_meets_only_the_item_that_is_the_reason(client, work):
    client.put(None, "billing", message("charge", invoice=1), id="a")
    items = {"a": 2, **{f"b{n}": n for n in range(20)}}
    putting = {
        id: gevent.spawn(client.put, None, "billing", message("charge", invoice=invoice), id=id)
        for id, invoice in items.items()
    }
    gevent.joinall(list(putting.values()), timeout=60)
    assert isinstance(putting.pop("a").exception, PutRefused)
    assert all(each.get().is_new for each in putting.values())


def test_of_a_queue_that_is_nearly_full_each_is_told_whether_its_item_has_found_room(client):
    client.declare_queue("billing", max_items=10)
    client.put(None, "billing", message("charge", invoice="first"))
    putting = [gevent.spawn(client.put, None, "billing", message("charge", invoice=n)) for n in range(30)]
    gevent.joinall(putting, timeout=60)
    assert sum(each.successful() for each in putting) == 9
    assert {type(each.exception) for each in putting if not each.successful()} == {PutRefused}


def test_one_that_is_killed_while_it_puts_takes_no_other_items_along(client, work):
    client.put(None, "billing", message("charge", invoice="first"))
    putting = [gevent.spawn(client.put, None, "billing", message("charge", invoice=n)) for n in range(40)]
    gevent.idle()
    for each in putting[::8]:
        each.kill()
    receipts = [each.get(timeout=60) for n, each in enumerate(putting) if n % 8]
    assert len(receipts) == 35
    billing = Billing()
    work(billing)
    eventually(lambda: {n for n in range(40) if n % 8} <= set(billing.charged))
    # Nothing is put twice; what was killed may have been put.
    client.put(None, "billing", message("charge", invoice="last"))
    eventually(lambda: "last" in billing.charged)
    assert len(billing.charged) == len(set(billing.charged))


def test_what_many_put_through_the_deaths_of_their_queue_server_is_there_once(client, work, queue_server):
    def put(worker: int) -> None:
        for n in range(25):
            client.put(None, "billing", message("charge", invoice=25 * worker + n), timeout=60)

    client.put(None, "billing", message("charge", invoice="first"))
    putting = [gevent.spawn(put, worker) for worker in range(40)]
    for _ in range(2):
        gevent.sleep(0.1)
        queue_server.kill()
        queue_server.restart()
    gevent.joinall(putting, timeout=60, raise_error=True)
    billing = Billing()
    work(billing)
    eventually(lambda: len(billing.charged) >= 1001, timeout=60)
    assert sorted(billing.charged, key=str) == sorted([*range(1000), "first"], key=str)
