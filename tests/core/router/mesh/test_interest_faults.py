"""Tables of others' addresses that miss changes, become wrong, are refused or too large are put right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcmq.core.router.mesh import announcer
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Address, Kind, pack
from rpcmq.wire.interest import InterestBody, PlaceState, place_key
from tests.core.router.mesh.interest import (
    QUIET,
    consumer,
    declare,
    note_bodies,
    three_routers,
)
from tests.core.router.mesh.known_addresses import interest_of, known, places
from tests.core.router.mesh.links import end_link, link_routers, neighbour_of


@pytest.fixture
def net() -> Iterator[MeshNetwork]:
    yield from three_routers()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[InterestBody]:
    return note_bodies(monkeypatch)


def test_a_router_that_has_missed_a_change_asks_for_all_anew(net: MeshNetwork):
    consumer(net, "b", "compute", server="node")
    net.advance(QUIET)
    interest = interest_of(net, "b")
    reader = interest.announcer._readers[neighbour_of(net, "b", "a")]
    reader.has_begun = False  # a defect: it is not told
    consumer(net, "b", "volume", "other")
    net.advance(QUIET)
    reader.has_begun = True
    consumer(net, "b", "image", "third")
    net.advance(QUIET)
    assert neighbour_of(net, "a", "b").counters["interest asked for anew"] == 1
    notes = [note.text for note in net.hosts["a"].notes if note.event == "interest asked for anew"]
    assert notes == ["addresses of router b are asked for anew: version 3 after 2"]


def test_a_table_that_has_become_wrong_is_noticed_by_its_digest(net: MeshNetwork):
    consumer(net, "b", "compute", server="node")
    net.process("api", router="a").cast("compute", server="ghost", ttl=1)
    net.advance(QUIET)
    table = interest_of(net, "a").learner.table
    source = interest_of(net, "a").learner._sources[neighbour_of(net, "a", "b")]
    assert source.holding is not None
    table.put(source.holding, place_key(Address("compute", "ghost")), PlaceState(1, 1, True).encode())
    place = places(net.router_of("a"))[Address("compute", "ghost"), ""]
    interest_of(net, "a").learner._places.set_remote(net.now, place, source.link, 1, 1)
    assert len(known(net, "a", "b")) == 3 and place.remotes
    net.advance(31.0)
    assert len(known(net, "a", "b")) == 2 and not place.remotes
    assert neighbour_of(net, "a", "b").counters["interest asked for anew"] == 1


@pytest.mark.parametrize(
    ("key", "state", "text"),
    [
        (b"\0\1", b"", "address block of 2 bytes"),
        (Address("compute").encode(), b"\1", "has 1 bytes"),
        (Address("compute").encode() + b"\xff", PlaceState(1, 1).encode(), "not UTF-8"),
        (Address("compute", "node").encode() + b"group", PlaceState(1, 1).encode(), "one of a server"),
        (bytes(3) + b"\0\0\1", bytes(12) + b"\xff", "not UTF-8"),
        (bytes(3) + b"\0\0\1", b"node", "too few for the origin"),
        (bytes(3) + b"\0\0\1", bytes(12) + b"a\nb", "control character"),
        (bytes(3) + b"\1", b"node", "key of an identity"),
        (Address("compute").encode() + b"\0\1", bytes(16), "number of a part"),
        (Address("compute").encode() + b"\0\0\0\1", b"x", "part of the consumers"),
        (Address("compute").encode() + b"\0\xff\xff\xff", bytes(16), "beyond all numbers"),
    ],
)
def test_a_malformed_row_costs_the_message_and_all_rows_are_asked_for(
    net: MeshNetwork, key: bytes, state: bytes, text: str
):
    consumer(net, "b", "compute")
    net.advance(QUIET)
    link = neighbour_of(net, "b", "a")
    version = interest_of(net, "b").announcer.version
    rows = [(place_key(Address("good")), PlaceState(1, 1, True).encode()), (key, state)]
    link.send(InterestBody(False, False, True, version, version + 1, 9, 9, rows).message())
    net.advance(QUIET)
    assert (Address("good"), "") not in known(net, "a", "b")
    assert neighbour_of(net, "a", "b").counters["interest asked for anew"] == 1
    assert net.router_of("a").refused.total() == 1
    assert any(text in note.text for note in net.hosts["a"].notes), net.hosts["a"].notes


def test_a_router_that_is_wrong_again_and_again_is_asked_ever_less_often(net: MeshNetwork):
    link = neighbour_of(net, "b", "a")
    asked = neighbour_of(net, "a", "b").counters
    for _ in range(600):
        version = interest_of(net, "b").announcer.version
        link.send(InterestBody(False, False, True, version, version, 99, 99, []).message())
        net.advance(0.2)
    assert asked["interest asked for anew"] < 200


def test_a_router_that_does_not_take_changes_gets_all_rows_once_it_does(
    net: MeshNetwork, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(announcer, "_MOST_BACKLOG_MESSAGES", 10)
    consumer(net, "b", "old", tag=1).unregister(1)
    net.advance(QUIET)
    net.partition(["a", "c"], ["b"])
    net.reset("a", "b")
    link = neighbour_of(net, "b", "a")
    node = net.process("other", router="b")
    for i in range(50):
        node.register(f"topic-{i}", tag=i)
        net.advance(0.01)
    assert link.route is None and len(link.outbox) == 11
    net.heal()
    net.advance(2 * QUIET)
    assert neighbour_of(net, "b", "a") is link and len(known(net, "a", "b")) == 51
    assert not neighbour_of(net, "a", "b").counters["interest asked for anew"]


def test_an_acknowledgement_of_what_was_not_told_is_refused(net: MeshNetwork):
    neighbour_of(net, "a", "b").send(pack(Kind.INTEREST_ACK, sequence=99))
    net.run()
    assert net.router_of("b").refused == {"ack": 1}


def test_rows_beyond_the_bounds_are_counted_and_attributed(net: MeshNetwork):
    net.hosts["a"].settings.mesh_max_addresses = 10
    node = net.process("node", router="b")
    for i in range(20):
        node.register(f"topic-{i}", tag=i)
    net.advance(31.0)
    assert len(known(net, "a", "b")) == 9, "and one name"
    counters = neighbour_of(net, "a", "b").counters
    assert counters["addresses beyond the limit"] == 11 and not counters["interest asked for anew"]
    notes = [note.text for note in net.hosts["a"].notes if note.event == "too many addresses"]
    assert notes == ["of router b, 10 addresses are known, and no more: mesh.max_addresses = 10"]
    net.hosts["a"].settings.mesh_max_addresses = 1000
    end_link(net, "a", "b")
    link_routers(net, "a", "b")


def test_an_address_that_does_not_fit_into_the_directory_is_counted(net: MeshNetwork):
    net.process("api", router="a").cast("audit", ttl=1000)
    net.advance(QUIET)
    settings = net.hosts["a"].settings
    settings.max_topics = 1
    node = net.process("node", router="b")
    for group in ("one", "two"):
        declare(node, "audit", group=group)
    net.advance(QUIET)
    assert neighbour_of(net, "a", "b").counters["addresses not noted"] == 2
    notes = [note.text for note in net.hosts["a"].notes if note.event == "address not noted"]
    assert notes == [
        "'audit', of which router b has consumers, is not noted: topic limit reached (topics.max_topics = 1)"
    ]
    settings.max_topics = 1000
    end_link(net, "a", "b")
    link_routers(net, "a", "b")
