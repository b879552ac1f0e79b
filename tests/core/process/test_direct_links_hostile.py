"""Direct links under attack: what a peer that was introduced, or was not, can make a process do or hold."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcmq.core.process import direct_links as peers_module
from rpcmq.core.process.call import Call
from rpcmq.core.process.calls import Calls
from rpcmq.core.process.casts import Casts
from rpcmq.core.process.direct_links import DirectLink, DirectLinkTable
from rpcmq.core.process.task import Registration
from rpcmq.core.process.task_table import TaskTable
from rpcmq.core.process.uplink import Uplink
from rpcmq.errors import Outcome
from rpcmq.wire import (
    MAX_BATCH_MESSAGES,
    Address,
    Flag,
    Kind,
    body_of,
    control,
    json_bytes,
    pack,
    size_of,
    split,
)
from rpcmq.wire.bodies import HelloBody
from tests.fuzz.frames import FrameMaker

COMPUTE = Address("compute").encode()


def made(credit: int = 10) -> tuple[DirectLinkTable, Registration]:
    """A process that serves ``compute`` directly."""
    uplink = Uplink(
        HelloBody(versions=(1,), identity="node", queue_type="roundrobin"), lambda now, welcome: None, lambda a, b: None
    )
    serving = TaskTable(uplink, Calls(uplink, Casts(uplink, lambda message, error: None)))
    registration = serving.registrations[0] = Registration(0, Address("compute"), credit, "", lambda task: None)
    return DirectLinkTable("node", serving), registration


def introduced(peers: DirectLinkTable, name: str = "mallory") -> DirectLink:
    route = name.encode()
    peers.announce(0.0, name, name, topic="compute")
    peers.receive(0.0, route, control(Kind.HELLO, {"identity": name, "ticket": name, "versions": [1]}))
    link = peers.links[route]
    link.outbox.clear()
    return link


def request(link: DirectLink, key: bytes = b"", payload: bytes = b"{}", **fields: Any) -> bytes:
    return pack(Kind.REQUEST, payload, key=key or link.next_key(), format=1, address=COMPUTE, method=b"run", **fields)


def say(peers: DirectLinkTable, link: DirectLink, *messages: bytes) -> list[Any]:
    """Bodies of the answers."""
    payloads = [message.payload for message in messages if message[7] & Flag.DETACHED]  # type: ignore[attr-defined]
    peers.receive(0.0, link.route, b"".join(messages), tuple(payloads))
    answers, link.outbox = link.outbox, []
    peers.dirty.clear()
    return [body_of(answer) for answer in answers]


# --- calls ---------------------------------------------------------------------------------------


def test_a_sequence_that_is_used_twice_gets_round_no_credit() -> None:
    peers, registration = made(credit=2)
    link = introduced(peers)
    again = request(link)
    (*refused,) = say(peers, link, *[again] * 1000)
    assert len(peers._tasks.delivered) == 1 and len(registration.running) == 1
    assert {answer["outcome"] for answer in refused} == {Outcome.PROTOCOL} and len(refused) == 999
    # Neither where it waits.
    waiting = [request(link) for _ in range(2)]
    say(peers, link, *waiting, *waiting)
    assert len(registration.running) == 2 and len(registration.waiting) == 1


def test_direct_calls_that_wait_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "MAX_WAITING_BYTES", 100_000)
    peers, registration = made(credit=1)
    link = introduced(peers)
    large = bytes(40_000)
    answers = say(peers, link, *(request(link, payload=large) for _ in range(6)))
    assert len(registration.running) == 1 and len(registration.waiting) == 2
    assert [answer["outcome"] for answer in answers] == [Outcome.OVERLOADED] * 3
    assert "MAX" not in answers[0]["text"] and "100000 bytes" in answers[0]["text"]
    # They have room again when those have run.
    for _ in range(3):
        task = peers._tasks.delivered.pop()
        peers._tasks.answer(0.0, task, Kind.REPLY, 1, b"null")
    assert not registration.waiting and registration.waiting_bytes == 0


def test_a_cancel_looks_at_no_other_call() -> None:
    peers, registration = made(credit=1)
    link, other = introduced(peers), introduced(peers, "other")
    keys = [link.next_key() for _ in range(1000)]
    say(peers, link, *(request(link, key) for key in keys))

    class Looked(dict[bytes, Any]):
        def values(self) -> Any:
            raise AssertionError("all calls were looked at")

    registration.running, registration.waiting = Looked(registration.running), Looked(registration.waiting)
    say(peers, other, pack(Kind.CANCEL, key=keys[0]), pack(Kind.CANCEL, key=keys[5]))
    assert len(registration.waiting) == 999 and not peers.refused
    say(peers, link, pack(Kind.CANCEL, key=keys[0]), pack(Kind.CANCEL, key=keys[5]))
    assert registration.running[keys[0]].is_for_nobody and keys[5] not in registration.waiting


def test_a_stream_is_refused_where_nobody_could_grant_its_items() -> None:
    peers, registration = made()
    link = introduced(peers)
    (answer,) = say(peers, link, request(link, flags=Flag.STREAM))
    assert answer["outcome"] == Outcome.PROTOCOL and "stream" in answer["text"]
    assert not registration.running


def test_a_batch_has_no_more_messages_than_a_router_takes() -> None:
    peers, _ = made()
    link = introduced(peers)
    many = pack(Kind.CANCEL, key=link.next_key()) * (MAX_BATCH_MESSAGES + 1)
    assert say(peers, link, many) == []
    assert peers.refused == {"batch": 1}


# --- answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("handle", [True, "5", -1, 1 << 64, None])
def test_a_welcome_with_an_absurd_handle_is_not_used(handle: object) -> None:
    peers, _ = made()
    link = peers.connect(b"r", "service", "ticket")
    peers.receive(0.0, b"r", control(Kind.WELCOME, {"identity": "service", "handle": handle}))
    assert not link.welcomed and peers.refused == {"body": 1}


def outbound(peers: DirectLinkTable) -> tuple[DirectLink, Call]:
    link = peers.connect(b"r", "service", "ticket")
    peers.receive(0.0, b"r", control(Kind.WELCOME, {"identity": "service", "handle": 5}))
    call = Call("compute", 0, 5.0)
    peers.start(link, call, b"{}", 1, COMPUTE, b"run")
    link.outbox.clear()
    return link, call


def test_answers_that_nobody_asked_for_or_that_come_twice_are_counted_and_change_nothing() -> None:
    peers, _ = made()
    link, call = outbound(peers)
    unasked = link.origin + (77).to_bytes(8)
    for kind in (Kind.REPLY, Kind.FAULT, Kind.ALIVE):
        say(peers, link, pack(kind, b"1", format=1, key=unasked))
    say(peers, link, pack(Kind.REPLY, b"1", format=1, key=call.key))
    first = call.answer
    say(
        peers,
        link,
        pack(Kind.REPLY, b"2", format=1, key=call.key),
        pack(Kind.ALIVE, b"3", key=call.key),
    )
    assert call.answer is first and call.progress == [] and peers.changed == [call]
    assert peers.refused == {"late reply": 3}


@pytest.mark.parametrize("outcome", [None, "4", -1, 1 << 70, 4.5, True, [], {}])
@pytest.mark.parametrize("text", ["no", None, 5, ["x"] * 10])
def test_an_error_of_any_form_ends_the_call(outcome: Any, text: Any) -> None:
    peers, _ = made()
    link, call = outbound(peers)
    say(peers, link, control(Kind.ERROR, {"outcome": outcome, "text": text}, key=call.key))
    assert call.done and call.error is not None and not link.calls
    assert str(call.error)


def test_the_text_of_an_error_is_bounded() -> None:
    peers, _ = made()
    link, call = outbound(peers)
    say(peers, link, control(Kind.ERROR, {"outcome": 4, "text": "x" * 20_000}, key=call.key))
    assert call.error is not None and len(str(call.error)) < 1000
    link, call = outbound(made()[0])


@pytest.mark.parametrize("body", [{"identity": 5}, {"ticket": ["t"]}, {"versions": [2]}])
def test_a_malformed_hello_is_refused_by_the_name_of_its_member(body: dict[str, Any]) -> None:
    peers, _ = made()
    peers.announce(0.0, "t", "mallory", topic="compute")
    peers.receive(0.0, b"r", control(Kind.HELLO, {"identity": "mallory", "ticket": "t", "versions": [1]} | body))
    ((refused,),) = (link.outbox for link in peers.dirty)
    assert body_of(refused)["reason"] == "protocol" and next(iter(body)).removesuffix("s") in body_of(refused)["text"]
    assert not peers.links


def test_the_text_of_a_refusal_is_bounded() -> None:
    peers, _ = made()
    link, call = outbound(peers)
    say(peers, link, control(Kind.REFUSED, {"reason": "ticket", "text": "x" * 20_000}))
    assert call.error is not None and len(str(call.error)) < 1000 and len(link.closed) < 1000


def test_progress_that_nobody_takes_is_bounded() -> None:
    peers, _ = made()
    link, call = outbound(peers)
    for number in range(100):
        say(peers, link, *(pack(Kind.ALIVE, b"%d" % number, format=1, key=call.key) for _ in range(100)))
    assert len(call.progress) <= 100
    for _ in range(100):
        say(peers, link, pack(Kind.ALIVE, bytes(1 << 20), format=1, key=call.key))
    assert sum(map(size_of, call.progress)) <= 17 << 20
    # The newest are those that are kept.
    say(peers, link, pack(Kind.ALIVE, b"last", format=1, key=call.key))
    assert call.progress[-1].endswith(b"last")


# --- anything --------------------------------------------------------------------------------------

BODIES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["identity", "ticket", "versions", "handle", "outcome", "text", "details", "reason"])


@settings(max_examples=100)
@given(st.integers(0, 255), st.dictionaries(NAMES, BODIES), st.booleans())
def test_no_body_raises(kind: int, body: dict[str, Any], inbound: bool) -> None:
    peers, _ = made()
    link = introduced(peers) if inbound else outbound(peers)[0]
    key = next(iter(link.calls), link.next_key())
    peers.receive(0.0, link.route, control(kind, body, key=key, address=COMPUTE))
    peers.receive(0.0, b"stranger", control(kind, body, key=key))
    assert "internal error" not in peers.refused


@settings(max_examples=50)
@given(st.integers(0, 2**64 - 1))
def test_no_frames_raise_or_leave_more_than_is_allowed(seed: int) -> None:
    rng = Random(seed)
    peers, registration = made(credit=3)
    links = [introduced(peers), introduced(peers, "other"), outbound(peers)[0]]
    frames = FrameMaker(rng, [link.origin for link in links], {})
    for _ in range(60):
        link = rng.choice(links)
        batch, payloads = frames.batch(link.origin)
        peers.receive(0.0, link.route, batch, tuple(payloads))
        for task in peers._tasks.delivered:
            assert registration.running[task.key] is task
        assert len(registration.running) <= 3
    assert "internal error" not in peers.refused
    assert registration.waiting_bytes == sum(len(task.payload) for task in registration.waiting.values())


def test_what_deep_json_makes_of_a_body_is_refused() -> None:
    peers, _ = made()
    link = introduced(peers)
    for text in ("[" * 100_000, '{"identity":' * 5000 + "1" + "}" * 5000):
        peers.receive(0.0, link.route, pack(Kind.WELCOME, text.encode()[:30_000], format=1))
        peers.receive(0.0, b"x", pack(Kind.HELLO, text.encode()[:30_000], format=1))
    assert peers.refused["body"] >= 2
    assert json.loads(json_bytes({"a": 1})) and split(control(Kind.HELLO, {}))


def test_a_batch_of_a_stranger_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    peers, _ = made()
    monkeypatch.setattr(peers_module, "split", None)
    batch = pack(Kind.CANCEL) * 4000
    assert peers.receive(0.0, b"stranger", batch) == 1
    assert peers.refused == {"stranger": 1}


def test_what_comes_with_a_hello_is_not_looked_at() -> None:
    peers, registration = made()
    peers.announce(0.0, "good", "mallory", topic="compute")
    hello = control(Kind.HELLO, {"identity": "mallory", "ticket": "good", "versions": [1]})
    early = pack(Kind.REQUEST, b"{}", format=1, key=bytes(20), address=COMPUTE)
    assert peers.receive(0.0, b"r", hello + early * 4000) == 1
    assert list(peers.links) == [b"r"] and not registration.running and not peers.refused
