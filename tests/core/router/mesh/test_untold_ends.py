"""Messages that a consumer at their senders' own router has ended, unknown to the senders: nobody starts them again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rpcmq.core.router.mesh import untold_ends
from rpcmq.core.router.mesh.untold_ends import UntoldEnds
from rpcmq.errors import Outcome
from rpcmq.testing.mesh_network import Call, MeshNetwork, Process
from rpcmq.wire import Kind
from tests.core.router.mesh.ended_messages import (
    KINDS,
    RUNS,
    assert_asked_for,
    assert_nobody_starts_it,
    consumer,
    end,
    goes_on,
    linked_routers,
    promise,
    send,
    send_again,
)


@pytest.fixture
def net() -> MeshNetwork:
    return linked_routers()


def sender(net: MeshNetwork, name: str = "api") -> Process:
    return net.process(name, router="a", keeps=True)


def stalls(process: Process) -> None:
    """Nothing comes through to it, and it is not noticed."""
    process.cut_off()


LOSSES = pytest.mark.parametrize("loses", [Process.lose, stalls])


@KINDS
@LOSSES
@pytest.mark.parametrize("group", ["", "audit"])
def test_the_sender_goes_on_elsewhere(
    net: MeshNetwork, kind: Kind, loses: Callable[[Process], None], group: str
) -> None:
    node, other = consumer(net, "node", "a", group), consumer(net, "other", "c", group)
    api = sender(net)
    call = send(api, kind)
    message = node.take(kind)
    loses(api)
    end(node, message)
    net.advance(0.5)
    node.die()
    net.advance(3.0)
    goes_on(api, call, kind, "b")
    assert_nobody_starts_it(net, call, kind, "b", other)


@KINDS
def test_a_cast_is_asked_for_before_its_sender_is_to_be_told(net: MeshNetwork, kind: Kind) -> None:
    node, api, other = consumer(net, "node", "a"), sender(net), consumer(net, "other", "c")
    call = send(api, kind)
    message = node.take(kind)
    api.lose()
    end(node, message)
    node.die()
    goes_on(api, call, kind, "b")
    assert_nobody_starts_it(net, call, kind, "b", other)


@KINDS
@pytest.mark.parametrize("router", ["a", "b"])
def test_it_goes_on_when_its_link_has_ended(net: MeshNetwork, kind: Kind, router: str) -> None:
    """It comes back as a new link where it was, or goes elsewhere."""
    node, api, other = consumer(net, "node", "a"), sender(net), consumer(net, "other", "c")
    call = send(api, kind)
    message = node.take(kind)
    api.lose()
    end(node, message)
    net.advance(0.5)
    node.die()
    net.advance(40.0)  # longer than `link.resume_seconds`
    goes_on(api, call, kind, router)
    assert_nobody_starts_it(net, call, kind, router, other)


@KINDS
def test_a_consumer_that_has_gone_on_elsewhere_is_asked(net: MeshNetwork, kind: Kind) -> None:
    node, api = consumer(net, "node", "a"), sender(net)
    call = send(api, kind)
    message = node.take(kind)
    api.lose()
    end(node, message)
    net.advance(0.5)
    node.move("c")
    node.register("jobs", credit=3, tag=0)
    net.advance(1.0)
    goes_on(api, call, kind, "b")
    assert_asked_for(net, node, message)
    if kind is Kind.REQUEST:
        assert call.end.payload == b"done"
    else:
        assert net.router_of("b").dispatch.requests.drops.totals == {}


def test_of_several_consumers_the_one_that_has_ended_it_is_named(net: MeshNetwork) -> None:
    """What each had ended when it was killed is not taken for what the next one has ended."""
    api, calls = sender(net), dict[str, Call]()
    api.cut_off(to_router=False)
    for name in ("one", "two", "three"):
        node = consumer(net, name, "a")
        calls[name] = send(api, Kind.REQUEST)
        end(node, node.take(Kind.REQUEST))
        node.die()
        net.advance(1.0)
    other = consumer(net, "other", "c")
    api.move("b")
    for call in calls.values():
        send_again(api, call, Kind.REQUEST)
    for _ in range(12):
        net.advance(1.0)
        promise(other)
    assert other.got(*RUNS) == []
    for name, call in calls.items():
        assert call.end.outcome is Outcome.LINK_LOST
        assert call.end.body["text"].startswith(f"{name} did not say within")


def test_what_a_consumer_elsewhere_has_ended_is_not_started_though_its_router_is_killed_too(net: MeshNetwork) -> None:
    node, api = consumer(net, "node", "c"), sender(net)
    call = send(api, Kind.REQUEST)
    message = node.take(Kind.REQUEST)
    api.lose()
    end(node, message)
    net.advance(0.5)
    other = consumer(net, "other", "b")
    node.die()
    net.hosts["c"].kill()
    net.advance(1.0)
    goes_on(api, call, Kind.REQUEST, "b")
    for _ in range(12):
        net.advance(1.0)
        promise(other)
    assert other.got(*RUNS) == []
    assert call.end.outcome is Outcome.LINK_LOST and "by way of router c" in call.end.body["text"]


def test_what_is_noted_is_bounded_and_forgotten(net: MeshNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untold_ends, "_MOST_OF_ONE", 3)
    monkeypatch.setattr(untold_ends, "_MOST", 5)
    node, calls = consumer(net, "node", "a"), dict[str, list[Call]]()
    for name in ("first", "second"):
        api = sender(net, name)
        api.cut_off(to_router=False)
        calls[name] = []
        for _ in range(4):
            calls[name].append(send(api, Kind.REQUEST))
            end(node, node.take(Kind.REQUEST))
        api.die()
        net.advance(40.0)
    ends = next(part for part in net.router_of("a").mesh.parts if isinstance(part, UntoldEnds))
    known = {name: [ends.untold_before(call.key) is not None for call in calls[name]] for name in calls}
    assert known == {"first": [False] * 4, "second": [False, True, True, True]}
    net.advance(600.0)
    assert ends.untold_before(calls["second"][-1].key) is None


def test_a_sender_that_leaves_in_order_is_not_noted(net: MeshNetwork) -> None:
    node, api = consumer(net, "node", "a"), sender(net)
    api.cut_off(to_router=False)
    call = send(api, Kind.REQUEST)
    end(node, node.take(Kind.REQUEST))
    api.stop()
    net.advance(1.0)
    ends = next(part for part in net.router_of("a").mesh.parts if isinstance(part, UntoldEnds))
    assert ends.untold_before(call.key) is None
