"""Processes of the tests of the router's engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.core.router.views import overview
from rpcmq.testing.network import Network, Process
from tests.core.router.keyed import NODE, ROOT, WEB
from tests.core.router.logged import LONG, Memory, check_live
from tests.several_routers import new_network, routers_of


@pytest.fixture
def api(net: Network) -> Process:
    """A process that calls and casts."""
    return net.process("api")


@pytest.fixture
def node(net: Network) -> Process:
    """A process that has not registered anything yet."""
    return net.process("node")


@pytest.fixture
def guarded(net: Network) -> Network:
    """A router that lets in these keys only."""
    net.router.set_authorized_keys(net.now, [NODE, WEB, ROOT])
    return net


@pytest.fixture
def sink() -> Memory:
    return Memory()


@pytest.fixture
def make_logged(sink: Memory) -> Iterator[Callable[..., Network]]:
    """Makes networks whose router logs to ``sink``.

    At their end no number may be without its record, and the live view must say what the records say.
    """
    made: list[Network] = []

    def make(**values: Any) -> Network:
        made.append(new_network(Settings(**{"recovery_seconds": 0.0} | values), sink))
        return made[-1]

    yield make
    for network in made:
        if len(routers_of(network)) > 1:
            continue
        network.router.dispatch.check()
        assert [note.text for note in network.notes if note.event == "internal error"] == []
        view = overview(network.router, network.now, "methods")["methods"]
        unsettled = {pending.number for pending in network.router.dispatch.unsettled()}
        network.router.close(network.now)
        if not sink.refused:
            if network.settings.unclaimed_seconds >= LONG:
                check_live(view, [r for r in sink.entries() if r.outcome is not None and r.seq not in unsettled])
            numbers = sorted(r.seq for r in sink.entries() if r.outcome is not None)
            assert numbers == list(range(1, network.router.dispatch.requests.last_number + 1))
