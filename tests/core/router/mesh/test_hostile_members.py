"""A router that makes up other routers, their endpoints and their domains: bounded, and no way round keys or limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rpcmq.core.common.topic_patterns import pattern_states
from rpcmq.core.router.access_control import AllowAll
from rpcmq.core.router.actions import Action, Dial
from rpcmq.core.router.mesh import route_table
from rpcmq.core.router.mesh.domains import Domains
from rpcmq.core.router.mesh.limits import LinkLimits
from rpcmq.core.router.mesh.routes import Route, routes
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Address, Kind, origin_of, pack
from rpcmq.wire.bodies import SubscribeBody
from rpcmq.wire.json_body import json_bytes
from rpcmq.wire.mesh_bodies import MAX_INCARNATION, MAX_ROUTERS, MemberBody, MembersBody
from tests.core.router.mesh.joining import members_of, neighbours, problems, told
from tests.core.router.mesh.links import link_routers, neighbour_of, two_routers


@pytest.fixture
def net() -> Iterator[MeshNetwork]:
    yield from two_routers()


def tell(net: MeshNetwork, *members: MemberBody, at_once: int = 50) -> None:
    """Let b tell a of routers, some at a time."""
    for start in range(0, len(members), at_once):
        neighbour_of(net, "b", "a").send(MembersBody(members=members[start : start + at_once]).message())
    net.advance(0.05)


def member(id: int, neighbours: tuple[int, ...] = (2,), **said: object) -> MemberBody:
    fields: dict[str, object] = {"mesh": "rpcmq", "name": f"r{id}", "incarnation": 1, "sequence": 1} | said
    return MemberBody(id=id, neighbours=neighbours, **fields)  # type: ignore[arg-type]


def limit(net: MeshNetwork) -> None:
    """Limit the link of a to b from now on."""
    link = neighbour_of(net, "a", "b")
    net.router_of("a").mesh.parts[0]._context.limits[link] = LinkLimits(link, ("images.#",), ("images.#",))  # type: ignore[attr-defined]


def domains_of(net: MeshNetwork, router: str) -> Domains:
    return next(each for each in net.router_of(router).mesh.parts if isinstance(each, Domains))


def test_routers_that_are_made_up_keep_no_process_from_being_welcome(net: MeshNetwork) -> None:
    urls = tuple(f"ipc://{'x' * 240}{number}" for number in range(16))
    tell(
        net,
        member(2, tuple(range(100, 199)), name="b", incarnation=net.router_of("b").mesh.own.incarnation, sequence=99),
    )
    tell(net, *(member(id, urls=urls) for id in range(100, 199)))
    net.advance(1.0)
    assert len(members_of(net, "a").table) == 100
    assert len(json_bytes(net.router_of("a").links.mesh)) < 300_000
    names = [row["name"] for row in net.router_of("a").links.mesh["routers"]]
    assert {"a", "b"} < set(names) and 20 < len(names) < 100
    net.process("api", router="a")


def test_a_newcomer_is_told_of_large_records_in_messages_that_it_takes(net: MeshNetwork) -> None:
    urls = tuple(chr(0x1F600) * 255 for _ in range(16))
    tell(net, *(member(id, urls=urls) for id in range(100, 160)), at_once=10)
    net.add_router("c", peers=("a",))
    net.advance(2.0)
    assert net.router_of("c").refused == {}
    assert len(members_of(net, "c").table) >= 60


def test_many_records_end_a_turn(net: MeshNetwork) -> None:
    router, link = net.router_of("a"), neighbour_of(net, "a", "b")
    assert link.route is not None
    message = MembersBody(members=tuple(member(id) for id in range(100, 150))).message()
    router.turns.spent = 0
    router.receive(net.now, link.route, message * 20)
    assert len(link.inbox) >= 12


def test_routers_without_an_authorised_key_are_neither_dialled_nor_told_to_processes(
    net: MeshNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AllowAll, "knows_router", lambda self, public: public == "GOOD")
    tell(net, member(2, (100, 101), name="b", incarnation=net.router_of("b").mesh.own.incarnation, sequence=99))
    tell(
        net,
        member(100, urls=("tcp://evil:1",), key="EVIL", domains=("#",)),
        member(101, urls=("tcp://good:1",), key="GOOD"),
    )
    net.advance(1.0)
    dialled = [target.url for target in net.router_of("a").mesh.targets if target.id in (100, 101)]
    assert "relay:100" not in dialled and [url for url in dialled if url != "relay:101"] == ["tcp://good:1"]
    assert [row["name"] for row in net.router_of("a").links.mesh["routers"]] == ["a", "b", "r101"]
    assert domains_of(net, "a").owner("any") == ""
    rows = {row["name"]: row for row in net.process("operator", router="a").query("mesh")["routers"]}
    assert rows["r100"]["why"] == "its key is not authorised here" != rows["r101"]["why"]


def test_a_router_keeps_the_key_that_it_was_linked_with(net: MeshNetwork) -> None:
    incarnation = net.router_of("b").mesh.own.incarnation
    tell(net, member(2, (1,), name="b", incarnation=incarnation, sequence=99, key="ANOTHER", urls=("tcp://new:1",)))
    (neighbour,) = net.router_of("a").mesh.neighbours
    assert neighbour.identity.urls == ("tcp://new:1",) and neighbour.identity.key == ""


def test_processes_do_not_go_on_at_a_limited_router_or_beyond_it(net: MeshNetwork) -> None:
    limit(net)
    tell(net, member(2, (100,), name="b", incarnation=net.router_of("b").mesh.own.incarnation, sequence=99))
    tell(net, member(100, urls=("tcp://beyond:1",), domains=("#",)))
    net.advance(1.0)
    assert [row["name"] for row in net.router_of("a").links.mesh["routers"]] == ["a"]
    assert domains_of(net, "a").owner("any") == ""


def test_the_last_incarnation_keeps_nobody_away(net: MeshNetwork) -> None:
    net.add_router("c", peers=("a",))
    link_routers(net, "a", "c")
    net.hosts["c"].kill()
    net.advance(8.0)
    tell(net, member(3, name="c", incarnation=MAX_INCARNATION - 1, sequence=1))
    for _ in range(2):
        net.hosts["c"].start()
        net.advance(5.0)
        assert "c" in neighbours(net, "a")
        net.hosts["c"].kill()
        net.advance(8.0)


# --- domains -------------------------------------------------------------------------------------


def test_domains_are_bounded(net: MeshNetwork) -> None:
    words = ".".join("#" if number % 2 else "w" for number in range(29))
    patterns = tuple(f"{words}.{number}" for number in range(60))
    tell(net, *(member(id, domains=tuple(f"{each}.{id}"[-100:] for each in patterns[:30])) for id in range(100, 400)))
    domains = domains_of(net, "a")
    assert domains._states <= 20_000 and domains._size_bytes <= 32 << 20
    assert len(told(net, "a", "domain")) == 300, "each is said once"
    tell(net, *(member(id, domains=(), sequence=2) for id in range(100, 400)))
    assert domains._states == domains._size_bytes == len(domains._trie) == 0
    refused = net.router_of("a").refused["body"]
    long = {"members": [member(500).encode() | {"domains": ["x" * 250] * 20}]}
    neighbour_of(net, "b", "a").send(pack(Kind.MEMBERS, json_bytes(long), format=1))
    net.run()
    assert net.router_of("a").refused["body"] == refused + 1


def test_domains_that_change_without_end_are_looked_at_some_topics_at_a_time(net: MeshNetwork) -> None:
    node = net.process("node", router="a")
    for number in range(200):
        node.register(f"topic-{number}", tag=number)
    for sequence in range(1, 50):
        tell(net, member(100, sequence=sequence, domains=(f"other-{sequence}",)))
    assert net.link(node).state.value == "answering"
    tell(net, member(100, sequence=99, domains=("topic-7",)))
    net.advance(0.1)
    assert any("domain of router 'r100'" in text for text in told(net, "a", "link ended"))


# --- patterns ------------------------------------------------------------------------------------


def test_patterns_of_a_router_cannot_slow_events_without_end(net: MeshNetwork) -> None:
    link, window = neighbour_of(net, "b", "a"), SubscribeBody(window=100).payload()
    for number in range(300):
        words = f"#.{number}." + ".".join("#" if at % 2 else "w" for at in range(28)) + ".x"
        key = origin_of(2, 0) + (number + 1_000).to_bytes(8)
        link.send(pack(Kind.SUBSCRIBE, window, key=key, address=Address(words).encode()))
    net.run()
    at_a = neighbour_of(net, "a", "b")
    assert at_a.window is not None and at_a.window.states <= 100_000
    assert sum(pattern_states(pattern) for _, pattern in at_a.patterns) == at_a.window.states
    assert 0 < len(at_a.patterns) < 300
    assert problems(net, "a") == {}


# --- room for others -------------------------------------------------------------------------


def own_record(net: MeshNetwork, neighbours: tuple[int, ...], sequence: int = 99) -> MemberBody:
    return member(2, neighbours, name="b", incarnation=net.router_of("b").mesh.own.incarnation, sequence=sequence)


def test_routers_that_are_made_up_push_out_only_each_other(net: MeshNetwork) -> None:
    tell(net, *(member(id) for id in range(100, 1200)))
    table = members_of(net, "a").table
    assert len(table) == MAX_ROUTERS
    net.add_router("c", peers=("a",))
    net.advance(1.0)
    tell(net, *(member(id, sequence=2) for id in range(100, 1200)), *(member(id) for id in range(2000, 2100)))
    c = table.get(net.router_of("c").mesh.own.id)
    assert len(table) == MAX_ROUTERS and c is not None and c.said.name == "c"


def test_routers_that_were_made_up_are_not_dialled_once_they_are_forgotten(net: MeshNetwork) -> None:
    tell(net, own_record(net, (1, *range(100, 199))), *(member(id, urls=("inproc://none",)) for id in range(100, 199)))
    targets = net.router_of("a").mesh.targets
    assert len(list(targets)) >= 198
    net.advance(130.0)
    assert not {target.id for target in targets} - {2}


def test_whoever_waits_to_be_dialled_has_its_turn(net: MeshNetwork) -> None:
    dialled: set[str] = set()

    def noting(action: Action) -> None:
        if isinstance(action, Dial):
            dialled.add(action.url)

    net.hosts["a"].on_action = noting
    urls = [f"inproc://none-{number}" for number in range(300)]
    tell(net, *(member(100 + number, urls=(url,)) for number, url in enumerate(urls)))
    net.advance(60.0)
    assert dialled == set(urls)


def test_a_router_that_is_known_is_dialled_before_those_that_are_made_up(net: MeshNetwork) -> None:
    tell(net, *(member(100 + number, urls=(f"inproc://none-{number}",)) for number in range(300)))
    net.advance(2.0)
    net.add_router("c", peers=())
    net.router_of("a").mesh.members.join(net.now, "inproc://c")
    net.advance(1.0)
    assert "c" in {each.name for each in net.router_of("a").mesh.neighbours}


def test_ways_are_found_anew_now_and_then_however_often_connections_change(
    net: MeshNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = range(100, 200)
    record = {id: tuple(each for each in ids if each != id) for id in ids}
    tell(net, own_record(net, (1, *list(ids)[:90])))
    tell(net, *(member(id, (2, *record[id][:-1])) for id in ids))
    times: list[float] = []

    def noting(*args: Any) -> dict[int, Route]:
        times.append(net.now)
        return routes(*args)

    monkeypatch.setattr(route_table, "routes", noting)
    for number in range(200):
        link = neighbour_of(net, "b", "a")
        link.send(
            MembersBody(members=(member(100, (2, *record[100][: 50 + number % 2]), sequence=2 + number),)).message()
        )
        net.advance(0.001)
        assert net.router_of("a").mesh.relays.route_to(101) is not None
    assert 1 <= len(times) <= 30


def test_a_record_that_says_nothing_new_moves_nothing(net: MeshNetwork) -> None:
    tell(net, own_record(net, (1, 100)), member(100))
    changes = members_of(net, "a").table.changes
    tell(net, member(100, sequence=2), own_record(net, (100, 1), sequence=100))
    assert members_of(net, "a").table.changes == changes
