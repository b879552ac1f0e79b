"""The verbs of the module."""

from __future__ import annotations

import os

import pytest

from rpcmq import rpc
from rpcmq.client import Client
from rpcmq.errors import UsageError
from rpcmq.testing import eventually
from tests.client.endpoints import Compute, message


def test_every_verb(router, serve):
    compute = Compute()
    serve(compute)
    assert rpc.call({"user": "u"}, "compute", message("add", a=1, b=2), timeout=5) == 3
    assert rpc.call(None, "compute", message("add", a=1), 5, retry=2, mandatory=True) == 1
    rpc.cast(None, "compute", message("note", value=1), confirm=True)
    assert rpc.fanout_cast(None, "compute", message("note", value=2), confirm=True) == 1
    assert list(rpc.multicall(None, "compute", message("count", n=3), timeout=5)) == [0, 1, 2]
    # Handlers of threads begin in any order.
    eventually(lambda: sorted(compute.seen) == [0, 1, 1, 2, 2])
    events = []
    subscription = rpc.subscribe("#", lambda ctx, topic, payload: events.append(topic))
    rpc.publish(None, "a.b", 1, confirm=True)
    rpc.notify(None, "instance.create", {"id": 1}, priority="WARN", publisher_id="p")
    eventually(lambda: events == ["a.b", "notifications.warn.instance.create"])
    subscription.close()


def test_one_client_for_all(router, serve):
    serve(Compute())
    rpc.call(None, "compute", message("add", a=1))
    assert rpc.client() is rpc.client()
    assert router.url == os.environ["RPCMQ_ROUTER"]
    assert rpc.client().config.router == (router.url,)


def test_another_default_client_can_be_set(router, serve):
    serve(Compute())
    with Client(router.url, "chosen") as chosen:
        before = rpc.configure(chosen)
        assert rpc.client().identity == "chosen"
        assert rpc.call(None, "compute", message("add", a=1)) == 1
        assert rpc.configure(before) is chosen


def test_the_default_client_is_made_anew_when_it_has_been_closed(router, serve):
    serve(Compute())
    assert rpc.call(None, "compute", message("add", a=1)) == 1
    closed = rpc.client()
    closed.close()
    assert rpc.call(None, "compute", message("add", a=2)) == 2
    assert rpc.client() is not closed and closed.closed and not rpc.client().closed


def test_a_client_that_was_set_is_not_replaced_when_it_has_been_closed(router):
    before = rpc.configure(Client(router.url, "chosen"))
    try:
        rpc.client().close()
        with pytest.raises(UsageError, match="this client is closed"):
            rpc.call(None, "compute", message("add", a=1))
    finally:
        rpc.configure(before)


def test_wrong_options_are_refused(router):
    with pytest.raises(TypeError, match="nonsense"):
        rpc.call(None, "compute", message("add"), nonsense=1)  # type: ignore[call-arg]
