"""A router that is stopped and not dead: its connections stand, and nothing comes."""

from __future__ import annotations

import logging
from typing import Any

import gevent
import pytest

from rpcmq.client import Client, Service
from rpcmq.errors import CallTimeout, Overloaded
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess
from tests.integration.cluster import BRISK, Proxy, message, node


def silent(client: Client) -> bool:
    return client.process.connection.reason.startswith("the router has been silent for ")


def test_a_silent_router_is_called_silent_until_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "rpcmq.client")
    with (
        RouterProcess(link_lost_seconds=60, **BRISK) as router,
        Client(router.url, cast_window=2, timeout=1.0) as client,
        node(router.url),
    ):
        assert client.call(None, "compute", message("add", a=1, b=2), 20) == 3
        router.pause()
        eventually(lambda: silent(client))
        with pytest.raises(CallTimeout, match=r"the router has been silent for \d+\.\d s"):
            client.call(None, "compute", message("add", a=1, b=2), 0.1)
        client.cast(None, "compute", message("run", key="cast"))
        client.cast(None, "compute", message("run", key="cast"))
        with pytest.raises(Overloaded, match=r"wait for the router .*; the router has been silent for \d+\.\d s"):
            client.cast(None, "compute", message("run", key="cast"))
        eventually(lambda: "has been silent for" in caplog.text)
        router.resume()
        assert client.call(None, "compute", message("add", a=1, b=2), 20) == 3
        assert not silent(client)
        eventually(lambda: "answers again" in caplog.text)
        # Nothing was lost by it, not even the connection.
        eventually(lambda: client.call(None, "compute", message("counts"), 20) == {"cast": 2})
        assert client.process.connection.reconnects == 0


def test_a_silent_router_is_given_up_and_a_call_with_retry_goes_to_the_one_that_answers() -> None:
    with (
        RouterProcess(link_lost_seconds=3, **BRISK) as first,
        RouterProcess(link_lost_seconds=3, router_id=2, **BRISK) as second,
        Proxy(first.url) as proxy,
        Client(proxy.url, connect_timeout=3.0, reconnect_max_seconds=0.2) as client,
        node(first.url, "one"),
        node(second.url, "two"),
    ):
        assert client.call(None, "compute", message("where")) == "one"
        first.pause()
        # As an address that moves to another host: only who connects anew finds it.
        proxy.target = second.url
        assert client.call(None, "compute", message("where"), 40, retry=3) == "two"
        assert client.process.connection.reconnects == 1
        first.resume()


def test_callers_and_services_come_back_to_a_router_that_was_held_after_its_restart() -> None:
    patience: dict[str, Any] = {"connect_timeout": 0.3, "reconnect_max_seconds": 0.05}

    class Compute:
        def add(self, ctx: object, a: int, b: int) -> int:
            return a + b

    with RouterProcess(link_lost_seconds=60, **BRISK) as router:
        clients = [Client(router.url, **patience) for _ in range(3)]
        service = Service("compute", Compute(), client=Client(router.url, **patience))
        service.start()
        for held_after in (0.0, 0.02, 0.05, 0.1):
            router.kill()
            router.restart()
            gevent.sleep(held_after)  # some are welcomed by then, some wait for it, and some have not connected
            router.pause()
            gevent.sleep(1.0)  # more than three attempts
            router.resume()
            for client in clients:
                assert client.call(None, "compute", message("add", a=1, b=2), 20, retry=5) == 3
        service.stop()
        service.client.close()
        for client in clients:
            client.close()
