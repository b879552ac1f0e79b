"""Large payloads between routers, which cross in pieces."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from rpcmq.core.router.router import Router
from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import KIND_AT, Kind, pack, payload_of, size_of
from rpcmq.wire.pieces import PIECE_BYTES
from tests.core.router.mesh.links import link_all, link_routers, neighbour_of
from tests.core.router.mesh.topologies import line

#: Longer than four pieces, and of no round number of bytes.
PAYLOAD = bytes(range(251)) * (4 * PIECE_BYTES // 251 + 100)
KEY = bytes(19) + b"\1"


def piece(offset: int, size: int, total: int, key: bytes = KEY, kind: Kind = Kind.REQUEST) -> bytes:
    """Return a PIECE, right or wrong."""
    return pack(Kind.PIECE, bytes(size), key=key, format=kind, address=offset.to_bytes(4) + total.to_bytes(4))


class Watched:
    """The batches that cross a network."""

    def __init__(self, net: MeshNetwork) -> None:
        self.batches: list[list[bytes]] = []
        put = net.put

        def watched(connection: Any, way: Any, messages: list[bytes]) -> None:
            self.batches.append(list(messages))
            put(connection, way, messages)

        net.put = watched  # type: ignore[method-assign]

    def with_a_piece(self) -> list[list[bytes]]:
        return [batch for batch in self.batches if any(message[KIND_AT] == Kind.PIECE for message in batch)]


def two(**settings: Any) -> MeshNetwork:
    return link_all(MeshNetwork(("a", "b"), Settings(recovery_seconds=0.0, **settings)))


def service_at(net: MeshNetwork, router: str) -> tuple[Process, Process]:
    """Return a caller at router a and a service at another one, which know of each other."""
    api, node = net.process("api", router="a"), net.process("node", router=router)
    node.register("compute", credit=100)
    net.advance(1.0)
    return api, node


def unfaulted(net: MeshNetwork) -> None:
    for host in net.hosts.values():
        assert not host.router.refused, (host.name, host.router.refused)
        assert not [note.text for note in host.notes if note.event == "internal error"]


@pytest.mark.parametrize("make", [two, lambda: line("abc")], ids=["linked", "relayed"])
def test_a_large_payload_crosses_in_pieces_and_arrives_whole(make: Callable[[], MeshNetwork]) -> None:
    net = make()
    far = list(net.hosts)[-1]
    api, node = service_at(net, far)
    watched = Watched(net)
    call = api.request("compute", "run", PAYLOAD, ttl=30)
    request = node.take(Kind.REQUEST)
    assert request.payload == PAYLOAD
    node.reply(request, PAYLOAD[::-1])
    assert call.end.payload == PAYLOAD[::-1]
    crossed = watched.with_a_piece()
    assert len(crossed) == 2 * 4 * (len(net.hosts) - 1), "four each way, on each connection"
    assert all(sum(map(size_of, batch)) < PIECE_BYTES + 1000 for batch in crossed)
    unfaulted(net)
    for one, other in (("a", far), (far, "a")):
        assert neighbour_of(net, one, other).usage.size_bytes == 0


def test_the_order_of_messages_is_kept_around_a_large_one() -> None:
    net = two()
    api, node = service_at(net, "b")
    with net.together():
        for number in range(9):
            api.request("compute", f"m{number}", PAYLOAD if number % 3 == 1 else b"small", ttl=30)
    got = node.got(Kind.REQUEST)
    assert [each.method for each in got] == [f"m{number}" for number in range(9)]
    assert [len(each.payload) for each in got] == [5, len(PAYLOAD), 5] * 3


def test_small_messages_are_sent_in_batches_of_a_piece_at_most() -> None:
    net = two()
    api, node = service_at(net, "b")
    watched = Watched(net)
    with net.together():
        for number in range(90):
            api.request("compute", f"m{number}", bytes(30_000), ttl=30)
    assert len(node.got(Kind.REQUEST)) == 90
    forwarded = [batch for batch in watched.batches if b"m1" in b"".join(batch) and len(batch) > 1]
    assert any(len(batch) > 30 for batch in forwarded)
    link = neighbour_of(net, "a", "b")
    link.outbox += [pack(Kind.CAST, bytes(30_000))] * 90
    assert sum(map(size_of, link.batch())) <= PIECE_BYTES


def test_a_resumed_session_goes_on_in_the_middle_of_a_payload() -> None:
    net = two()
    api, node = service_at(net, "b")
    net.delay("a", "b", 0.05)
    payload = PAYLOAD * 4
    written = neighbour_of(net, "a", "b").written_bytes
    call = api.request("compute", "run", payload, ttl=60)
    while not neighbour_of(net, "b", "a").usage.size_bytes:
        net.advance(0.01)
    net.reset("a", "b")
    net.advance(10.0)
    request = node.take(Kind.REQUEST)
    assert request.payload == payload
    # At most the window of what was under way was sent again.
    assert neighbour_of(net, "a", "b").written_bytes - written < len(payload) + 6 * PIECE_BYTES
    node.reply(request, b"done")
    net.advance(1.0)
    assert call.end.payload == b"done"
    unfaulted(net)


def test_what_is_too_large_for_the_other_router_is_refused_and_nothing_else() -> None:
    net = MeshNetwork(("a",), Settings(recovery_seconds=0.0))
    net.add_router("b", peers=("a",), message_max_bytes=2 << 20)
    link_routers(net, "a", "b")
    api, node = service_at(net, "b")
    call = api.request("compute", "run", PAYLOAD, ttl=30)
    net.advance(1.0)
    assert "exceeds message.max_bytes = 2097152" in call.end.payload.decode()
    assert neighbour_of(net, "b", "a").counters["refused size"] == 1
    assert neighbour_of(net, "b", "a").usage.size_bytes == 0
    small = api.request("compute", "run", b"small", ttl=30)
    node.reply(node.take(Kind.REQUEST), b"done")
    assert small.end.payload == b"done"


def test_a_router_that_does_not_know_pieces_gets_none() -> None:
    def older(*args: Any) -> Router:
        router = Router(*args)
        router.mesh.own.pieces = False
        return router

    net = link_all(MeshNetwork(("a", "b"), Settings(recovery_seconds=0.0), engine=older))
    api, node = service_at(net, "b")
    watched = Watched(net)
    api.request("compute", "run", PAYLOAD, ttl=30)
    assert node.take(Kind.REQUEST).payload == PAYLOAD
    assert not watched.with_a_piece()
    unfaulted(net)


MIB = 1 << 20
MISFITS = {
    "without a place": [pack(Kind.PIECE, bytes(9), key=KEY)],
    "not the first": [piece(MIB, MIB, 4 * MIB)],
    "one is missing": [piece(0, MIB, 4 * MIB), piece(2 * MIB, MIB, 4 * MIB)],
    "of two payloads": [piece(0, MIB, 4 * MIB), piece(MIB, MIB, 3 * MIB)],
    "of another kind": [piece(0, MIB, 4 * MIB), piece(MIB, MIB, 4 * MIB, kind=Kind.CAST)],
    "longer than the payload": [piece(0, MIB, MIB)],
    "empty": [piece(0, 0, 2 * MIB)],
    "the end is missing": [piece(0, MIB, 4 * MIB), pack(Kind.REQUEST, bytes(MIB), key=KEY)],
    "all in one batch": [piece(0, 9, 4 * MIB), piece(8, 9, 4 * MIB), pack(Kind.REQUEST, bytes(MIB), key=KEY)],
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_pieces_that_do_not_fit_end_the_link_with_the_reason(misfit: str) -> None:
    net = two()
    api, node = service_at(net, "b")
    sender, receiver = neighbour_of(net, "a", "b"), neighbour_of(net, "b", "a")
    with net.together():
        for message in MISFITS[misfit]:
            sender.send(message)
    assert receiver.state.value == "ended" and receiver.usage.size_bytes == 0
    assert receiver.counters["refused pieces"] + receiver.counters["refused length"] == 1
    (note,) = [note.text for note in net.hosts["b"].notes if note.event == "offence"]
    assert note.startswith("a: "), note
    assert not node.got(Kind.REQUEST)
    link_routers(net, "a", "b")
    call = api.request("compute", "run", PAYLOAD, ttl=30)
    net.advance(3.0)
    node.reply(node.take(Kind.REQUEST), b"done")
    net.advance(1.0)
    assert call.end.payload == b"done"


@pytest.mark.parametrize("pieces", [1, 3])
def test_pieces_of_a_message_that_was_taken_back_are_forgotten(pieces: int) -> None:
    net = two()
    api, node = service_at(net, "b")
    sender, receiver = neighbour_of(net, "a", "b"), neighbour_of(net, "b", "a")
    for at in range(pieces):
        sender.send(piece(at * MIB, MIB, 4 * MIB))
    net.advance(0.1)
    assert receiver.usage.size_bytes == pieces * MIB
    api.request("compute", "run", b"small", ttl=30)
    small = node.take(Kind.REQUEST)
    assert small.payload == b"small"
    node.reply(small, b"done")
    for at in range(pieces):
        sender.send(piece(at * MIB, MIB, 4 * MIB))
    api.request("compute", "run", PAYLOAD, ttl=30)
    large = node.take(Kind.REQUEST)
    assert large.payload == PAYLOAD
    node.reply(large, b"done")
    assert receiver.usage.size_bytes == 0
    unfaulted(net)


def test_what_has_come_of_a_payload_is_forgotten_with_the_link() -> None:
    net = two()
    sender, receiver = neighbour_of(net, "a", "b"), neighbour_of(net, "b", "a")
    for first, second in pairwise(range(0, 3 * MIB, MIB)):
        sender.send(piece(first, second - first, 4 * MIB))
    net.advance(0.1)
    assert receiver.usage.size_bytes == 2 * MIB
    net.hosts["a"].kill()
    net.advance(10.0)
    assert receiver.state.value == "ended" and receiver.usage.size_bytes == 0


def test_heartbeats_go_between_the_pieces() -> None:
    net = two()
    service_at(net, "b")
    sender = neighbour_of(net, "a", "b")
    sender.send(pack(Kind.CAST, bytes(20 * MIB), key=KEY))
    sent = 0
    while sender.may_send:
        batch = sender.batch()
        sent += sum(len(payload_of(message)) for message in batch)
        sender.batch_was_sent()
    assert sent == 4 * MIB, "the rest waits until the other end has read some of it"
