"""The sending on connections that other routers carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from rpcmq.core.common.session import Session
from rpcmq.core.router.mesh.relayed_connections import DROPPED, RelayedConnections
from rpcmq.core.router.model import Link
from rpcmq.wire import KIND_AT, Kind, pack
from rpcmq.wire.bodies import MESH_TYPE
from rpcmq.wire.relay import parse_relay


class Ends:
    """A router with a neighbour, 2, and links over it to 3 and 4."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.relayed = RelayedConnections(self.counters)
        self.dirty: list[Session] = []
        self.hop = Link(self.dirty, "b", MESH_TYPE, 1, 1)
        self.hop.route = b"hop"
        self.relayed.own_id = lambda: 1
        self.relayed.next_hop = lambda id: self.hop
        self.links = {id: self._link(id) for id in (3, 4)}
        self.takes = True
        self.sent: list[list[bytes]] = []

    def _link(self, id: int) -> Link:
        link = Link(self.dirty, str(id), MESH_TYPE, id, 1)
        link.route = b"relayed:%d" % id
        self.relayed.open(link.route, id, id * 100)
        self.relayed.carry_link(link, self.dirty)
        return link

    def put(self, route: bytes, messages: Sequence[bytes]) -> bool:
        assert route == b"hop"
        if self.takes:
            self.sent.append(list(messages))
        return self.takes

    def carry(self) -> list[list[str]]:
        """The kinds of the messages of each batch that is sent now."""
        self.sent.clear()
        self.relayed.carry(self.put)
        return [[Kind(message[KIND_AT]).name for message in batch] for batch in self.sent]


@pytest.fixture
def ends() -> Ends:
    return Ends()


def test_a_neighbour_is_welcomed_before_it_has_to_pass_anything_on(ends: Ends) -> None:
    ends.hop.send_first(pack(Kind.WELCOME))
    ends.links[3].send(pack(Kind.CAST))
    ends.relayed.tell_closed(0.0, 4, 9, ends.hop)
    assert ends.carry() == [["WELCOME"], ["RELAY"], ["RELAY", "CAST"]]


def test_links_share_the_messages_that_they_have_in_common(ends: Ends) -> None:
    event, other = pack(Kind.PUBLISH, b"1"), pack(Kind.CAST, b"2")
    ends.links[3].send(event)
    ends.links[4].send(other)
    ends.links[4].send(event)
    ends.hop.send(event)
    assert ends.carry() == [["RELAY", "PUBLISH", "CAST"]]
    legs = parse_relay(ends.sent[0][0], 2).legs
    assert [(leg.destination, leg.ranges) for leg in legs] == [(3, ((0, 1),)), (4, ((1, 1), (0, 1))), (0, ((0, 1),))]
    assert not ends.hop.outbox and ends.hop.unacknowledged == 1


def test_links_without_common_messages_have_batches_of_their_own(ends: Ends) -> None:
    ends.links[3].send(pack(Kind.CAST, b"1"))
    ends.links[4].send(pack(Kind.CAST, b"2"))
    ends.hop.send(pack(Kind.CAST, b"3"))
    assert ends.carry() == [["RELAY", "CAST"], ["RELAY", "CAST"]]
    assert len(ends.hop.outbox) == 1, "the neighbour's own is for the shell"


def test_a_neighbour_that_takes_nothing_keeps_what_is_of_this_router_waiting(ends: Ends) -> None:
    ends.takes = False
    ends.links[3].send(pack(Kind.CAST))
    assert ends.carry() == [] and ends.links[3] in ends.relayed.blocked
    ends.relayed.tell_closed(0.0, 4, 9, ends.hop)
    assert ends.carry() == [] and ends.counters[DROPPED + "the next router takes nothing"] == 1
    ends.takes = True
    ends.relayed.retry()
    assert ends.carry() == [["RELAY", "CAST"]] and not ends.relayed.blocked


def test_what_has_no_way_waits(ends: Ends) -> None:
    ends.relayed.next_hop = lambda id: None
    ends.links[3].send(pack(Kind.CAST))
    assert ends.carry() == [] and len(ends.links[3].outbox) == 1
    ends.relayed.next_hop = lambda id: ends.hop
    ends.links[3].mark()
    assert ends.carry() == [["RELAY", "CAST"]]


def test_many_links_share_more_than_one_batch(ends: Ends) -> None:
    links = [ends._link(id) for id in range(10, 60)]
    event = pack(Kind.PUBLISH, b"1")
    for link in links:
        for _ in range(300):
            link.send(event)
    ends.carry()
    assert max(len(batch) for batch in ends.sent) <= 4096
    assert sum(len(parse_relay(batch[0], len(batch) - 1).legs) for batch in ends.sent) == 100
    assert all(link.unacknowledged == 300 for link in links)
