"""A process in a mesh keeps its origin when it goes on at another router, and counts its moves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.process.uplink import Uplink
from rpcmq.core.process.welcome import Welcome
from rpcmq.core.router.settings import Settings
from rpcmq.testing.network import Network
from rpcmq.wire import Kind, control
from rpcmq.wire.bodies import HelloBody, WelcomeBody
from rpcmq.wire.mesh_bodies import RoutersBody

HELLO = HelloBody(versions=(1,), identity="api-1", queue_type="roundrobin", follows_mesh=True)
MESH = {"mesh": "east", "routers": [{"name": "a", "urls": ["tcp://a:1"]}]}


class Moving:
    """A process, and the WELCOMEs that it got."""

    def __init__(self) -> None:
        self.welcomes: list[Welcome] = []
        self.uplink = Uplink(HELLO, lambda now, welcome: self.welcomes.append(welcome), lambda *why: None)

    def hello(self, url: str) -> HelloBody:
        """Connect to ``url``; return HELLO."""
        self.uplink.lost(0.0)
        self.uplink.connected(0.0, url)
        (message,) = self.uplink.first_messages
        self.uplink.first_messages.clear()
        return HelloBody.of(message)

    def welcomed(self, url: str, **values: Any) -> HelloBody:
        """Connect to ``url`` and be welcomed; return HELLO."""
        hello = self.hello(url)
        body = {"router_id": 1, "boot": 5, "handle": 7, "token": "t", "received": 0, "resumed": False, "mesh": MESH}
        self.uplink.receive(1.0, control(Kind.WELCOME, body | values))
        assert self.uplink.ready
        return hello


@pytest.fixture
def moving() -> Moving:
    return Moving()


def test_a_first_hello_only_says_that_it_follows_a_mesh(moving: Moving) -> None:
    hello = moving.welcomed("tcp://a:1")
    assert hello.follows_mesh
    assert (hello.origin_router, hello.handle, hello.moves, hello.mesh) == (None, None, 0, {})
    assert moving.uplink.moves.count == 0


def test_it_names_its_origin_to_the_next_router_and_counts_the_move(moving: Moving) -> None:
    moving.welcomed("tcp://a:1")
    key = moving.uplink.next_key()
    hello = moving.welcomed("tcp://b:1", boot=6, token="u")
    assert (hello.origin_router, hello.handle, hello.token, hello.moves) == (1, 7, "t", 1)
    assert hello.mesh == {"mesh": "east"}
    assert moving.uplink.moves.count == 1
    assert moving.uplink.next_key()[:12] == key[:12]
    assert moving.welcomes[-1].same_handle and moving.welcomes[-1].same_mesh


def test_a_resumed_session_is_no_move(moving: Moving) -> None:
    moving.welcomed("tcp://a:1")
    moving.welcomed("tcp://a:1", resumed=True)
    assert moving.uplink.moves.count == 0
    assert moving.welcomed("tcp://b:1").moves == 1


def test_another_router_behind_the_same_url_is_a_move(moving: Moving) -> None:
    moving.welcomed("tcp://any:1")
    moving.welcomed("tcp://any:1", boot=6)
    assert moving.uplink.moves.count == 1


def test_a_hello_without_an_answer_counts_for_its_router_may_have_taken_it(moving: Moving) -> None:
    moving.welcomed("tcp://a:1")
    assert moving.hello("tcp://b:1").moves == 1
    assert moving.hello("tcp://b:1").moves == 2
    assert moving.welcomed("tcp://c:1").moves == 3
    assert moving.uplink.moves.count == 3


def test_a_router_that_reaches_nobody_yet_is_told_how_many_were_known(moving: Moving) -> None:
    """Else it would start at once what they may have started."""
    known = {"mesh": "east", "adopts": True, "routers": [{"name": each, "urls": [f"tcp://{each}:1"]} for each in "abc"]}
    alone = known | {"adopts": False, "routers": [{"name": "a", "urls": ["tcp://a:1"]}]}
    moving.welcomed("tcp://a:1", mesh=known)
    for boot in (6, 7):
        assert moving.welcomed("tcp://a:1", boot=boot, mesh=alone).routers == 3
        assert moving.uplink.moves.is_adopted
    moving.welcomed("tcp://a:1", boot=8, mesh=alone | {"adopts": True})
    assert moving.hello("tcp://a:1").routers == 1


def test_outside_of_a_mesh_it_names_its_origin_and_counts_as_well(moving: Moving) -> None:
    """Another router may have joined the last one just then."""
    moving.welcomed("tcp://a:1", mesh={})
    hello = moving.welcomed("tcp://b:1", boot=6, mesh={})
    assert (hello.origin_router, hello.handle, hello.token, hello.moves) == (1, 7, "t", 1)
    assert (hello.mesh, hello.routers) == ({}, 0)
    assert not moving.welcomes[-1].same_mesh and not moving.welcomes[-1].next_life


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_router_that_was_alone_and_is_in_a_mesh_now_is_known_by_its_name(moving: Moving, name: str) -> None:
    """Any router of a mesh may have left the process its origin; and one url may lead to several."""
    moving.welcomed("tcp://any:1", mesh={}, router="a")
    moving.welcomed("tcp://any:1", boot=6, router=name)
    assert moving.welcomes[-1].next_life is (name == "a")


def test_another_mesh_is_not_the_same(moving: Moving) -> None:
    moving.welcomed("tcp://a:1")
    moving.welcomed("tcp://b:1", mesh=MESH | {"mesh": "west"})
    assert not moving.welcomes[-1].same_mesh


def test_a_welcome_with_a_malformed_mesh_is_not_used(moving: Moving) -> None:
    moving.hello("tcp://a:1")
    body = {"router_id": 1, "boot": 5, "handle": 7, "token": "t", "received": 0, "mesh": {"mesh": 5}}
    moving.uplink.receive(1.0, control(Kind.WELCOME, body))
    assert not moving.uplink.ready and moving.uplink.discarded["body"] == 1


@given(steps=st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=20))
def test_each_new_session_has_a_higher_count_than_any_router_has_seen_before(
    steps: list[tuple[str, bool, bool]],
) -> None:
    moving = Moving()
    moving.welcomed("tcp://a:1")
    seen = [0]  # counts of HELLOs that may have begun a session
    for router, is_answered, resumes in steps:
        hello = moving.welcomed(f"tcp://{router}:1", resumed=resumes) if is_answered else moving.hello(router)
        if not (is_answered and resumes):
            assert hello.moves > max(seen)
            seen.append(hello.moves)
        if is_answered and not resumes:
            assert moving.uplink.moves.count == hello.moves


# --- the router's side -----------------------------------------------------------------------


@pytest.fixture
def net() -> Network:
    made = Network(Settings(router_id=2, router_name="b"))
    made.router.links.mesh = RoutersBody(mesh="east", routers=(("b", ("tcp://b:1",)),)).encode()
    return made


def moved(net: Network, **hello: Any) -> WelcomeBody:
    """WELCOME to a process that had handle 7 of router 1."""
    says: dict[str, Any] = {"follows_mesh": True, "mesh": {"mesh": "east"}, "origin_router": 1, "handle": 7, "moves": 3}
    return net.process("api", **says | hello).welcome


def test_a_process_that_comes_from_the_same_mesh_keeps_its_origin(net: Network) -> None:
    welcome = moved(net)
    assert (welcome.router, welcome.router_id, welcome.handle) == ("b", 1, 7)
    link = net.router.links.by_identity("api")
    assert link is not None
    assert link.origin == (1).to_bytes(4) + (7).to_bytes(8)
    assert link.returning and link.moves == 3
    assert RoutersBody.parse(welcome.mesh).routers == (("b", ("tcp://b:1",)),)


@pytest.mark.parametrize(
    "hello",
    [
        {"follows_mesh": False},
        {"follows_mesh": False, "mesh": {}},
        {"mesh": {"mesh": "west"}},
        {"mesh": {"mesh": ["east"]}},
    ],
)
def test_an_origin_from_elsewhere_is_not_kept(net: Network, hello: dict[str, Any]) -> None:
    welcome = moved(net, **hello)
    assert welcome.router_id == 2 and welcome.handle != 7


@pytest.mark.parametrize("mesh", [{}, {"mesh": "east"}])
def test_a_router_outside_of_a_mesh_keeps_no_origin_of_another_one(mesh: dict[str, str]) -> None:
    welcome = moved(Network(Settings(router_id=2)), mesh=mesh)
    assert (welcome.router_id, welcome.mesh) == (2, {})


def test_a_process_that_comes_from_a_router_in_no_mesh_keeps_its_origin(net: Network) -> None:
    """The mesh may have begun just then; no other router's process has that origin, whatever mesh that is in."""
    welcome = moved(net, mesh={}, moves=1)
    assert (welcome.router, welcome.router_id, welcome.handle) == ("b", 1, 7)
    link = net.router.links.by_identity("api")
    assert link is not None and link.returning and link.moves == 1


