"""Every entry into the router's engine survives any exception: the guilty connection pays, nobody else notices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rpcmq.core.router.actions import Answer, Disconnect, LogEvent
from rpcmq.core.router.rights import EVERYTHING, Key, Right
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.testing.network import Network
from rpcmq.wire import Kind, body_of, pack

ROOT = Key("root", "ROOT", (EVERYTHING,), identities=("*",))
WEB = Key("web", "WEB", (Right(frozenset(["call", "cast", "serve"]), ("compute.#",)),), identities=("*",))

#: Valid JSON texts, some of which no program of ours would write.
TEXTS = (
    '"\\ud800"', '"a\\udfffb"', '"\\u0000"', '""', '"x"', "1e999", "-1e999", "NaN", "0", "5", "-1", "1.5", "true",
    "null", "[]", "{}", "9" * 4000, str(2**63), str(2**64 - 1), str(2**64), "[" * 400 + "]" * 400,
    '{"a":' * 400 + "1" + "}" * 400, '["\\ud800", {"\\ud800": "\\ud800"}]', '"' + "k" * 2000 + '"',
)  # fmt: skip
FIELDS = (
    "identity", "queue_type", "versions", "token", "handle", "boot", "received", "accepts", "role", "keeps", "host",
    "pid", "program", "library",
)  # fmt: skip
RIGHT = {"identity": '"mallory"', "queue_type": '"roundrobin"', "versions": "[1]"}


def hello(fields: dict[str, str]) -> bytes:
    """A HELLO whose fields are these JSON texts."""
    body = ",".join(f"{json.dumps(name)}:{text}" for name, text in (RIGHT | fields).items())
    return bytes(pack(Kind.HELLO, f"{{{body}}}".encode(), format=1))


def guarded() -> Network:
    net = Network()
    net.router.set_authorized_keys(net.now, [ROOT, WEB], [b"secret"])
    return net


def outcome(net: Network, route: bytes, message: bytes, user: str) -> None:
    """``message`` is welcomed or refused, and no exception was raised on the way."""
    net.router.receive(net.now, route, message, (), user)
    assert net.router.refused["internal error"] == 0, [a.text for a in net.router.actions if isinstance(a, LogEvent)]
    refused = [a for a in net.router.actions if isinstance(a, Answer) and a.route == route]
    assert route in net.router.links.routes or refused
    for answer in refused:
        json.dumps(body_of(answer.message)).encode()
    net.router.actions.clear()


def test_hello_with_a_handle_and_a_token_that_is_no_text():
    """A lone surrogate can't be encoded: it froze the router for half a second, for every such HELLO."""
    net = guarded()
    outcome(net, b"r", hello({"handle": "5", "token": '"\\ud800"'}), "ROOT")
    assert net.router.links.routes[b"r"].handle != 5


@pytest.mark.fuzz
@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(TEXTS), max_size=5), st.sampled_from(["ROOT", "WEB", "no"])
)
@example({"versions": "[" * 400 + "]" * 400}, "ROOT")
@example({"handle": "true", "token": "null"}, "WEB")
def test_hello_with_anything_in_its_fields(fields: dict[str, str], user: str):
    net = guarded()
    outcome(net, b"r", hello(fields), user)
    # On a connection that has a link, and for a link that is away.
    outcome(net, b"r", hello(fields), user)
    net.router.lost(net.now, b"r")
    outcome(net, b"s", hello(fields | {"received": "0"}), user)
    for route in list(net.router.links.routes):
        net.router.lost(net.now, route)
    net.advance(60)
    assert len(net.router.links) == 0 and not net.router.links.routes


CONTROL = (Kind.REGISTER, Kind.DECLARE, Kind.SUBSCRIBE, Kind.QUERY, Kind.INTRODUCE)
BODY_FIELDS = ("credit", "group", "recent", "peer_url", "window", "what")


@pytest.mark.fuzz
@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(CONTROL),
    st.dictionaries(st.sampled_from(BODY_FIELDS), st.sampled_from(TEXTS), max_size=4),
    st.sampled_from(["ROOT", "WEB"]),
)
def test_a_body_with_anything_in_its_fields(kind: Kind, fields: dict[str, str], user: str):
    net = guarded()
    mallory = net.process("mallory", user=user)
    right = {"credit": "1", "window": "10", "what": '"summary"'} | fields
    body = ",".join(f"{json.dumps(name)}:{text}" for name, text in right.items())
    address = b"\0\7\0compute"
    mallory.uplink.send(pack(kind, f"{{{body}}}".encode(), format=1, key=mallory.uplink.next_key(), address=address))
    net.run()
    assert net.router.refused["internal error"] == 0, [n.text for n in net.notes]
    assert mallory.received, "it was answered"


