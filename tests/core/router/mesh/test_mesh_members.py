"""Who is in a mesh: routers that join, leave, die and come back, and what processes are told of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.testing.network import Network
from rpcmq.wire import Kind
from rpcmq.wire.json_body import control
from rpcmq.wire.mesh_bodies import MemberBody, MembersBody, RoutersBody
from tests.core.router.mesh.joining import check_full_mesh, link, members_of, neighbours, problems, told


@pytest.fixture
def net(empty: MeshNetwork) -> MeshNetwork:
    """Routers a, b and c; b and c were told of a."""
    empty.add_router("a", peers=())
    empty.add_router("b", peers=["a"])
    empty.add_router("c", peers=["a"])
    empty.advance(0.9)
    return empty


def incarnation_of(net: MeshNetwork, name: str, id: int) -> int:
    """The incarnation of the router ``id``, as the router ``name`` knows it."""
    member = members_of(net, name).table.get(id)
    assert member is not None
    return member.said.incarnation


def told_routers(process: Process) -> list[list[str]]:
    """The names of the routers in each message with which the process was told of them since the last look."""
    return [[row["name"] for row in message.body["routers"]] for message in process.got(Kind.ROUTERS)]


def test_three_routers_join_by_the_url_of_one_within_a_second(net: MeshNetwork) -> None:
    check_full_mesh(net, "a", "b", "c")


@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
def test_they_join_in_each_order_of_starts_with_slow_paths(empty: MeshNetwork, order: str) -> None:
    for one, other in ("ab", "bc", "ac"):
        empty.delay(one, other, 0.02)
    peers = {"a": (), "b": ("inproc://a",), "c": ("inproc://b",)}
    for name in order:
        empty.add_router(name, router_id=ord(name), mesh_peers=peers[name])
    empty.advance(3.0)
    check_full_mesh(empty, "a", "b", "c")


def test_ten_routers_that_know_one_each_are_a_full_mesh_within_a_second(empty: MeshNetwork) -> None:
    names = "abcdefghij"
    empty.add_router("a", peers=())
    for before, name in pairwise(names):
        empty.add_router(name, peers=[before])
    empty.advance(1.0)
    check_full_mesh(empty, *names)


def test_one_way_to_connect_is_enough(empty: MeshNetwork) -> None:
    # The router with the lower id can't reach the other one.
    empty.add_router("a", peers=())
    empty.add_router("b", peers=["a"])
    empty.add_router("c", peers=["a"])
    empty.router_of("c").mesh.own.urls = ("inproc://nowhere",)
    empty.advance(3.0)
    check_full_mesh(empty, "a", "b", "c")


def test_routers_that_name_all_others_have_one_link_each(empty: MeshNetwork) -> None:
    names = "abcd"
    for name in names:
        others = tuple(f"inproc://{other}" for other in names if other != name)
        empty.add_router(name, peers=(), mesh_peers=others)
    empty.advance(6.0)
    check_full_mesh(empty, *names)
    empty.advance(60.0)
    assert told(empty, "a", "link ended") == []


def test_a_router_that_dies_is_dialled_and_comes_back(net: MeshNetwork) -> None:
    net.hosts["a"].kill()
    net.advance(20.0)
    assert set(neighbours(net, "b")) == {"c"}
    net.hosts["a"].start()
    net.advance(2.5)
    check_full_mesh(net, "a", "b", "c")


def test_one_that_stays_away_is_forgotten_and_still_dialled_rarely(net: MeshNetwork) -> None:
    net.hosts["c"].kill()
    net.advance(150.0)
    assert members_of(net, "a").table.get(3) is None
    assert told(net, "a", "router forgotten") == ["router c (id 3) was not heard of for 90 s"]
    net.hosts["c"].settings.mesh_peers = ()
    net.hosts["c"].start()
    net.advance(36.0)
    check_full_mesh(net, "a", "b", "c")


def test_routers_that_join_do_not_keep_the_word_of_a_dead_one_alive(net: MeshNetwork) -> None:
    net.hosts["c"].kill()
    net.advance(70.0)
    # Each is told of c as it comes, and tells the others what it knows.
    for number, name in enumerate("defg"):
        net.add_router(name, peers=["a"], router_id=10 + number)
        net.advance(10.0)
    assert [name for name in "abdefg" if members_of(net, name).table.get(3) is not None] == []
    assert len(told(net, "a", "router forgotten")) == 1


@pytest.mark.parametrize("clock_step", [60.0, -86400.0])
def test_the_word_of_an_earlier_life_does_not_hold(net: MeshNetwork, clock_step: float) -> None:
    # c comes back at b first, where its former life is known.
    former = net.router_of("c").mesh.own.incarnation
    net.hosts["c"].kill()
    net.cut("a", "c")
    net.hosts["c"].settings.mesh_peers = ("inproc://b",)
    net.hosts["c"].start(clock_step)
    net.advance(10.0)
    net.heal()
    net.advance(6.0)
    check_full_mesh(net, "a", "b", "c")
    assert net.router_of("c").mesh.own.incarnation > former
    for name in "ab":
        assert incarnation_of(net, name, 3) == net.router_of("c").mesh.own.incarnation


def test_a_parted_mesh_heals(net: MeshNetwork) -> None:
    net.add_router("d", peers=["b"])
    net.advance(1.0)
    net.partition(["a", "b"], ["c", "d"])
    net.advance(600.0)
    assert set(neighbours(net, "a")) == {"b"} and set(neighbours(net, "d")) == {"c"}
    net.heal()
    net.advance(40.0)
    check_full_mesh(net, "a", "b", "c", "d")


# --- leaving ---------------------------------------------------------------------------------


def test_a_router_that_leaves_is_not_dialled_and_comes_back_when_it_joins(net: MeshNetwork) -> None:
    members_of(net, "c").leave(net.now)
    net.advance(0.5)
    assert neighbours(net, "c") == {}
    check_full_mesh(net, "a", "b")
    net.advance(30.0)
    check_full_mesh(net, "a", "b")
    assert problems(net, "a") == {}
    members_of(net, "c").join(net.now, "inproc://b")
    net.advance(1.0)
    check_full_mesh(net, "a", "b", "c")


def test_one_that_others_were_told_of_is_not_dialled_by_them_once_it_has_left(net: MeshNetwork) -> None:
    members_of(net, "a").leave(net.now)
    net.advance(10.0)
    assert neighbours(net, "a") == {}
    check_full_mesh(net, "b", "c")
    members_of(net, "a").join(net.now, "inproc://c")
    net.advance(1.0)
    check_full_mesh(net, "a", "b", "c")


def test_one_that_leaves_gives_up_the_connections_that_it_is_making(net: MeshNetwork) -> None:
    net.hosts["b"].kill()
    net.advance(10.0)
    (target,) = [target for target in net.router_of("a").mesh.targets if target.id == 2]
    earlier = target.route
    while target.route in (None, earlier):
        net.advance(0.1)
    members_of(net, "a").leave(net.now)
    net.advance(1.0)
    net.hosts["b"].settings.mesh_peers = ("inproc://c",)
    net.hosts["b"].start()
    net.advance(40.0)
    assert neighbours(net, "a") == {}
    check_full_mesh(net, "b", "c")


# --- processes -------------------------------------------------------------------------------


def test_processes_are_told_of_the_routers_and_of_each_change(net: MeshNetwork) -> None:
    follower = net.process("follower", router="a")
    other = net.process("other", router="a", follows_mesh=False)
    assert follower.uplink.router is not None
    welcome = RoutersBody.parse(follower.uplink.router.mesh)
    assert welcome.mesh == "rpcmq"
    assert welcome.routers == tuple((name, (f"inproc://{name}",)) for name in "abc")
    assert other.uplink.router is not None and other.uplink.router.mesh == {}
    net.add_router("d", peers=["b"])
    net.advance(1.0)
    assert told_routers(follower)[-1] == ["a", "b", "c", "d"]
    net.hosts["b"].kill()
    net.advance(7.0)
    assert told_routers(follower) == [["a", "c", "d"]]
    net.advance(200.0)
    assert told_routers(follower) == told_routers(other) == []


@pytest.mark.parametrize("queue_dir", ["", "/var/lib/rpcmq/queue"])
def test_a_router_whose_queue_server_outlives_it_goes_on_with_calls_of_its_former_life(queue_dir: str) -> None:
    router = Network(Settings(queue_dir=queue_dir)).router
    assert bool(router.links.mesh) == bool(queue_dir)
    if queue_dir:
        body = RoutersBody.parse(router.links.mesh)
        assert body.adopts and len(body.routers) == 1


def test_a_process_of_a_router_that_was_alone_is_told_when_others_come(empty: MeshNetwork) -> None:
    empty.add_router("a", peers=())
    process = empty.process("process", router="a")
    assert process.uplink.router is not None and process.uplink.router.mesh == {}
    empty.add_router("b", peers=["a"])
    empty.advance(0.5)
    assert told_routers(process) == [["a", "b"]]


def test_many_processes_are_told_some_at_a_time(empty: MeshNetwork) -> None:
    empty.add_router("a", peers=())
    processes = [empty.process(f"p{i}", router="a") for i in range(1100)]
    empty.add_router("b", peers=["a"])
    empty.advance(0.015)
    assert sum(len(told_routers(each)) for each in processes) == 500
    empty.advance(0.1)
    assert sum(len(told_routers(each)) for each in processes) == 600


# --- false words -----------------------------------------------------------------------------


def tell(net: MeshNetwork, liar: str, hearer: str, *members: MemberBody) -> None:
    """Have a router tell another one this."""
    link(net, liar, hearer).send(MembersBody(members=members).message())
    net.run()


def member(name: str, id: int, /, **values: Any) -> MemberBody:
    told: dict[str, Any] = {"mesh": "rpcmq", "incarnation": 1, "sequence": 1, "neighbours": (), "name": name}
    return MemberBody(id=id, urls=(f"inproc://{name}",), **told | values)


def test_absent_neighbours_are_no_routers_that_processes_are_told_of(net: MeshNetwork) -> None:
    follower = net.process("follower", router="a")
    tell(net, "b", "a", member("ghost", 77, neighbours=(78, 2)))
    net.advance(1.0)
    assert told_routers(follower) == []
    assert members_of(net, "a").table.get(77) is not None
    net.advance(100.0)
    assert members_of(net, "a").table.get(77) is None


def test_a_connection_counts_when_both_ends_tell_it(net: MeshNetwork) -> None:
    follower = net.process("follower", router="a")
    incarnation = net.router_of("b").mesh.own.incarnation
    b = member("b", 2, incarnation=incarnation, sequence=1000, neighbours=(1, 3, 77))
    tell(net, "b", "a", b, member("ghost", 77))
    net.advance(0.1)
    assert told_routers(follower) == []
    tell(net, "b", "a", member("ghost", 77, sequence=2, neighbours=(2,)))
    net.advance(0.1)
    assert told_routers(follower) == [["a", "b", "c", "ghost"]]


def test_an_earlier_word_changes_nothing(net: MeshNetwork) -> None:
    tell(net, "b", "a", member("ghost", 77, sequence=5))
    tell(net, "b", "a", member("ghost", 77, sequence=4, name="x"))
    known = members_of(net, "a").table.get(77)
    assert known is not None and known.said.sequence == 5 and known.said.name == "ghost"


def test_nobody_can_tell_anything_of_a_router_that_is_linked(net: MeshNetwork) -> None:
    tell(net, "b", "a", member("c", 3, incarnation=1 << 52, left=True))
    net.advance(2.0)
    assert incarnation_of(net, "a", 3) == net.router_of("c").mesh.own.incarnation
    check_full_mesh(net, "a", "b", "c")


def test_a_later_life_of_oneself_is_jumped_above(net: MeshNetwork) -> None:
    tell(net, "b", "a", member("a", 1, incarnation=1 << 45, left=True))
    net.advance(0.5)
    assert net.router_of("a").mesh.own.incarnation == (1 << 45) + 1
    check_full_mesh(net, "a", "b", "c")
    assert incarnation_of(net, "c", 1) == (1 << 45) + 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"mesh": "another"},
        {"name": ""},
        {"neighbours": (77,)},
        {"incarnation": (1 << 53) - 1},
    ],
)
def test_words_that_cannot_be_true_are_refused_and_attributed(net: MeshNetwork, wrong: dict[str, object]) -> None:
    tell(net, "b", "a", member("ghost", 77, **wrong), member("other", 78))
    assert link(net, "a", "b").counters["refused members"] == 1
    assert members_of(net, "a").table.get(77) is None
    assert members_of(net, "a").table.get(78) is not None
    (text,) = told(net, "a", "offence")
    assert text.startswith("b: MEMBERS tells of routers that cannot be as it says")


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": 0},
        {"id": "7"},
        {"sequence": -1},
        {"sequence": 1.5},
        {"sequence": True},
        {"sequence": 1 << 53},
        {"incarnation": -1},
        {"neighbours": None},
        {"neighbours": [-1]},
        {"neighbours": ["b"]},
        {"neighbours": list(range(1, 10_001))},
        {"name": "x" * 256},
        {"name": "line\nfeed"},
        {"urls": ["x" * 5000]},
        {"urls": ["tcp://h:1"] * 17},
        {"urls": 5},
        {"key": "x" * 41},
    ],
)
def test_malformed_words_are_refused_and_attributed(net: MeshNetwork, wrong: dict[str, object]) -> None:
    link(net, "b", "a").send(control(Kind.MEMBERS, {"members": [member("ghost", 77).encode() | wrong]}))
    net.run()
    assert link(net, "a", "b").counters["refused body"] == 1
    assert members_of(net, "a").table.get(77) is None
    net.advance(5.0)
    check_full_mesh(net, "a", "b", "c")


def test_the_routers_that_are_known_are_bounded(net: MeshNetwork) -> None:
    for start in range(1000, 3000, 100):
        tell(net, "b", "a", *(member(f"ghost-{i}", i) for i in range(start, start + 100)))
    assert len(members_of(net, "a").table) == 1000
    dials = [target for target in net.router_of("a").mesh.targets if target.route is not None]
    assert len(dials) < 50
    net.advance(100.0)
    check_full_mesh(net, "a", "b", "c")
