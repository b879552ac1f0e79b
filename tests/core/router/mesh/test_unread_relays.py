"""The bound in bytes of what a router passes on to a neighbour that does not read it."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.core.common.session import Session
from rpcmq.core.router.mesh.relayed_connections import DROPPED
from rpcmq.core.router.mesh.unread_relays import UnreadRelays, bytes_of
from rpcmq.core.router.model import Link
from rpcmq.core.router.router import Router
from rpcmq.errors import ProtocolError
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import Kind, pack, sequence_of
from rpcmq.wire.bodies import MESH_TYPE
from tests.core.router.mesh.links import neighbour_of
from tests.core.router.mesh.topologies import line

MIB = 1 << 20
MOST = 2 * MIB
FULL = DROPPED + "more than mesh.max_transit_bytes"
BATCH_BYTES = bytes_of([pack(Kind.RELAY, bytes(20)), pack(Kind.REQUEST, bytes(MIB))])
assert BATCH_BYTES == 60 + 40 + MIB


def link(takes_pieces: bool = True) -> Link:
    dirty: list[Session] = []
    made = Link(dirty, "b", MESH_TYPE, 1, 1)
    made.route, made.cuts = b"one", takes_pieces
    return made


def unread_of(most: int) -> UnreadRelays:
    unread = UnreadRelays()
    unread.most = lambda: most
    return unread


# --- the counts ------------------------------------------------------------------------------


def test_there_is_room_until_the_bound_is_reached_and_when_the_neighbour_has_read() -> None:
    unread, hop = unread_of(MOST), link()
    for _ in range(2):
        assert unread.has_room(hop)
        unread.sent(hop, BATCH_BYTES)
    assert not unread.has_room(hop) and unread.of(hop) == 2 * BATCH_BYTES
    unread.told(hop, BATCH_BYTES)
    assert unread.has_room(hop) and unread.of(hop) == BATCH_BYTES


def test_a_batch_that_is_longer_than_the_bound_is_sent_when_nothing_else_waits() -> None:
    unread, hop = unread_of(1024), link()
    assert unread.has_room(hop)
    unread.sent(hop, BATCH_BYTES)
    assert not unread.has_room(hop)


def test_another_connection_begins_with_nothing() -> None:
    unread, hop = unread_of(MOST), link()
    for _ in range(2):
        unread.sent(hop, BATCH_BYTES)
    hop.route = b"two"
    assert unread.has_room(hop) and unread.of(hop) == 0
    unread.sent(hop, BATCH_BYTES)
    unread.told(hop, BATCH_BYTES)
    assert unread.of(hop) == 0


@pytest.mark.parametrize("read", [BATCH_BYTES + 1, BATCH_BYTES - 1, 1 << 63])
def test_a_count_that_cannot_be_is_refused(read: int) -> None:
    unread, hop = unread_of(MOST), link()
    unread.sent(hop, BATCH_BYTES)
    unread.told(hop, BATCH_BYTES)
    with pytest.raises(ProtocolError, match=f"READ tells of {read} bytes; expected {BATCH_BYTES} to {BATCH_BYTES}"):
        unread.told(hop, read)


def test_a_neighbour_that_does_not_tell_has_no_bound_and_is_told_nothing() -> None:
    unread, hop = unread_of(MOST), link(takes_pieces=False)
    for _ in range(9):
        unread.sent(hop, BATCH_BYTES)
        unread.received(hop, BATCH_BYTES)
    assert unread.has_room(hop) and not hop.last_messages


def test_it_is_told_now_and_then_what_was_read() -> None:
    unread, hop = unread_of(MOST), link()
    small = [pack(Kind.RELAY, bytes(20)), pack(Kind.REQUEST, bytes(10_000))]
    told = []
    for _ in range(60):
        unread.received(hop, bytes_of(small))
        told += [sequence_of(message) for message in hop.last_messages]
        hop.last_messages.clear()
    each = 60 + 40 + 10_000
    assert told == [26 * each, 52 * each]


# --- in a line -------------------------------------------------------------------------------


def callers_of_c(net: MeshNetwork) -> tuple[Process, Process]:
    """Return a caller at a, and a service at c."""
    api, node = net.process("api", router="a"), net.process("node", router="c")
    node.register("compute", credit=1000)
    net.advance(1.0)
    return api, node


def flood(api: Process, calls: int) -> None:
    for number in range(calls):
        api.request("compute", f"m{number}", bytes(300_000), ttl=60)


def dropped(net: MeshNetwork, name: str) -> dict[str, int]:
    counters = net.router_of(name).links.counters
    return {key: count for key, count in counters.items() if key.startswith(DROPPED)}


def test_a_relay_drops_beyond_the_bound_and_the_ends_send_it_again() -> None:
    net = line("abc")
    net.hosts["b"].settings.mesh_max_transit_bytes = MOST
    api, node = callers_of_c(net)
    unread = net.router_of("b").relayed.unread
    net.hosts["c"].pause()
    flood(api, 40)
    hop = neighbour_of(net, "b", "c")
    assert MOST <= unread.of(hop) < MOST + MIB
    assert list(dropped(net, "b")) == [FULL]
    net.advance(1.2)
    (note,) = [note for note in net.hosts["b"].notes if note.event == "not passed on"]
    assert note.identity == "c" and f"more than mesh.max_transit_bytes = {MOST}" in note.text
    net.hosts["c"].resume()
    net.advance(20.0)
    assert sorted(each.method for each in node.got(Kind.REQUEST)) == sorted(f"m{number}" for number in range(40))
    assert unread.of(hop) < 256 << 10
    assert not net.router_of("c").refused and not net.router_of("b").refused


def test_a_router_holds_back_its_own_beyond_the_bound() -> None:
    net = line("abc")
    net.hosts["a"].settings.mesh_max_transit_bytes = MOST
    api, node = callers_of_c(net)
    net.hosts["b"].pause()
    flood(api, 40)
    assert MOST <= net.router_of("a").relayed.unread.of(neighbour_of(net, "a", "b")) < MOST + 2 * MIB
    net.hosts["b"].resume()
    net.advance(5.0)
    assert [each.method for each in node.got(Kind.REQUEST)] == [f"m{number}" for number in range(40)]
    assert not dropped(net, "a") and not dropped(net, "b")


def test_neighbours_that_read_lose_nothing_however_much_it_is() -> None:
    net = line("abcd")
    for name in "bc":
        net.hosts[name].settings.mesh_max_transit_bytes = MOST
    api, node = net.process("api", router="a"), net.process("node", router="d")
    node.register("compute", credit=1000)
    net.advance(1.0)
    flood(api, 60)
    assert len(node.got(Kind.REQUEST)) == 60
    for name in "abcd":
        assert not dropped(net, name) and not net.router_of(name).refused


def test_routers_that_do_not_tell_pass_on_all_the_same() -> None:
    def older(*args: Any) -> Router:
        router = Router(*args)
        router.mesh.own.pieces = False
        return router

    net = line("abc", engine=older)
    net.hosts["b"].settings.mesh_max_transit_bytes = MOST
    api, node = callers_of_c(net)
    flood(api, 40)
    assert len(node.got(Kind.REQUEST)) == 40
    for name in "abc":
        assert not dropped(net, name) and not net.router_of(name).refused


def test_a_false_count_is_refused_by_name() -> None:
    net = line("ab")
    net.router_of("b").links.by_identity("a", MESH_TYPE).send_last(pack(Kind.READ, sequence=77))  # type: ignore[union-attr]
    net.advance(0.1)
    assert net.router_of("a").refused["read"] == 1
    assert neighbour_of(net, "a", "b").counters["refused read"] == 1


def test_the_counts_of_a_link_go_with_it() -> None:
    net = line("abc")
    api, node = callers_of_c(net)
    flood(api, 3)
    unread = net.router_of("b").relayed.unread
    assert len(node.got(Kind.REQUEST)) == 3
    assert set(unread._sent) | set(unread._received) == {neighbour_of(net, "b", name) for name in "ac"}
    net.hosts["a"].kill()
    net.hosts["c"].kill()
    net.advance(10.0)
    assert not unread._sent and not unread._received
