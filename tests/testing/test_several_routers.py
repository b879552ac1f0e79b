"""The switch that has several routers in place of the one of a test."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.testing.network import Network
from tests import several_routers
from tests.several_routers import new_network, routers_of


@pytest.fixture
def spread() -> Network:
    """Three routers in place of one."""
    return new_network(Settings(recovery_seconds=0.0), routers=3)


def test_processes_are_spread_over_the_routers_in_their_order(spread: Network) -> None:
    processes = [spread.process(f"p{number}") for number in range(4)]
    assert [process.router for process in processes] == ["a", "b", "c", "a"]
    found = [
        [link.identity for link in router.links if link.queue_type == "roundrobin"] for router in routers_of(spread)
    ]
    assert found == [["p0", "p3"], ["p1"], ["p2"]]
    assert spread.link(processes[1]).identity == "p1"


def test_a_test_is_skipped_that_looks_into_its_one_router(spread: Network) -> None:
    asking: Any = spread
    assert asking.router.in_flight == 0 and not asking.router.refused and spread.notes == []
    with pytest.raises(pytest.skip.Exception, match=r"looks into its one router: router\.directory"):
        _ = spread.router.directory
    with pytest.raises(pytest.skip.Exception, match="looks into its one router: kill_router"):
        spread.kill_router()
    with pytest.raises(AttributeError):
        _ = asking.nonsense


def test_one_router_is_the_network_itself_and_nothing_is_skipped() -> None:
    net = new_network(Settings(), routers=1)
    assert type(net) is Network and routers_of(net) == [net.router]


def test_tests_that_are_left_out_exist(request: pytest.FixtureRequest) -> None:
    root = request.config.rootpath
    for name in several_routers.SKIPPED:
        path, _, test = name.partition("::")
        assert test.partition("[")[0] in (root / path).read_text(), f"there is no {name}"
