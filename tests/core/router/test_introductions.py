"""Peer2Peer: the router makes two processes known to each other."""

from __future__ import annotations

from rpcmq.testing.network import Network
from rpcmq.wire import Kind, body_of, pack


def test_both_are_told_of_each_other_with_the_same_ticket(net: Network):
    api, node = net.process("api"), net.process("node", accepts=["json", "dill"])
    node.register("compute", server="node-7", peer_url="tcp://10.0.0.7:4711")
    call = api.introduce("compute", server="node-7")
    (answer,) = call.answers
    notice = node.take(Kind.INTRODUCTION)
    assert answer.kind is Kind.INTRODUCTION and notice.key == call.key
    assert answer.body == {
        "ticket": notice.body["ticket"],
        "topic": "compute.node-7",
        "identity": "node",
        "url": "tcp://10.0.0.7:4711",
        "accepts": 0b1010,
    }
    told = {name: value for name, value in notice.body.items() if name != "via"}  # its router, if another
    assert told == {"ticket": answer.body["ticket"], "topic": "compute.node-7", "identity": "api", "url": ""}


def test_tickets_differ(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute", peer_url="tcp://10.0.0.7:4711")
    tickets = {api.introduce("compute").answers[0].body["ticket"] for _ in range(3)}
    assert len(tickets) == 3


def test_a_consumer_without_a_peer_socket_is_a_reason(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    (answer,) = api.introduce("compute").answers
    assert answer.body == {"text": "'compute' has no peer socket", "url": ""}
    assert node.got(Kind.INTRODUCTION) == []


def test_no_consumer_that_answers_is_a_reason(net: Network):
    api, node = net.process("api"), net.process("node")
    reason = {"text": "'compute' has no consumer that answers", "url": ""}
    assert api.introduce("compute").answers[0].body == reason
    node.register("compute", peer_url="tcp://10.0.0.7:4711")
    node.cut_off()
    net.advance(20)
    assert api.introduce("compute").answers[0].body == reason


def test_the_least_loaded_of_those_that_listen_is_chosen(net: Network):
    api = net.process("api")
    deaf, busy, idle = (net.process(name) for name in ("deaf", "busy", "idle"))
    deaf.register("compute", credit=5)
    busy.register("compute", server="busy", credit=5, peer_url="tcp://busy:1")
    api.request("compute", server="busy")
    idle.register("compute", credit=5, peer_url="tcp://idle:1")
    assert api.introduce("compute").answers[0].body["identity"] == "idle"


def test_a_malformed_address_is_refused(net: Network):
    api = net.process("api")
    (error,) = api.send(Kind.INTRODUCE, address=b"\0\0\0").answers
    assert error.kind is Kind.ERROR and net.router.refused == {"address": 1}


def test_what_a_peer_url_says_is_cut_to_a_sane_length(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute", peer_url="x" * 100_000)
    assert len(api.introduce("compute").answers[0].body["url"]) == 255


def test_who_asks_without_end_does_not_fill_the_link_of_who_is_asked_for(net: Network):
    mallory, node, other = net.process("mallory"), net.process("node"), net.process("other")
    node.register("compute", peer_url="tcp://10.0.0.7:4711")
    assert mallory.connection is not None
    messages = [
        pack(Kind.INTRODUCE, key=mallory.uplink.next_key(), address=b"\0\7\0compute") for _ in range(2000)
    ]  # fmt: skip
    net.router.receive(net.now, mallory.connection.route, b"".join(messages))
    while net.router.turns.is_anybody_waiting:
        net.router.run_next_turn(net.now)
    # Nothing was sent so far, as to a process that takes nothing.
    assert len(net.link(node).outbox) == 1000
    last = net.link(mallory).outbox[-1]
    assert body_of(last) == {"text": "'compute' has no consumer that takes introductions now", "url": ""}
    net.link(mallory).outbox.clear()
    net.run()
    assert other.introduce("compute").answers[0].body["url"] == "tcp://10.0.0.7:4711"
