"""A message whose consumer has ended it and is gone, and whose sender has not heard so: nobody starts it again."""

from __future__ import annotations

import pytest

from rpcmq.core.router.mesh import ended_runs
from rpcmq.core.router.mesh.ended_runs import EndedRuns
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Kind
from rpcmq.wire.consumer_name import ConsumerName
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
)


@pytest.fixture
def net() -> MeshNetwork:
    return linked_routers()


@KINDS
@pytest.mark.parametrize("asker", ["b", "c"], ids=["its home is asked last", "the home of another one is"])
@pytest.mark.parametrize("group", ["", "audit"])
def test_its_router_is_killed_before_it_knows(net: MeshNetwork, kind: Kind, asker: str, group: str) -> None:
    node = consumer(net, "node", "b", group)
    api = net.process("api", router="a")
    call = send(api, kind)
    message = node.take(kind)
    other = consumer(net, "other", "c", group)
    net.hosts["a"].kill()
    end(node, message)
    node.die()
    net.advance(1.0)
    goes_on(api, call, kind, asker)
    assert_nobody_starts_it(net, call, kind, asker, other)


@KINDS
@pytest.mark.parametrize("asker", ["b", "c"])
def test_its_router_is_killed_when_it_knows(net: MeshNetwork, kind: Kind, asker: str) -> None:
    node, api = consumer(net, "node", "b"), net.process("api", router="a")
    call = send(api, kind)
    message = node.take(kind)
    other = consumer(net, "other", "c")
    api.lose()
    end(node, message)
    net.advance(1.0)
    assert not net.router_of("b").dispatch.requests.calls_in_flight, "its owner has the answer"
    node.die()
    net.advance(1.0)
    net.hosts["a"].kill()
    net.advance(20.0)  # its owner's link is gone
    goes_on(api, call, kind, asker)
    assert_nobody_starts_it(net, call, kind, asker, other)


@KINDS
def test_a_consumer_that_has_gone_on_elsewhere_is_asked(net: MeshNetwork, kind: Kind) -> None:
    node, api = consumer(net, "node", "b"), net.process("api", router="a")
    call = send(api, kind)
    message = node.take(kind)
    net.hosts["a"].kill()
    end(node, message)
    node.move("c")
    node.register("jobs", credit=3, tag=0)
    net.advance(1.0)
    goes_on(api, call, kind, "b")
    assert_asked_for(net, node, message)
    if kind is Kind.REQUEST:
        assert call.end.payload == b"done"


def test_what_it_has_not_had_goes_to_another_one(net: MeshNetwork) -> None:
    """Only what it has ended waits for its word, not all that was sent to its topic."""
    node, api = consumer(net, "node", "b"), net.process("api", router="a")
    call = send(api, Kind.REQUEST)
    end(node, node.take(Kind.REQUEST))
    assert call.end.payload == b"done"
    node.die()
    net.advance(1.0)
    waits = send(api, Kind.REQUEST)
    net.hosts["a"].kill()
    other = consumer(net, "other", "c")
    goes_on(api, waits, Kind.REQUEST, "b")
    net.advance(0.1)
    promise(other)
    end(other, other.take(Kind.REQUEST))
    assert waits.end.payload == b"done"


@KINDS
def test_the_sender_comes_to_the_next_life_of_its_router(net: MeshNetwork, kind: Kind) -> None:
    """No router is missing then, and the one that knows is the slowest to say so."""
    node, api = consumer(net, "node", "b"), net.process("api", router="a")
    call = send(api, kind)
    message = node.take(kind)
    other = consumer(net, "other", "c")
    net.hosts["a"].kill()
    end(node, message)
    node.die()
    net.hosts["a"].start()
    net.advance(5.0)
    net.delay("a", "b", 0.2)
    goes_on(api, call, kind, "a")
    net.advance(0.05)
    promise(other)
    assert_nobody_starts_it(net, call, kind, "a", other)


def test_a_router_that_does_not_answer_is_not_waited_for(net: MeshNetwork) -> None:
    api = net.process("api", router="a")
    call = send(api, Kind.REQUEST)
    other = consumer(net, "other", "c")
    other.got(*RUNS)
    net.hosts["b"].pause()
    goes_on(api, call, Kind.REQUEST, "c")
    net.advance(0.5)
    promise(other)
    assert other.got(*RUNS) == [], "it may know of one that had it"
    net.advance(2.0)
    end(other, other.take(Kind.REQUEST))
    assert call.end.payload == b"done"


def test_what_is_remembered_is_bounded_for_each_router_by_itself(
    net: MeshNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_runs, "_OF_ALL", 8)
    monkeypatch.setattr(ended_runs, "_LEAST_OF_ONE", 4)
    node = consumer(net, "node", "b")
    keys: dict[str, list[bytes]] = {}
    for router, count in (("a", 3), ("c", 40)):
        api = net.process(f"api at {router}", router=router)
        keys[router] = []
        for _ in range(count):
            keys[router].append(send(api, Kind.REQUEST).key)
            end(node, node.take(Kind.REQUEST))
    runs = runs_of(net, "b")
    assert all(runs.ended_by(key) == ConsumerName(net.link(node).origin, "node") for key in keys["a"])
    known = [key for key in keys["c"] if runs.ended_by(key) is not None]
    assert known == keys["c"][-len(known) :] and 4 <= len(known) <= 8


def test_what_a_router_that_is_gone_has_sent_is_forgotten_after_some_minutes(net: MeshNetwork) -> None:
    node = consumer(net, "node", "b")
    runs = runs_of(net, "b")
    keys: list[bytes] = []
    for _ in range(2):
        net.advance(700.0)
        api = net.process("api", router="a")
        keys.append(send(api, Kind.REQUEST).key)
        end(node, node.take(Kind.REQUEST))
        net.hosts["a"].restart()
        net.advance(20.0)
        assert runs.ended_by(keys[-1]) is not None
    assert runs.ended_by(keys[0]) is None


def runs_of(net: MeshNetwork, router: str) -> EndedRuns:
    return next(part for part in net.router_of(router).mesh.parts if isinstance(part, EndedRuns))
