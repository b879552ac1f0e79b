"""A mandatory cast that a router's earlier life had and that finds nobody: it is told that it may have run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rpcmq.errors import Outcome
from rpcmq.testing.network import Call, Network, Process
from rpcmq.wire import Flag, Kind

WINDOW = 1.0
SENT = Flag.MANDATORY | Flag.CONFIRM


@pytest.fixture
def net(make_net: Callable[..., Network]) -> Network:
    made = make_net(recovery_seconds=WINDOW)
    made.advance(2)
    return made


def cast_again(api: Process, cast: Call, flags: int = SENT) -> None:
    api._message(Kind.CAST, "compute", "", b"", key=cast.key, flags=flags | Flag.RESENT)


def outcomes(cast: Call) -> list[Outcome | None]:
    """How it ended, each time; None: it was confirmed."""
    return [m.outcome if m.kind is Kind.ERROR else None for m in cast.answers]


def begun_by_one_who_dies_with_the_router(net: Network, api: Process, flags: int = SENT) -> Call:
    node = net.process("node")
    node.register("compute")
    cast = api.cast("compute", flags=flags)
    assert node.got(Kind.CAST)
    node.stop()
    net.restart_router()
    api.connect()
    return cast


@pytest.mark.parametrize("flags", [SENT, SENT | Flag.FANOUT], ids=["cast", "fanout"])
def test_it_may_have_run(net: Network, flags: int) -> None:
    api = net.process("api")
    cast = begun_by_one_who_dies_with_the_router(net, api, flags)
    cast_again(api, cast, flags)
    net.advance(WINDOW + 0.2)
    assert outcomes(cast) == [None, Outcome.LINK_LOST]
    body = cast.answers[-1].body
    assert body["text"] == (
        "no consumer on 'compute' (never seen); "
        "a router that it was sent to before may have given it to one, so it may have run"
    )
    assert body["details"]["started"] == "unknown"


def test_a_new_one_has_not_run(net: Network) -> None:
    api = net.process("api")
    begun_by_one_who_dies_with_the_router(net, api)
    new = api.cast("compute", flags=SENT)
    net.advance(WINDOW + 0.2)
    assert outcomes(new) == [Outcome.NO_CONSUMER]


def test_a_sender_that_is_back_late_waits_for_consumers_that_are_late(net: Network) -> None:
    api = net.process("api")
    cast = begun_by_one_who_dies_with_the_router(net, api)
    net.advance(WINDOW + 1)
    cast_again(api, cast)
    net.advance(WINDOW - 0.2)
    assert outcomes(cast) == [None]
    node = net.process("late")
    node.register("compute")
    net.advance(0.2)
    assert outcomes(cast) == [None, None]
    assert len(node.got(Kind.CAST)) == 1


def test_what_its_sender_casts_meanwhile_stays_behind_it(net: Network) -> None:
    api, other = net.process("api"), net.process("other")
    other.register("other")
    cast = begun_by_one_who_dies_with_the_router(net, api)
    other.connect()
    other.register("other", tag=1)
    net.advance(WINDOW + 1)
    cast_again(api, cast)
    api.cast("other")
    net.advance(WINDOW - 0.2)
    assert other.got(Kind.CAST) == []
    net.advance(0.4)
    assert len(other.got(Kind.CAST)) == 1
    assert outcomes(cast)[-1] is Outcome.LINK_LOST


def test_calls_that_have_ended_meanwhile_are_forgotten(net: Network) -> None:
    api = net.process("api")
    net.advance(WINDOW + 1)
    calls = [
        api._message(Kind.REQUEST, "compute", "", b"", flags=Flag.MANDATORY | Flag.RESENT | Flag.IDEMPOTENT, ttl=0.1)
        for _ in range(3)
    ]
    net.advance(0.3)
    assert [call.end.outcome for call in calls] == [Outcome.TIMEOUT] * 3
    assert net.router.dispatch.recovery.next_deadline() is None