# --- a defect of ours, wherever it is --------------------------------------------------------


class Bystanders:
    """A caller and a service that must not notice."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.api, self.node = net.process("bystander"), net.process("service")
        self.node.register("service", credit=10)

    def talk(self) -> None:
        call = self.api.request("service", ttl=1000)
        self.node.reply(self.node.take(Kind.REQUEST), b"all is well")
        assert call.end.payload == b"all is well"


@pytest.fixture
def faulty() -> Iterator[tuple[Network, Bystanders]]:
    net = Network()
    bystanders = Bystanders(net)
    bystanders.talk()
    yield net, bystanders
    bystanders.talk()
    assert net.router.refused["internal error"] > 0
    notes = [n for n in net.notes if n.event == "internal error"]
    assert notes and "a bug" in notes[0].text


def broken(*args: Any, **more: Any) -> Any:
    raise ZeroDivisionError("a bug")


def test_a_hello_that_raises_is_refused_and_its_connection_broken(faulty: tuple[Network, Bystanders], monkeypatch: Any):
    net, bystanders = faulty
    monkeypatch.setattr(net.router.handshake, "_welcome", broken)
    net.router.receive(net.now, b"stranger", hello({}))
    assert Disconnect(b"stranger") in net.router.actions
    (answer,) = [a for a in net.router.actions if isinstance(a, Answer)]
    assert body_of(answer.message)["reason"] == "protocol"
    assert net.router.links.by_identity("mallory") is None and b"stranger" not in net.router.links.routes
    net.run()
    bystanders.talk()


def test_a_message_about_a_link_that_raises_ends_that_link(faulty: tuple[Network, Bystanders], monkeypatch: Any):
    net, _ = faulty
    mallory = net.process("mallory")
    monkeypatch.setattr(net.router.links, "control_message", broken)
    mallory.inject(pack(Kind.HEARTBEAT))
    monkeypatch.undo()
    assert not any(link.identity == "mallory" and link.received for link in net.router.links)


def test_a_lost_connection_that_raises(faulty: tuple[Network, Bystanders], monkeypatch: Any):
    net, bystanders = faulty
    net.process("mallory")
    monkeypatch.setattr(net.router.links, "lost", broken)
    net.router.lost(net.now, net.link(bystanders.api).route or b"")


def test_a_step_of_tick_that_raises_keeps_no_other_from_being_done(
    faulty: tuple[Network, Bystanders], monkeypatch: Any
):
    net, bystanders = faulty
    call = bystanders.api.request("nobody", ttl=1)
    monkeypatch.setattr(net.router.liveness, "tick", broken)
    monkeypatch.setattr(net.router.directory, "tick", broken)
    net.router.tick(net.now + 1.5)
    net.router.dirty.extend([])
    monkeypatch.undo()
    net.run()
    assert call.end.kind is Kind.ERROR


def test_one_deadline_that_raises_keeps_no_other_from_passing(faulty: tuple[Network, Bystanders], monkeypatch: Any):
    net, bystanders = faulty
    first = bystanders.api.request("nobody", ttl=1)
    second = bystanders.api.request("nobody", ttl=1)
    whole = RequestTable._time_out

    def time_out(table: RequestTable, now: float, request: Any, link: Any) -> None:
        if request.key == first.key:
            raise ZeroDivisionError("a bug")
        whole(table, now, request, link)

    monkeypatch.setattr(RequestTable, "_time_out", time_out)
    net.advance(1.5)
    assert second.end.kind is Kind.ERROR and not first.ends


def test_one_link_that_raises_when_it_is_looked_at(faulty: tuple[Network, Bystanders], monkeypatch: Any):
    net, _ = faulty
    mallory, silent = net.process("mallory"), net.process("silent")
    whole = net.router.liveness._check_silence

    def check_silence(now: float, link: Any) -> None:
        if link.identity == "mallory":
            raise ZeroDivisionError("a bug")
        whole(now, link)

    monkeypatch.setattr(net.router.liveness, "_check_silence", check_silence)
    silent.cut_off()
    net.advance(15)
    assert net.link(mallory).is_responsive
    assert not net.link(silent).is_responsive


def test_a_bug_that_comes_with_each_message_does_not_fill_the_log():
    net = Network()
    mallory = net.process("mallory")
    net.router.kinds.handlers[Kind.PUBLISH] = broken
    for _ in range(1000):
        mallory.publish("a")
    assert net.router.refused["internal error"] == 1000
    assert len([n for n in net.notes if n.event == "internal error"]) <= 6
