"""Bad input: each is counted, attributed and answered; the router and everyone else go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rpcmq.core.router.actions import LinkDetached
from rpcmq.errors import Outcome
from rpcmq.testing.network import Message, Network, Process
from rpcmq.wire import (
    DETACH_BYTES,
    FIRST_SESSION_KIND,
    HEADER,
    VERSION,
    Address,
    Flag,
    Kind,
    control,
    json_bytes,
    pack,
)

COMPUTE = Address("compute").encode()


@pytest.fixture
def bystanders(net: Network):
    """A caller and a service that must not notice: their conversation goes on when the test is over."""
    api, node = net.process("bystander"), net.process("service")
    node.register("service", credit=10)
    call = api.request("service", ttl=1000)
    yield
    node.reply(node.take(Kind.REQUEST), b"all is well")
    assert call.end.payload == b"all is well"
    assert api.refusals == node.refusals == []
    after = api.request("service", ttl=1000)
    node.reply(node.take(Kind.REQUEST), b"and stays so")
    assert after.end.payload == b"and stays so"


pytestmark = pytest.mark.usefixtures("bystanders")


@pytest.fixture
def mallory(net: Network) -> Process:
    return net.process("mallory")


def header(**fields: Any) -> bytes:
    """A header with any fields, right or wrong."""
    values = dict.fromkeys(
        ("length", "version", "kind", "flags", "hops", "attempt", "format", "consumer", "ttl", "router", "handle",
         "sequence", "address", "method", "trace"), 0,
    )  # fmt: skip
    values |= {"length": HEADER.size, "version": VERSION, "kind": Kind.CAST, "format": 1} | fields
    return HEADER.pack(*values.values())


def cast(mallory: Process, **fields: Any) -> bytes:
    """A cast of ``mallory`` that is right but for ``fields``."""
    right: dict[str, Any] = {"key": mallory.uplink.next_key(), "format": 1, "address": COMPUTE}
    return pack(Kind.CAST, b"x", **right | fields)


# --- frames ----------------------------------------------------------------------------------

FRAMES = {
    "empty": (b"", "truncated"),
    "one byte": (b"\0", "truncated"),
    "shorter than a header": (header()[:-1], "truncated"),
    "length below the header": (header(length=39), "length"),
    "length of zero": (header(length=0), "length"),
    "length beyond the frame": (header(length=41), "length"),
    "length beyond all": (header(length=2**32 - 1), "length"),
    "version 0": (header(version=0), "version"),
    "version 2": (header(version=2), "version"),
    "second message truncated": (header() + b"xx", "truncated"),
    "second message of another version": (header() + header(version=9), "version"),
    "payload frame missing": (header(flags=Flag.DETACHED), "detached"),
    "text": (b"GET / HTTP/1.1\r\nHost: example\r\nUser-Agent: x\r\n\r\n", "length"),
}


@pytest.mark.parametrize(("frame", "reason"), FRAMES.values(), ids=FRAMES.keys())
def test_a_malformed_frame_of_a_stranger(net: Network, frame: bytes, reason: str):
    (answer,) = net.inject(b"stranger", frame)
    assert answer.kind is Kind.REFUSED and answer.body["reason"] == "protocol" and answer.body["text"]
    assert net.router.refused == {reason: 1}


@pytest.mark.parametrize(("frame", "reason"), FRAMES.values(), ids=FRAMES.keys())
def test_a_malformed_frame_on_a_link(net: Network, mallory: Process, frame: bytes, reason: str):
    mallory.inject(frame)
    assert net.router.refused == {reason: 1}
    assert net.link(mallory).counters[f"refused {reason}"] == 1
    assert [r for r, _ in mallory.refusals] == ["protocol"]
    (note,) = (n for n in net.notes if n.event == "offence")
    assert note.identity == "mallory" and note.text.startswith("mallory: ")


def test_more_payload_frames_than_messages_that_have_one(net: Network, mallory: Process):
    mallory.inject(cast(mallory), b"surplus")
    mallory.inject(pack(Kind.CAST, b"x" * DETACH_BYTES, address=COMPUTE, format=1), b"x", b"surplus")
    assert net.router.refused == {"detached": 2}


def test_nothing_of_a_batch_with_a_bad_message_is_used(net: Network, mallory: Process):
    mallory.inject(cast(mallory) + b"garbage")
    assert len(net.router.directory) == 1, "no topic was made for the first message"


# --- messages --------------------------------------------------------------------------------


def refused_message(net: Network, mallory: Process, message: bytes, reason: str) -> Message:
    """``message`` is answered with an ERROR of its own, counted and attributed."""
    mallory.uplink.send(message)
    net.run()
    (error,) = mallory.got(Kind.ERROR)
    assert error.key == message[16:36] and error.outcome is Outcome.PROTOCOL
    assert error.body["details"] == {"reason": reason} and error.body["text"]
    assert net.router.refused == {reason: 1}
    assert net.link(mallory).counters[f"refused {reason}"] == 1
    return error


ADDRESSES = {
    "missing": b"",
    "shorter than its lengths": b"\0\1",
    "lengths beyond the block": b"\0\x09\0compute",
    "lengths short of the block": b"\0\6\0compute",
    "empty topic": b"\0\0\0",
    "server without a topic": b"\0\0\1a",
    "not UTF-8": b"\0\2\0\xff\xfe",
    "a control character": b"\0\2\0a\n",
    "a zero byte": b"\0\2\0a\0",
    "a line separator": b"\0\3\0\xe2\x80\xa8",
    "a control character in the exchange": b"\1\1\0\x1ba",
    "a control character in the server": b"\0\1\1a\x7f",
}
ADDRESSED = {Kind.REQUEST: b"", Kind.CAST: b"", Kind.PUBLISH: b"", Kind.INTRODUCE: b"", Kind.SUBSCRIBE: b"{}"}


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES.keys())
@pytest.mark.parametrize("kind", [*ADDRESSED, Kind.REGISTER])
def test_an_absurd_address(net: Network, mallory: Process, kind: Kind, address: bytes):
    body = b'{"credit":1}' if kind == Kind.REGISTER else ADDRESSED[kind]
    message = pack(kind, body, key=mallory.uplink.next_key(), format=1, address=address)
    refused_message(net, mallory, message, "address")
    assert len(net.router.directory) == 1


@pytest.mark.parametrize("kind", [*ADDRESSED, Kind.REGISTER, Kind.QUERY])
def test_variable_parts_that_do_not_fit(net: Network, mallory: Process, kind: Kind):
    key = mallory.uplink.next_key()
    router, handle, sequence = (int.from_bytes(b) for b in (key[:4], key[4:12], key[12:]))
    named = {"kind": kind, "router": router, "handle": handle, "sequence": sequence}
    refused_message(net, mallory, header(**named, address=10, trace=200), "length")


@pytest.mark.parametrize("kind", [Kind.REQUEST, Kind.CAST])
@pytest.mark.parametrize("length", [0, 5, 40])
def test_variable_parts_that_do_not_fit_of_an_address_that_is_known(
    net: Network, mallory: Process, kind: Kind, length: int
):
    """The short way for known addresses must check as much as the long one."""
    mallory.cast("compute")
    message = pack(kind, b"x" * length, key=mallory.uplink.next_key(), format=1, address=COMPUTE)
    message = message[:39] + bytes([length + 1]) + message[40:]
    refused_message(net, mallory, message, "length")


@pytest.mark.parametrize("kind", [Kind.REQUEST, Kind.CAST])
def test_a_method_that_is_not_utf8(net: Network, mallory: Process, kind: Kind):
    message = pack(kind, key=mallory.uplink.next_key(), format=1, address=COMPUTE, method=b"\xff\xff")
    refused_message(net, mallory, message, "address")


@pytest.mark.parametrize("kind", [Kind.REQUEST, Kind.CAST, Kind.PUBLISH])
def test_a_message_in_anothers_name(net: Network, mallory: Process, kind: Kind):
    other = net.process("other")
    message = pack(kind, key=other.uplink.origin + bytes(8), format=1, address=COMPUTE)
    refused_message(net, mallory, message, "origin")
    assert other.got() == []


@pytest.mark.parametrize("kind", [Kind.REQUEST, Kind.CAST])
@pytest.mark.parametrize("form", [0, 8, 255])
def test_an_unknown_payload_format(net: Network, mallory: Process, kind: Kind, form: int):
    message = pack(kind, key=mallory.uplink.next_key(), format=form, address=COMPUTE)
    refused_message(net, mallory, message, "format")


def test_a_sequence_that_is_in_flight(net: Network, mallory: Process):
    node = net.process("node")
    node.register("compute", credit=5)
    call = mallory.request("compute")
    message = pack(Kind.REQUEST, key=call.key, format=1, address=COMPUTE)
    refused_message(net, mallory, message, "duplicate")
    assert len(node.got(Kind.REQUEST)) == 1


@pytest.mark.parametrize("credit", [0, -1, 65536, 10**30, "5", None, 1.5, [], {}, True])
def test_an_absurd_credit(net: Network, mallory: Process, credit: object):
    mallory.register("compute", credit=credit)  # type: ignore[arg-type]
    error = mallory.take(Kind.ERROR)
    assert "must be an integer from 1 to 65535" in error.body["text"]
    assert net.router.refused == {"credit": 1} and net.link(mallory).consumers == {}


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b"\xff\xfe", b"1e999", b"[" * 5000, b'"' * 3])
@pytest.mark.parametrize("kind", [Kind.REGISTER, Kind.SUBSCRIBE, Kind.QUERY])
def test_a_body_that_is_no_json_object(net: Network, mallory: Process, kind: Kind, body: bytes):
    message = pack(kind, body, key=mallory.uplink.next_key(), format=1, address=COMPUTE)
    refused_message(net, mallory, message, "body")


def test_an_error_does_not_send_back_megabytes(net: Network, mallory: Process):
    mallory.register("compute", credit=["x" * 1_000_000])  # type: ignore[arg-type]
    assert len(mallory.take(Kind.ERROR).message) < 2000
    assert max(len(note.text) for note in net.notes) < 1000


UNKNOWN_KINDS = [
    kind
    for kind in range(FIRST_SESSION_KIND, 256)
    if kind not in set(Kind)
    or kind
    in {
        Kind.ERROR, Kind.CONFIRM, Kind.REGISTERED, Kind.SUBSCRIBED, Kind.LOST, Kind.INTRODUCTION, Kind.ANSWER,
    }
]  # fmt: skip


def test_kinds_that_are_unknown_or_not_for_a_router(net: Network, mallory: Process):
    for kind in UNKNOWN_KINDS:
        mallory.send(kind)
    assert net.router.refused == {"kind": len(UNKNOWN_KINDS)}
    assert net.link(mallory).counters["refused kind"] == len(UNKNOWN_KINDS)


def test_a_message_about_the_link_inside_a_batch(net: Network, mallory: Process):
    mallory.inject(cast(mallory) + pack(Kind.GOODBYE))
    assert net.router.refused == {"kind": 1} and net.link(mallory).is_responsive


def test_the_rest_of_a_batch_is_used_when_one_message_is_refused(net: Network, mallory: Process):
    node = net.process("node")
    node.register("compute", credit=5)
    with net.together():
        mallory.cast("compute", payload=b"before")
        mallory.cast("compute", format=99)
        mallory.cast("compute", payload=b"after")
    assert [m.payload for m in node.got(Kind.CAST)] == [b"before", b"after"]


def test_a_fault_of_the_router_costs_one_message_and_is_told_to_the_operator(net: Network, mallory: Process):
    """Should a message ever meet a bug: it is counted and logged, and the session stays in step."""
    node = net.process("node")
    node.register("compute", credit=5)

    def broken(now: float, link: object, message: bytes) -> None:
        raise ZeroDivisionError("a bug")

    net.router.kinds.handlers[Kind.PUBLISH] = broken
    with net.together():
        mallory.cast("compute", payload=b"before")
        mallory.publish("a")
        mallory.cast("compute", payload=b"after")
    assert [m.payload for m in node.got(Kind.CAST)] == [b"before", b"after"]
    assert net.router.refused == {"internal error": 1} and net.link(mallory).received == 3
    (note,) = [n for n in net.notes if n.event == "internal error"]
    assert "ZeroDivisionError: a bug" in note.text and note.identity == "mallory"
    net.notes.remove(note)


def test_refused_messages_count_for_the_session(net: Network, mallory: Process):
    """Otherwise they would be sent again after a reconnect, and again."""
    for _ in range(5):
        mallory.cast("compute", format=99)
    assert net.link(mallory).received == 5
    mallory.lose()
    mallory.connect()
    assert mallory.uplink.unacknowledged == 0 and net.router.refused == {"format": 5}


# --- as a consumer ---------------------------------------------------------------------------


@pytest.fixture
def served(net: Network, mallory: Process) -> tuple[Process, Message]:
    """A caller, and its request that mallory has."""
    mallory.register("compute", credit=1)
    api = net.process("api")
    api.request("compute", ttl=1000)
    return api, mallory.take(Kind.REQUEST)


def test_a_reply_for_an_unknown_call(net: Network, mallory: Process, served: tuple[Process, Message]):
    api, request = served
    for key in (bytes(20), request.key[:12] + bytes(8), b"\xff" * 20):
        mallory.send(Kind.REPLY, b"forged", key=key)
    assert api.got() == []
    assert net.link(mallory).counters["reply for an unknown call"] == 3


@pytest.mark.parametrize("kind", [Kind.REPLY, Kind.FAULT, Kind.END, Kind.ITEM, Kind.ALIVE])
def test_an_answer_to_a_call_that_another_has(
    net: Network, mallory: Process, served: tuple[Process, Message], kind: Kind
):
    api, request = served
    thief = net.process("thief")
    thief.register("compute")
    thief.send(kind, b"forged", key=request.key)
    assert api.got() == []
    mallory.reply(request, b"the true one")
    assert api.take(Kind.REPLY).payload == b"the true one"


@pytest.mark.parametrize("fields", [{"consumer": 9}, {"attempt": 1}, {"attempt": 255}])
@pytest.mark.parametrize("kind", [Kind.REPLY, Kind.ITEM])
def test_an_answer_with_the_wrong_consumer_or_attempt(
    net: Network, mallory: Process, served: tuple[Process, Message], kind: Kind, fields: dict[str, int]
):
    api, request = served
    mallory.send(kind, b"wrong", key=request.key, **fields)
    assert api.got() == []
    mallory.reply(request, b"right")
    assert api.take(Kind.REPLY).payload == b"right"


@pytest.mark.parametrize("kind", [Kind.REPLY, Kind.FAULT, Kind.END])
def test_a_malformed_reply_ends_the_call_all_the_same(
    net: Network, mallory: Process, served: tuple[Process, Message], kind: Kind
):
    """The caller must not have to parse it, and must not wait for its deadline either."""
    api, request = served
    key = request.key
    router, handle, sequence = (int.from_bytes(b) for b in (key[:4], key[4:12], key[12:]))
    mallory.uplink.send(header(kind=kind, router=router, handle=handle, sequence=sequence, trace=200))
    net.run()
    (error,) = api.got()
    assert error.kind is Kind.ERROR and error.outcome is Outcome.PROTOCOL
    assert error.body["text"] == "mallory sent a malformed reply"
    assert net.link(mallory).counters["malformed reply"] == 1
    (row,) = (r for r in api.query("methods")["methods"] if r["topic"] == "compute")
    assert row["outcomes"] == {"protocol": 1}


def test_a_malformed_item_goes_nowhere(net: Network, mallory: Process, served: tuple[Process, Message]):
    api, request = served
    mallory.send(Kind.ITEM, b"x" * 9, key=request.key, method=b"m")
    assert api.got() == [] and net.link(mallory).counters["item of an unknown call"] == 1


@pytest.mark.parametrize("size", [1, 25, 27])
def test_a_settlement_that_is_no_whole_number_of_entries(net: Network, mallory: Process, size: int):
    mallory.send(Kind.SETTLE, b"x" * size)
    assert net.router.refused == {"length": 1}


def test_a_settlement_of_an_unknown_consumer(net: Network, mallory: Process):
    mallory.send(Kind.SETTLE, bytes(26), consumer=77)
    assert net.link(mallory).counters["settlement of an unknown consumer"] == 1


def test_unregistering_the_unknown(net: Network, mallory: Process):
    mallory.unregister(77)
    assert net.router.refused == {"tag": 1}


def test_a_consumer_that_takes_and_never_answers(net: Network, mallory: Process):
    api, node = net.process("api"), net.process("node")
    mallory.register("compute", credit=2)
    node.register("compute", credit=2)
    calls = [api.request("compute", ttl=10) for _ in range(6)]
    for _ in range(4):
        node.reply(node.take(Kind.REQUEST), b"ok")
    net.advance(11)
    outcomes = [call.end.outcome for call in calls]
    assert outcomes.count(Outcome.TIMEOUT) == 2 and outcomes.count(Outcome.OK) == 4
    timeouts = [c.end.body["text"] for c in calls if c.end.outcome is Outcome.TIMEOUT]
    assert timeouts == ["with mallory for 10.0 s, running"] * 2


# --- as a caller -----------------------------------------------------------------------------


def test_grant_and_cancel_for_what_is_not_ones_own(net: Network, mallory: Process):
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    call = api.request("compute", flags=Flag.STREAM)
    mallory.send(Kind.CANCEL, key=call.key)
    mallory.send(Kind.GRANT, (1000).to_bytes(4), key=call.key)
    assert node.got(Kind.CANCEL, Kind.GRANT) == []
    node.end(node.take(Kind.REQUEST))
    assert call.end.kind is Kind.END


def test_a_malformed_grant_is_not_passed_on(net: Network, mallory: Process):
    """It is the router that counts it and says so, not the consumer that nobody asked."""
    node = net.process("node")
    node.register("compute")
    call = mallory.request("compute", flags=Flag.STREAM)
    message = pack(Kind.GRANT, (1).to_bytes(4), key=call.key)
    mallory.uplink.send(message[:39] + b"\xff" + message[40:])
    net.run()
    assert node.got(Kind.GRANT) == []
    assert net.router.refused == {"length": 1}


@pytest.mark.parametrize("field", ["attempt", "consumer"])
@pytest.mark.parametrize("make", [Process.request, Process.cast], ids=["call", "cast"])
def test_a_caller_cannot_cost_a_consumer_its_credit(
    net: Network, mallory: Process, make: Callable[..., Any], field: str
):
    """A delivery that its consumer cannot match would never be settled."""
    node = net.process("node")
    node.register("compute", credit=1)
    make(mallory, "compute", **{field: 5})
    delivered = node.got(Kind.REQUEST, Kind.CAST)
    assert [(m.header.attempt, m.header.consumer) for m in delivered] in ([], [(0, 0)])


def test_a_flood_of_topics_leaves_room_for_those_that_are_served(make_net):
    net = make_net(max_unclaimed_topics=100)
    mallory, api, node = net.process("mallory"), net.process("api"), net.process("node")
    for i in range(500):
        mallory.cast(f"junk-{i}", server=f"s-{i}")
    node.register("compute", server="node-7")
    call = api.request("compute.node-7")
    node.reply(node.take(Kind.REQUEST))
    assert call.end.outcome is Outcome.OK
    assert net.link(mallory).counters["refused too many topics"] >= 400


def test_a_batch_has_so_many_messages_at_most(net: Network):
    api = net.process("api")
    message = pack(Kind.CAST, key=net.link(api).origin + bytes(8), address=b"\0\1\0c", format=1)
    assert api.connection is not None
    net.inject(api.connection.route, message * 5000)
    assert net.router.refused["batch"] == 1 and api.refusals[-1][0] == "protocol"
    assert "c" not in [topic.address.topic for topic in net.router.directory]


def test_a_topic_has_so_many_groups_at_most(net: Network, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rpcmq.core.router.directory._MAX_GROUPS", 3)
    node = net.process("node")
    for number in range(5):
        body = json_bytes({"group": f"g{number}"})
        node.send(Kind.DECLARE, body, format=1, address=b"\0\7\0compute")
    assert net.router.refused["too many groups"] == 2


def test_a_connection_that_its_link_has_left_is_reported(net: Network):
    api = net.process("api")
    assert api.connection is not None
    route = api.connection.route
    net.router.receive(net.now, route, pack(Kind.GOODBYE))
    assert LinkDetached(route) in net.router.actions


def test_a_connection_whose_link_was_taken_over_is_reported_and_the_new_one_is_not(net: Network):
    api = net.process("api")
    assert api.connection is not None
    old, token = api.connection.route, api.welcome.token
    hello = {"identity": "api", "queue_type": "roundrobin", "versions": [1], "token": token, "received": 0}
    net.router.receive(net.now, b"new", control(Kind.HELLO, hello))
    assert [a.route for a in net.router.actions if isinstance(a, LinkDetached)] == [old]
    net.router.actions.clear()
    net.router.receive(net.now, b"new", control(Kind.HELLO, hello))
    assert not [a for a in net.router.actions if isinstance(a, LinkDetached)] and b"new" in net.router.links.routes
