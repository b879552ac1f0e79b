"""What is said of an item that cannot be put: there is no queue server, or it is away."""

from __future__ import annotations

import signal

import pytest

from rpcmq.client.queue import asking
from rpcmq.errors import NoConsumer, PutRefused, PutUnknown
from rpcmq.testing import eventually
from tests.from_threads import each_shell_at_length as client_shell  # noqa: F401
from tests.queue_server.billing import Billing, message


def test_without_a_queue_server_it_is_said_what_to_do(client):
    with pytest.raises(PutRefused, match=r"nothing was put: no router of this mesh .*: rpcmq router --queue-dir DIR$"):
        client.put(None, "billing", message("charge", invoice=1), timeout=60)


def test_where_no_router_has_a_queue_server_a_receipt_says_so_at_once(client):
    receipt = client.receipt('["billing","here","A",0,1]')
    for ask in (receipt.state, receipt.cancel, receipt.result):
        with pytest.raises(NoConsumer, match=r"^router 'here' has no queue server, or is not there: rpcmq router --q"):
            ask(600)


def test_a_receipt_of_an_owner_that_is_not_there_waits_for_no_more_than_an_heir(client, queue_server, monkeypatch):
    monkeypatch.setattr(asking, "_HEIR", 0.1)
    receipt = client.receipt('["billing","nobody","A",0,1]')
    for ask in (receipt.state, receipt.cancel, receipt.result):
        with pytest.raises(NoConsumer, match=r"^router 'nobody' has no queue server, or is not there"):
            ask(600)


def test_a_put_waits_for_a_queue_server_that_is_started_again(client, queue_server, work):
    billing = Billing()
    work(billing)
    client.put(None, "billing", message("charge", invoice=1))
    eventually(lambda: billing.charged == [1])
    queue_server.signal(signal.SIGTERM)
    assert queue_server.wait() == 0
    with pytest.raises((PutRefused, PutUnknown)):
        client.put(None, "billing", message("charge", invoice=2), id="2", timeout=0.3)
    queue_server.restart()
    client.put(None, "billing", message("charge", invoice=2), id="2", timeout=60)
    eventually(lambda: billing.charged == [1, 2])


def test_a_put_whose_answer_does_not_come_is_unknown_and_may_be_put_again(client, queue_server, work):
    client.put(None, "billing", message("charge", invoice=1))
    queue_server.pause()
    with pytest.raises(PutUnknown, match=r"here has not said within 0.5 s whether it has the 1 item"):
        client.put(None, "billing", message("charge", invoice=2), id="2", timeout=0.5)
    queue_server.resume()
    client.put(None, "billing", message("charge", invoice=2), id="2", timeout=60)
    billing = Billing()
    work(billing)
    eventually(lambda: len(billing.charged) == 2)
    assert sorted(billing.charged) == [1, 2]
