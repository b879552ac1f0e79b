"""A router that floods another one: each message costs what it is worth, each thing that grows has a bound."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcmq.core.router.mesh import learner
from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Address, Kind, pack
from rpcmq.wire.interest import InterestBody, PlaceState, Row, identity_key, place_key
from tests.core.router.mesh.known_addresses import assert_known, interest_of
from tests.core.router.mesh.links import link_routers, neighbour_of

STATE = PlaceState(1, 1, True).encode()


@pytest.fixture
def net() -> Iterator[MeshNetwork]:
    """Routers a and b, of which b is hostile."""
    made = MeshNetwork(("a", "b"), Settings(recovery_seconds=0.0))
    link_routers(made, "a", "b")
    yield made
    for host in made.hosts.values():
        assert [note.text for note in host.notes if note.event == "internal error"] == []


def flood(net: MeshNetwork, *messages: bytes) -> None:
    """Let b send ``messages`` to a."""
    for message in messages:
        neighbour_of(net, "b", "a").send(message)
    net.run()


def counted(net: MeshNetwork, what: str) -> int:
    return neighbour_of(net, "a", "b").counters[what]


# --- INTEREST ------------------------------------------------------------------------------------


def interest(rows: list[Row], begins: bool = False, ends: bool = False, base: int = 1) -> bytes:
    return InterestBody(begins, ends, False, base, 1, 0, 0, rows).message()


def test_an_interest_that_would_take_seconds_is_refused(net: MeshNetwork) -> None:
    flood(net, interest([(identity_key(number), b"x") for number in range(4_000)], begins=True))
    assert counted(net, "refused length") == 1
    net.advance(5.0)
    assert_known(net)


def test_who_tells_everything_anew_without_end_is_asked_later(net: MeshNetwork) -> None:
    rows: list[Row] = [(place_key(Address(f"topic-{number}")), STATE) for number in range(200)]
    flood(net, *[interest(rows, begins=True, ends=True), interest(rows[:3], begins=True)] * 300)
    table = interest_of(net, "a").learner.table
    assert table.unswept(neighbour_of(net, "a", "b")) <= learner._MOST_UNSWEPT + 1
    assert counted(net, "interest asked for anew") > 500
    net.advance(200.0)
    assert_known(net)
    assert not table.is_sweeping and len(table) == 0


def test_who_asks_for_everything_without_end_is_told_it_now_and_then(
    net: MeshNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[bool] = []
    read = InterestBody.of

    def of(message: bytes) -> InterestBody:
        body = read(message)
        begun.append(body.begins)
        return body

    monkeypatch.setattr(InterestBody, "of", of)
    for _ in range(600):
        flood(net, pack(Kind.INTEREST_ACK))
        net.advance(0.1)
    assert 3 <= sum(begun) <= 9, "after 0, 0.5, 1, 2 ... seconds"


def test_groups_of_a_topic_that_another_router_makes_up(net: MeshNetwork) -> None:
    topic = Address("compute")
    flood(net, interest([], begins=True))
    for start in range(0, 3_000, 500):
        flood(net, interest([(place_key(topic, f"group-{n}"), STATE) for n in range(start, start + 500)]))
    table = interest_of(net, "a").learner.table
    assert len(list(table.groups(place_key(topic)))) == 3_000
    net.process("node", router="a").register("compute")
    assert counted(net, "addresses not noted") == 0, "no more are tried than a topic may have"
    flood(net, interest([(place_key(topic, f"group-{n}"), b"") for n in range(500)]))
    assert len(list(table.groups(place_key(topic)))) == 2_500


def test_what_routers_told_that_are_gone_has_a_bound_in_bytes(net: MeshNetwork) -> None:
    net.hosts["a"].settings.mesh_max_address_bytes = 200_000
    for number in range(5):
        name = f"x{number}"
        net.add_router(name, peers=("a",))
        link_routers(net, "a", name)
        at_a = neighbour_of(net, name, "a")
        at_a.send(interest([], begins=True))
        for start in range(0, 1_000, 100):
            rows = [(place_key(Address(f"{name}-topic-{n}")), STATE) for n in range(start, start + 100)]
            at_a.send(interest(rows))
        net.run()
        net.hosts[name].kill()
        net.advance(8.0)
    gone = interest_of(net, "a").learner._gone
    assert "x4" in gone and sum(holding.size_bytes for holding, _ in gone.values()) <= 200_000
