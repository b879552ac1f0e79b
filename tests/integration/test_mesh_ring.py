"""Four routers in a ring: two of them are linked over the others only, one of which is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import gevent
import pytest

from rpcmq.client import Client, Service
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess
from tests.integration.cluster import message

pytestmark = pytest.mark.integration


class Counting:
    """Counts the times that each call was started."""

    def __init__(self) -> None:
        self.started: list[int] = []

    def work(self, context: object, number: int) -> int:
        self.started.append(number)
        return number


@pytest.fixture
def ring() -> Iterator[dict[str, RouterProcess]]:
    """Routers a, b, c and d, each with the one before as its peer, and a as d's, too."""
    routers: dict[str, RouterProcess] = {}
    with ExitStack() as stack:
        for name, peers in (("a", ""), ("b", "a"), ("c", "b"), ("d", "ca")):
            urls = ",".join(routers[peer].url for peer in peers)
            made = RouterProcess(router_name=name, mesh_peers=urls, mesh_dial="peers", mesh_silence_seconds=1.0)
            routers[name] = stack.enter_context(made)
        yield routers


def rows(router: RouterProcess) -> dict[str, tuple[str, list[str]]]:
    """State of each other router, and the routers between."""
    return {row["name"]: (row["state"], row["via"]) for row in router.view("mesh")["routers"]}


def test_calls_go_around_a_router_that_is_killed(ring: dict[str, RouterProcess]) -> None:
    eventually(lambda: rows(ring["a"]).get("c", ("",))[0] == rows(ring["c"]).get("a", ("",))[0] == "answering")
    (between,) = rows(ring["a"])["c"][1]
    counting = Counting()
    with Client([ring["a"].url]) as client, Service("ring", counting, router=[ring["c"].url]):
        eventually(lambda: client.call(None, "ring", message("work", number=-1), timeout=30) == -1)
        counting.started.clear()
        calls = [
            gevent.spawn(client.call, None, "ring", message("work", number=number), timeout=60) for number in range(300)
        ]
        ring[between].kill()
        calls += [
            gevent.spawn(client.call, None, "ring", message("work", number=number), timeout=60)
            for number in range(300, 600)
        ]
        assert [call.get(timeout=60) for call in calls] == list(range(600))
        assert sorted(counting.started) == list(range(600))
        assert rows(ring["a"])["c"] == ("answering", [other for other in "bd" if other != between])
