"""The view of the mesh, and the controls with which a running router joins and leaves it."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.testing.mesh_network import MeshNetwork, Message
from rpcmq.wire import Kind
from rpcmq.wire.query_bodies import MeshForgetQuery, MeshJoinQuery, MeshLeaveQuery, QueryBody
from tests.core.router.mesh.joining import check_full_mesh, link, neighbours
from tests.core.router.mesh.topologies import line


@pytest.fixture
def net(empty: MeshNetwork) -> MeshNetwork:
    """Routers a, b and c; b and c were told of a."""
    empty.add_router("a", peers=())
    empty.add_router("b", peers=["a"])
    empty.add_router("c", peers=["a"])
    empty.advance(1.0)
    return empty


def view(net: MeshNetwork, router: str) -> dict[str, Any]:
    seen: dict[str, Any] = net.process(f"operator-{len(net.processes)}", router=router).query("mesh")
    return seen


def row(net: MeshNetwork, router: str, other: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [each for each in view(net, router)["routers"] if each["name"] == other]
    assert len(found) == 1
    return found[0]


def ask(net: MeshNetwork, router: str, query: QueryBody) -> Message:
    operator = net.process(f"operator-{len(net.processes)}", router=router)
    (answer,) = operator.send(Kind.QUERY, query.payload(), format=1).answers
    return answer


def test_it_shows_this_router_and_the_link_to_each_other_one(net: MeshNetwork) -> None:
    net.delay("a", "b", 0.01)
    net.advance(5.0)
    seen = view(net, "a")
    assert {key: seen[key] for key in ("mesh", "router", "router_id", "urls", "state", "truncated", "problems")} == {
        "mesh": "rpcmq", "router": "a", "router_id": 1, "urls": ["inproc://a"], "state": "member", "truncated": 0,
        "problems": [],
    }  # fmt: skip
    assert [(each["name"], each["state"]) for each in seen["routers"]] == [("b", "answering"), ("c", "answering")]
    b = seen["routers"][0]
    assert b["round_trip_ms"] == pytest.approx(20.0)
    assert b["dialed"] == "" and row(net, "b", "a")["dialed"] == "inproc://a"
    assert b["neighbours"] == [1, 3] and b["urls"] == ["inproc://b"]
    assert b["messages_in"] > 0 and b["messages_out"] > 0 and b["bytes_in"] > 0 and b["bytes_out"] > 0
    assert b["connected_seconds"] > 5 and b["why"] == ""


def test_it_says_why_a_router_is_not_linked(net: MeshNetwork) -> None:
    net.hosts["c"].kill()
    net.advance(12.0)
    c = row(net, "a", "c")
    assert (c["state"], c["why"]) == ("not linked", "inproc://c: no connection within 5 s")
    (problem,) = view(net, "b")["problems"]
    assert problem["subject"] == "inproc://c" and problem["reason"] == "unreachable"
    net.hosts["c"].start()
    net.advance(5.0)
    assert view(net, "a")["problems"] == []


def test_it_shows_a_url_that_has_never_led_to_a_router(empty: MeshNetwork) -> None:
    empty.add_router("a", peers=(), mesh_peers=("inproc://nobody",))
    empty.advance(6.0)
    (nobody,) = view(empty, "a")["routers"]
    assert nobody == {
        "name": "", "id": 0, "urls": ["inproc://nobody"], "state": "not linked",
        "why": "inproc://nobody: no connection within 5 s",
    }  # fmt: skip


def test_a_running_router_leaves_and_joins_on_demand(net: MeshNetwork) -> None:
    assert ask(net, "c", MeshLeaveQuery()).body == {"was_member": True, "linked": 2}
    net.advance(5.0)
    check_full_mesh(net, "a", "b")
    assert view(net, "c")["state"] == "left"
    c = row(net, "a", "c")
    assert (c["state"], c["why"]) == ("left", "it has left the mesh")
    assert {(each["name"], each["state"], each["why"]) for each in view(net, "c")["routers"]} == {
        (name, "left", "this router has left the mesh") for name in "ab"
    }
    assert ask(net, "c", MeshJoinQuery(url="inproc://b")).body == {"was_member": False, "linked": 0}
    net.advance(1.0)
    check_full_mesh(net, "a", "b", "c")
    assert view(net, "c")["state"] == "member"


def test_a_router_that_was_alone_joins_on_demand(net: MeshNetwork) -> None:
    net.add_router("d", peers=())
    net.advance(5.0)
    assert neighbours(net, "d") == {}
    assert ask(net, "d", MeshJoinQuery(url="inproc://c")).body == {"was_member": True, "linked": 0}
    net.advance(1.0)
    check_full_mesh(net, "a", "b", "c", "d")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "url '' must be a non-empty string of at most 1024 characters"),
        ("here", "'here' is no url of a router, as tcp://HOST:PORT is"),
        ("tcp://host:0", "'tcp://host:0' is no url of a router, as tcp://HOST:PORT is"),
        ("inproc://a", "inproc://a is this router itself"),
    ],
)
def test_a_url_that_cannot_be_joined_is_refused(net: MeshNetwork, url: str, text: str) -> None:
    answer = ask(net, "a", MeshJoinQuery(url=url))
    assert answer.kind is Kind.ERROR and answer.body["text"] == text


def test_a_url_that_was_joined_by_mistake_is_forgotten(net: MeshNetwork) -> None:
    for url in ("inproc://nobody", "inproc://nowhere"):
        assert ask(net, "a", MeshJoinQuery(url=url)).kind is Kind.ANSWER
    net.advance(6.0)
    assert [each["urls"] for each in view(net, "a")["routers"] if not each["name"]] == [
        ["inproc://nobody"], ["inproc://nowhere"]
    ]  # fmt: skip
    assert ask(net, "a", MeshForgetQuery(url="inproc://nobody")).body == {"was_member": True, "linked": 2}
    net.advance(20.0)  # no attempt that was under way notes it again
    seen = view(net, "a")
    assert [each["urls"] for each in seen["routers"] if not each["name"]] == [["inproc://nowhere"]]
    assert [each["subject"] for each in seen["problems"]] == ["inproc://nowhere"]
    check_full_mesh(net, "a", "b", "c")


def test_a_url_that_is_not_dialled_cannot_be_forgotten(net: MeshNetwork) -> None:
    answer = ask(net, "b", MeshForgetQuery(url="inproc://nobody"))
    text = "inproc://nobody is none of the urls that this router may dial no more: inproc://a"
    assert (answer.kind, answer.body["text"]) == (Kind.ERROR, text)
    # One that others have told of is not an operator's to forget.
    answer = ask(net, "a", MeshForgetQuery(url="inproc://b"))
    assert answer.body["text"] == "inproc://b is none of the urls that this router may dial no more: none"


def test_the_link_to_a_url_that_is_forgotten_stays_and_is_made_again(net: MeshNetwork) -> None:
    assert ask(net, "b", MeshForgetQuery(url="inproc://a")).kind is Kind.ANSWER
    assert view(net, "b")["peers"] == []
    net.advance(1.0)
    check_full_mesh(net, "a", "b", "c")
    links = link(net, "a", "b"), link(net, "b", "a")
    net.reset("a", "b")
    net.advance(3.0)
    check_full_mesh(net, "a", "b", "c")
    assert links == (link(net, "a", "b"), link(net, "b", "a"))
    net.hosts["a"].restart()
    net.advance(10.0)
    check_full_mesh(net, "a", "b", "c")


def test_a_router_that_is_gone_for_good_is_forgotten(net: MeshNetwork) -> None:
    net.hosts["c"].kill()
    net.advance(150.0)
    assert [each["urls"] for each in view(net, "a")["routers"] if not each["name"]] == [["inproc://c"]]
    assert ask(net, "a", MeshForgetQuery(url="inproc://c")).kind is Kind.ANSWER
    net.advance(60.0)
    seen = view(net, "a")
    assert [each["name"] for each in seen["routers"]] == ["b"] and seen["problems"] == []
    net.hosts["c"].start()  # it is told of a, and not forgotten by itself
    net.advance(5.0)
    check_full_mesh(net, "a", "b", "c")


def test_a_router_that_is_away_is_found_again_though_its_url_was_forgotten(net: MeshNetwork) -> None:
    net.hosts["a"].kill()
    net.advance(12.0)
    assert ask(net, "b", MeshForgetQuery(url="inproc://a")).kind is Kind.ANSWER
    net.hosts["a"].start()
    net.advance(10.0)
    check_full_mesh(net, "a", "b", "c")


def test_without_other_ways_a_url_that_is_forgotten_is_not_dialled_again() -> None:
    net = line("ab")
    assert ask(net, "b", MeshForgetQuery(url="inproc://a")).kind is Kind.ANSWER
    net.advance(5.0)
    check_full_mesh(net, "a", "b")
    net.reset("a", "b")
    net.advance(30.0)
    assert (neighbours(net, "a"), neighbours(net, "b")) == ({}, {})


def test_a_router_is_joined_by_any_of_its_urls(empty: MeshNetwork) -> None:
    empty.add_router("a", peers=())
    empty.router_of("a").mesh.own.urls = ("inproc://a", "inproc://a2")
    empty.add_router("b", peers=["a"])
    empty.add_router("c", peers=["b"])
    empty.advance(1.0)
    assert ask(empty, "c", MeshJoinQuery(url="inproc://a2")).kind is Kind.ANSWER
    empty.advance(1.0)
    assert view(empty, "c")["peers"] == ["inproc://b", "inproc://a2"]


def test_urls_that_were_joined_are_bounded(net: MeshNetwork) -> None:
    operator = net.process("operator", router="a")
    with net.together():
        for i in range(1001):
            operator.send(Kind.QUERY, MeshJoinQuery(url=f"inproc://x{i}").payload(), format=1)
    (refused,) = [each for each in operator.got() if each.kind is Kind.ERROR]
    assert refused.body["text"] == "1000 urls of routers are dialled already: `rpcmq mesh` lists them"


def test_a_router_that_others_are_to_reach_and_that_none_reaches_is_said_to_be_so() -> None:
    net = line("abc")
    assert (row(net, "a", "c")["via"], row(net, "a", "c")["state"]) == (["b"], "answering")
    net.hosts["b"].kill()
    net.advance(20.0)
    found = row(net, "a", "c")
    assert found["state"] == "not linked"
    assert found["why"] == "mesh.dial leaves it to other routers, and there is no way over others"
