"""Urls and HELLOs that make no link: each is counted, explained, logged once, and harmless."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from rpcmq.core.router.actions import DIALED, Answer
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.peerings import as_body
from rpcmq.core.router.router import Router
from rpcmq.testing.mesh_network import MeshNetwork, Message
from rpcmq.wire import KIND_AT, Flag, Kind, pack
from rpcmq.wire.bodies import DirectWelcomeBody, HelloBody, RefusedBody
from rpcmq.wire.json_body import control
from tests.core.router.mesh.joining import check_full_mesh, link, neighbours, problems, told


@pytest.fixture
def net(empty: MeshNetwork) -> MeshNetwork:
    """Router a, which dials nobody."""
    empty.add_router("a", peers=())
    return empty


def counted(net: MeshNetwork, router: str, what: str) -> int:
    counters: Counter[str] = net.router_of(router).links.counters
    return counters[what]


def attempts(net: MeshNetwork, router: str) -> int:
    """The number of HELLOs that were answered with a refusal or more since the last look."""
    host = net.hosts[router]
    count = sum(answer.message[KIND_AT] == Kind.HELLO for answer in host.answers)
    host.answers.clear()
    return count


class Stranger(Router):
    """Listens where a router is expected, and answers each HELLO with ``says``, or with nothing."""

    says: bytes = b""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        receive = self.receive

        def answer(now: float, route: bytes, batch: bytes, payloads: Sequence[bytes] = (), user: str = "") -> None:
            if batch[KIND_AT] != Kind.HELLO or route.startswith(DIALED):
                receive(now, route, batch, payloads, user)
            elif self.says:
                self._act(Answer(route, self.says))

        self.receive = answer  # type: ignore[assignment]


def add_stranger(net: MeshNetwork, says: bytes) -> None:
    engine, net._engine = net._engine, type("Saying", (Stranger,), {"says": says})
    net.add_router("x", peers=())
    net._engine = engine


# --- urls that lead elsewhere ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "reason", "text"),
    [
        (DirectWelcomeBody(identity="node", handle=1).message(), "no-router", "this is no router that knows a mesh: "),
        (pack(Kind.ACK), "no-router", "this is no router that knows a mesh: kind 0x05 in answer to HELLO"),
        (pack(Kind.REQUEST), "no-router", "this is no router that knows a mesh: kind 0x10 in answer to HELLO"),
        (pack(Kind.HELLO), "no-router", "this is no router that knows a mesh: kind 0x01 in answer to HELLO"),
        (control(Kind.WELCOME, {}), "no-router", "this is no router that knows a mesh: "),
        (
            control(Kind.WELCOME, {"router_id": 1, "boot": 1, "handle": 1, "token": "x", "received": 0}),
            "no-router",
            "this is no router that knows a mesh: its WELCOME has no `mesh`",
        ),
        (
            control(
                Kind.WELCOME,
                {"router_id": 1, "boot": 1, "handle": 1, "token": "x", "received": 0, "mesh": {"mesh": "rpcmq"}},
            ),
            "no-router",
            "this is no router that knows a mesh: name",
        ),
        (
            RefusedBody(reason="queue-type", text="queue type 'mesh' is unknown").message(),
            "old-version",
            "the router there is of an older version, which knows no mesh: update it",
        ),
        (
            RefusedBody(reason="ticket", text="show a ticket").message(),
            "refused",
            "the router there refuses a link: show a ticket",
        ),
        (b"", "no-answer", "connected, but nothing there has answered HELLO within 5 s"),
    ],
)
def test_a_url_that_leads_to_no_router_of_a_mesh(net: MeshNetwork, says: bytes, reason: str, text: str) -> None:
    add_stranger(net, says)
    net.add_router("b", peers=["a", "x"])
    net.advance(6.0)
    assert problems(net, "b")["inproc://x"].startswith(f"inproc://x: {text}")
    assert counted(net, "b", f"mesh {reason}") >= 1
    net.advance(120.0)
    assert len(told(net, "b", "mesh problem")) == 1
    check_full_mesh(net, "a", "b")


@pytest.mark.parametrize("says", [pack(Kind.ACK), RefusedBody(reason="queue-type", text="unknown").message()])
def test_it_is_dialled_again_rarely(net: MeshNetwork, says: bytes) -> None:
    add_stranger(net, says)
    net.add_router("b", peers=["x"])
    net.advance(1.0)
    before = counted(net, "b", "mesh no-router") + counted(net, "b", "mesh old-version")
    assert before == 1
    net.advance(300.0)
    assert counted(net, "b", "mesh no-router") + counted(net, "b", "mesh old-version") - before in range(9, 15)


def test_a_url_that_leads_back(net: MeshNetwork) -> None:
    net.add_router("b", peers=["a"])
    net.router_of("b").mesh.targets.configure(net.now, "inproc://b")
    net.advance(300.0)
    assert problems(net, "b") == {"inproc://b": "inproc://b leads to this router itself: take it out of its peers"}
    assert len(told(net, "b", "mesh problem")) == 1
    check_full_mesh(net, "a", "b")


def test_a_router_of_another_mesh(net: MeshNetwork) -> None:
    net.add_router("b", peers=["a"], mesh_name="another")
    net.advance(100.0)
    assert neighbours(net, "a") == neighbours(net, "b") == {}
    assert problems(net, "b") == {
        "inproc://a": "inproc://a: the router there refuses a link: router 'a' belongs to the mesh 'rpcmq', and you to "
        "'another': set mesh.name"
    }
    assert counted(net, "a", "refused other-mesh") in range(2, 7)


# --- routers with one id ---------------------------------------------------------------------


def test_two_routers_with_one_id_refuse_each_other_by_name(net: MeshNetwork) -> None:
    net.add_router("b", peers=["a"], router_id=1)
    net.advance(100.0)
    assert neighbours(net, "a") == neighbours(net, "b") == {}
    both = "router id 1 is used by 'a' (inproc://a) and by 'b' (inproc://b): set router.id of one of them"
    assert problems(net, "a") == {"router 1": both}
    assert problems(net, "b") == {"inproc://a": f"inproc://a: the router there refuses a link: {both}"}
    assert len(told(net, "a", "mesh problem")) == len(told(net, "b", "mesh problem")) == 1


@pytest.mark.parametrize("name", ["a", "c"])
def test_a_third_router_refuses_the_second_with_an_id(net: MeshNetwork, name: str) -> None:
    net.add_router("b", peers=["a"])
    net.advance(1.0)
    net.add_router("c", peers=["b"], router_id=1, router_name=name)
    net.advance(20.0)
    assert set(neighbours(net, "b")) == {"a"} and neighbours(net, "c") == {}
    (text,) = told(net, "b", "mesh problem")
    assert text == f"router id 1 is used by 'a' (inproc://a) and by '{name}' (inproc://c): set router.id of one of them"
    assert text in problems(net, "c")["inproc://b"]
    # The first one goes: the id is free.
    net.hosts["a"].kill()
    net.advance(60.0)
    assert set(neighbours(net, "b")) == {name}
    assert problems(net, "b").keys() <= {"inproc://a"}


def test_two_routers_of_one_name_are_told_apart(net: MeshNetwork) -> None:
    net.add_router("b", peers=["a"], router_name="a")
    net.add_router("c", peers=["a"])
    net.advance(2.0)
    assert set(neighbours(net, "a")) == {"a#2", "c"}
    assert set(neighbours(net, "b")) == {"a#1", "c"}
    assert {each.identity.id for each in net.router_of("c").mesh.neighbours} == {1, 2}
    assert len(neighbours(net, "c")) == 2


# --- HELLOs that make no link ----------------------------------------------------------------


def greet(net: MeshNetwork, router: str, route: bytes, **values: Any) -> list[Message]:
    """Say HELLO as a router on a new connection; return the answers so far."""
    return net.hosts[router].inject(route, hello_of(values))


def hello_of(values: dict[str, Any]) -> bytes:
    identity = {"mesh": "rpcmq", "name": "z", "id": 26, "incarnation": 1, "urls": []} | values
    return HelloBody(identity="z", queue_type="mesh", versions=(1,), mesh=identity).message()


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": 0},
        {"id": 1 << 32},
        {"id": "1"},
        {"incarnation": -1},
        {"incarnation": 1.5},
        {"name": None},
        {"name": "x" * 300},
        {"mesh": 5},
        {"urls": ["\n"]},
        {"urls": "tcp://x:1"},
    ],
)
def test_a_malformed_identity_is_refused(net: MeshNetwork, wrong: dict[str, Any]) -> None:
    (refused,) = greet(net, "a", b"z", **wrong)
    assert refused.kind is Kind.REFUSED and refused.body["reason"] == "body"
    assert counted(net, "a", "refused body") == 1
    assert len(net.router_of("a").links) == 0


def test_a_hello_without_identity_or_name_is_refused(net: MeshNetwork) -> None:
    hello = HelloBody(identity="z", queue_type="mesh", versions=(1,)).message()
    (refused,) = net.hosts["a"].inject(b"z", hello)
    assert refused.body["reason"] == "body"
    (refused,) = greet(net, "a", b"z", name="")
    assert refused.body["reason"] == "identity" and "must have a name" in refused.body["text"]


def test_a_second_connection_of_a_linked_router_is_refused_once_the_first_has_answered(net: MeshNetwork) -> None:
    net.add_router("b", peers=["a"])
    net.delay("a", "b", 0.1)
    net.advance(1.0)
    before = link(net, "a", "b")
    own = net.router_of("b").mesh.own
    values: dict[str, Any] = {"name": "b", "id": 2, "incarnation": own.incarnation, "urls": ["inproc://b"]}
    assert greet(net, "a", b"second", **values) == []
    assert greet(net, "a", b"third", **values) == []
    net.advance(0.3)
    answers = {each.route: Message(each.message) for each in net.hosts["a"].answers[-2:]}
    assert answers[b"second"].body["reason"] == "crossing"
    assert answers[b"third"].body["reason"] == "already-linked"
    assert answers[b"third"].body["mesh"] == {
        "mesh": "rpcmq", "name": "a", "id": 1, "incarnation": 1_700_000_000_000, "urls": ["inproc://a"],
        "pieces": True, "nodes": True,
    }  # fmt: skip
    assert link(net, "a", "b") is before and before.state is LinkState.ANSWERING


@pytest.mark.parametrize("together", [1, 7])
def test_a_connection_that_says_hello_as_ever_other_routers_has_one_link(net: MeshNetwork, together: int) -> None:
    router = net.router_of("a")
    net.hosts["a"].connections.ends.setdefault(b"z", None)
    for first in range(100, 400, together):
        for id in range(first, first + together):
            router.receive(net.now, b"z", hello_of({"name": f"r{id}", "id": id}))
        net.advance(0.01)
        last = f"r{first + together - 1}"
        assert [each.identity for each in router.links if each.identity.startswith("r")] == [last]
    router.lost(net.now, b"z")
    net.advance(30.0)
    assert not [each.identity for each in router.links if each.identity.startswith("r")]
    assert "internal error" not in router.refused


def test_an_earlier_life_is_told_of_the_later_one(net: MeshNetwork) -> None:
    net.add_router("b", peers=["a"])
    net.advance(0.5)
    net.hosts["b"].kill()
    net.advance(10.0)
    (refused,) = greet(net, "a", b"earlier", name="b", id=2, incarnation=5)
    assert refused.body["reason"] == "stale-incarnation"
    assert refused.body["incarnation"] == 1_700_000_000_000


def test_an_old_answer_does_not_keep_a_connection_that_is_probed(net: MeshNetwork) -> None:
    net.add_router("b", peers=["a"])
    net.advance(1.0)
    before = link(net, "a", "b")
    net.cut("b", "a", is_one_way=True)
    net.advance(1.2)
    (peering,) = net.router_of("a").mesh.handshake.peerings
    asked = min(peering.asked)
    assert greet(net, "a", b"next", name="b", id=2, incarnation=1_700_000_000_001, urls=["inproc://b"]) == []
    assert before.route is not None
    received = link(net, "b", "a").received
    net.hosts["a"].inject(before.route, pack(Kind.HEARTBEAT, asked.to_bytes(8), sequence=received))
    assert peering.round_trip > 0.5, "it was taken for an answer"
    net.advance(1.1)
    assert before.state is LinkState.ENDED
    assert link(net, "a", "b").route == b"next"


def test_a_question_is_asked_though_one_is_answered_at_the_same_time(net: MeshNetwork) -> None:
    net.add_router("b", peers=["a"])
    handshake = net.router_of("a").mesh.handshake
    (peering,) = handshake.peerings
    assert peering.route is not None
    with net.together():
        handshake._heartbeats.probe(net.now, peering)
        net.hosts["a"].inject(peering.route, pack(Kind.HEARTBEAT, bytes(8), flags=Flag.ANSWER_WANTED))
    assert peering.probe == 0


def test_one_that_guesses_a_token_gets_no_session(net: MeshNetwork) -> None:
    net.add_router("b", peers=["a"])
    identity = as_body(net.router_of("b").mesh.own)
    guess = HelloBody(
        identity="b", queue_type="mesh", versions=(1,), token="x", received=0, mesh=identity.encode()
    ).message()
    net.hosts["a"].inject(b"guess", guess)
    net.advance(2.0)
    assert link(net, "a", "b").route == b"b#1"
    check_full_mesh(net, "a", "b")


def test_a_neighbour_that_says_hello_on_a_connection_that_it_accepted_is_refused(net: MeshNetwork) -> None:
    net.add_router("b", peers=["a"])
    hello = HelloBody(identity="p", queue_type="roundrobin", versions=(1,)).message()
    peering = next(iter(net.router_of("b").mesh.handshake.peerings))
    assert peering.route is not None
    net.hosts["b"].inject(peering.route, hello)
    assert counts(net, "b", "a") == 1
    net.advance(3.0)
    assert net.router_of("b").links.by_identity("p") is None
    check_full_mesh(net, "a", "b")


@pytest.mark.parametrize("kind", [Kind.REGISTER, Kind.QUERY, Kind.DECLARE, Kind(0x6B)])
def test_a_neighbour_is_no_process(net: MeshNetwork, kind: Kind) -> None:
    net.add_router("b", peers=["a"])
    link(net, "b", "a").send(pack(kind))
    net.run()
    assert counts(net, "a", "b") >= 1
    check_full_mesh(net, "a", "b")


def counts(net: MeshNetwork, router: str, other: str) -> int:
    """The number of messages of a neighbour that were refused."""
    counters = link(net, router, other).counters
    return sum(count for what, count in counters.items() if what.startswith("refused"))


@pytest.mark.parametrize("payload", [b"", b"1234567", b"123456789", b"x" * 40_000])
def test_a_heartbeat_without_its_number_is_refused(net: MeshNetwork, payload: bytes) -> None:
    net.add_router("b", peers=["a"])
    link(net, "b", "a").send_last(pack(Kind.HEARTBEAT, payload, flags=Flag.ANSWER_WANTED))
    net.run()
    assert counts(net, "a", "b") == 1
    net.advance(5.0)
    check_full_mesh(net, "a", "b")


def test_processes_and_routers_of_one_name_are_two(net: MeshNetwork) -> None:
    net.add_router("b", peers=["a"])
    process = net.process("b", router="a")
    assert process.uplink.router is not None
    check_full_mesh(net, "a", "b")
    process.stop()
    check_full_mesh(net, "a", "b")


# --- bounds ----------------------------------------------------------------------------------


def test_texts_and_reasons_of_a_refusal_are_bounded(net: MeshNetwork) -> None:
    add_stranger(net, RefusedBody(reason="x" * 255, text="y" * 100_000).message())
    net.add_router("b", peers=["x"])
    net.advance(30.0)
    (text,) = problems(net, "b").values()
    assert len(text) == 500
    assert not any("xx" in name for name in net.router_of("b").links.counters)


def test_hellos_that_wait_are_bounded(empty: MeshNetwork) -> None:
    # Its own HELLO is not answered, so that others with higher ids wait.
    add_stranger(empty, b"")
    empty.add_router("a", peers=["x"], router_id=1)
    answers = [greet(empty, "a", b"one", name=f"r{id}", id=id) for id in range(100, 400)]
    assert answers == [[]] * 300
    answers = [greet(empty, "a", b"%d" % id, name=f"r{id}", id=id) for id in range(1000, 1300)]
    reasons = [each[0].body["reason"] for each in answers if each and each[0].kind is Kind.REFUSED]
    assert reasons == ["crossing"] * 201
    empty.advance(1.5)
    assert len(neighbours(empty, "a")) == 100
    (refused,) = greet(empty, "a", b"more", name="more", id=5000)
    assert refused.body["reason"] == "too-many-links"
    assert refused.body["text"] == "a router is linked to 100 others at most"


def test_urls_that_others_tell_and_nobody_can_dial_are_ignored(net: MeshNetwork) -> None:
    net.add_router("b", peers=["a"])
    net.add_router("c", peers=[])
    net.router_of("c").mesh.own.urls = ("no url", "inproc://c")
    net.router_of("c").mesh.targets.configure(net.now, "inproc://a")
    net.advance(2.0)
    check_full_mesh(net, "a", "b", "c")
    assert {url for target in net.router_of("b").mesh.targets for url in target.urls} == {"inproc://a", "inproc://c"}