def test_an_origin_in_use_is_not_given_twice(net: Network) -> None:
    moved(net)
    says: dict[str, Any] = {"follows_mesh": True, "mesh": {"mesh": "east"}, "origin_router": 1, "handle": 7}
    welcome = net.process("mallory", **says).welcome
    assert (welcome.router_id, welcome.handle) != (1, 7)


def test_the_same_handle_of_two_routers_is_two_origins(net: Network) -> None:
    moved(net)
    says: dict[str, Any] = {"follows_mesh": True, "mesh": {"mesh": "east"}, "origin_router": 3, "handle": 7}
    welcome = net.process("other", **says).welcome
    assert (welcome.router_id, welcome.handle) == (3, 7)


def test_a_mesh_is_left_sooner_and_asked_more_often(net: Network) -> None:
    welcome = moved(net)
    assert welcome.lost_seconds == net.settings.mesh_lost_seconds
    assert 2 * welcome.heartbeat_seconds < net.settings.mesh_lost_seconds
    older = net.process("old").welcome
    assert older.lost_seconds == net.settings.lost_seconds
    assert older.heartbeat_seconds == net.settings.heartbeat_seconds


def test_who_does_not_follow_the_mesh_is_not_told_of_it(net: Network) -> None:
    assert net.process("old").welcome.mesh == {}
