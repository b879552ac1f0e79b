"""Casts that a server had and had not begun when its router died are begun once, there or at another server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import oslo_messaging
import pytest
from endpoints import Endpoint
from hoarding import HoardingServer
from processes import Router, eventually, routers_of_mesh

Make = Callable[..., Any]
COUNT = 6


@pytest.fixture
def routers(request: pytest.FixtureRequest) -> Iterator[list[Router]]:
    if request.param:
        with routers_of_mesh("ab") as made:
            yield made
    else:
        with Router() as made:
            yield [made]


@pytest.mark.parametrize("routers", [False, True], indirect=True, ids=["alone", "mesh"])
def test_what_was_not_begun_is_begun_once(routers: list[Router], transport: Make, client: Make) -> None:
    first, endpoint = routers[0], Endpoint()
    target = oslo_messaging.Target(topic="slow", server="node-1")
    server = oslo_messaging.get_rpc_server(transport(first.url), target, [endpoint], server_cls=HoardingServer)
    server.start(override_pool_size=1)
    caller = client("slow", over=transport(first.url.replace("127.0.0.1", "localhost")))
    for n in range(COUNT):
        caller.cast({}, "hold", n=n)
    eventually(lambda: len(endpoint.seen) == 1)
    first.kill()
    if len(routers) == 1:
        first.restart()
    caller.cast({}, "hold", n=COUNT)
    endpoint.go_on.set()
    eventually(lambda: len(endpoint.seen) > COUNT)
    assert sorted(endpoint.seen) == list(range(COUNT + 1))
    server.stop()
    server.wait()
