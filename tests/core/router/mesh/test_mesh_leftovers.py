"""Processes and topics that come and go at several routers leave nothing at any of them."""

from __future__ import annotations

import pytest

from rpcmq.core.router.mesh.hosting import Hosting
from rpcmq.core.router.settings import Settings
from rpcmq.testing.invariants import check_router, left_behind
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Kind

#: The numbers of identities are used again: as many as there were at a time.
NUMBERS = "router.directory.watcher._interest.own._identities."
#: The latest messages that have ended are remembered, as many as a bound.
ENDED = "router.mesh.endedruns."


def sizes(net: MeshNetwork) -> dict[str, dict[str, int]]:
    """Path -> size of each table that is not empty, by router."""
    found = {}
    for name, host in net.hosts.items():
        left = left_behind(host.router).items()
        found[name] = {path: len(table) for path, table in left if not path.startswith((NUMBERS, ENDED))}
    return found


def test_what_comes_and_goes_leaves_nothing_at_any_router() -> None:
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    net.advance(2.0)
    before = sizes(net)
    for number in range(24):
        names = "abc"[number % 3 :] + "abc"[: number % 3]
        api, node, audit = (net.process(f"{name}-{number}", router=name) for name in names)
        node.register(f"topic-{number}", server=f"s{number}")
        audit.register(f"topic-{number}", group="audit")
        audit.subscribe(f"event-{number}.#")
        net.advance(0.05)
        call = api.request(f"topic-{number}")
        node.reply(node.take(Kind.REQUEST))
        assert call.end.kind is Kind.REPLY and len(audit.got(Kind.CAST)) == 1
        api.cast(f"topic-{number}", ttl=5)
        api.publish(f"event-{number}.begins")
        for process in (api, node, audit):
            process.stop() if number % 2 else process.die()
    for _ in range(20):
        net.advance(net.router_of("a").settings.mailbox_max_seconds / 10)
    assert sizes(net) == before
    for host in net.hosts.values():
        check_router(host.router)


def test_room_that_was_kept_and_what_was_refused_leave_nothing() -> None:
    """Else what comes from other routers is taken the long way for ever."""
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    net.advance(2.0)
    before = sizes(net)
    node, apis = net.process("node", router="b"), [net.process(f"api-{each}", router=each) for each in "ac"]
    node.register("jobs", credit=1)
    net.advance(1.0)
    calls = [api.request("jobs", ttl=2) for _ in range(4) for api in apis]
    hosting = next(part for part in net.router_of("b").mesh.parts if isinstance(part, Hosting))
    was_kept = False
    for _ in range(30):
        was_kept = was_kept or bool(hosting._rooms.kept)
        for request in node.got(Kind.REQUEST):
            node.reply(request)
        net.advance(0.1)
    assert was_kept and all(call.ends for call in calls)
    assert not hosting._rooms.kept and not hosting._refusing
    for process in (node, *apis):
        process.stop()
    for _ in range(20):
        net.advance(net.router_of("a").settings.mailbox_max_seconds / 10)
    assert sizes(net) == before


@pytest.mark.parametrize("ends", [False, True])
def test_obstacles_are_forgotten_once_there_is_a_link(ends: bool) -> None:
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    net.advance(2.0)
    handshake = net.router_of("a").mesh.handshake
    handshake.problems.note(net.now, "relay:2", "unreachable", "there is no way to that router any more")
    handshake.problems.note(net.now, "inproc://b", "unreachable", "inproc://b: no connection within 5 s")
    assert len(handshake.problems.rows(net.now)) == 2
    if ends:
        net.hosts["b"].restart()
    else:
        net.reset("a", "b")
    net.advance(5.0)
    assert handshake.problems.rows(net.now) == []
