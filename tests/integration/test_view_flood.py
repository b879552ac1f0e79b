"""Processes that ask the router for views without pause: calls are answered, and deadlines kept, all the same."""

from __future__ import annotations

from time import monotonic

import gevent
import pytest

from rpcmq.client import Client
from rpcmq.errors import CallTimeout
from rpcmq.testing.processes import RouterProcess
from tests.integration.cluster import message, node, program


@pytest.mark.integration
def test_calls_end_when_they_should_beside_40_links_that_ask_for_views() -> None:
    with (
        RouterProcess(router_recovery_seconds=0) as router,
        Client(router.url) as client,
        node(router.url) as service,
        node(router.url, "silent") as silent,
        program("views", router.url, 40) as flood,
    ):
        flood.expect("asking", 60)
        for number in range(50):
            assert client.call(None, "compute.node-1", message("add", a=number, b=1), 20) == number + 1
        silent.pause()

        def time_out() -> float:
            began = monotonic()
            with pytest.raises(CallTimeout) as caught:
                client.call(None, "compute.silent", message("add", a=1, b=1), 2.0)
            # The router has said so, in time, and not the process that it did not.
            details = caught.value.details
            assert "state" in details or details.get("server", "").startswith("silent"), details
            return monotonic() - began

        waiting = [gevent.spawn(time_out) for _ in range(20)]
        assert min(each.get(timeout=60) for each in waiting) > 1.5
        silent.resume()
        assert service.exit_code is None and flood.exit_code is None
