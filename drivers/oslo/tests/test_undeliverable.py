"""``at_least_once`` where a router is stopped: what is told to be undeliverable is never run."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import oslo_messaging
import pytest
from oslo_messaging import MessagingTimeout
from processes import program, routers_of_mesh

Make = Callable[..., Any]


def test_what_a_router_that_is_stopped_may_still_give_to_a_server_is_not_undeliverable(
    client: Make, transport: Make, in_thread: Make
) -> None:
    """The sender goes on at the other router, which has just started, and whose first server comes too late."""
    patience = {"router_recovery_seconds": "1", "mesh_lost_seconds": "3"}
    with (
        routers_of_mesh("ab", **patience) as (first, second),
        program("server", "native", first.url, "jobs", "node-1", "4") as server,
    ):
        server.expect("listening")
        options = oslo_messaging.TransportOptions(at_least_once=True)
        over = transport(first.url)
        caster = client("jobs", over=over, target={"server": "node-1"}, transport_options=options)
        caster.cast({}, "hold", n=0)
        server.expect("began 0")
        server.signal(signal.SIGSTOP)
        second.kill()
        first.signal(signal.SIGSTOP)
        told = in_thread(caster.cast, {}, "hold", n=1)
        second.restart()
        with pytest.raises(MessagingTimeout, match="it may have run"):
            told.result(90)
        first.signal(signal.SIGCONT)
        server.signal(signal.SIGCONT)
        server.expect("began 1")
