"""Bodies of control messages: read, written, refused by the member's name, and documented."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcmq.errors import Outcome, ProtocolError
from rpcmq.wire import control, parse, payload_of
from rpcmq.wire.bodies import (
    DeclareBody,
    DirectHelloBody,
    DirectWelcomeBody,
    DrainBody,
    DroppedBody,
    ErrorBody,
    HelloBody,
    IntroductionBody,
    RefusedBody,
    RegisterBody,
    RegisteredBody,
    SubscribeBody,
    SubscribedBody,
    WelcomeBody,
)
from rpcmq.wire.body_fields import Body
from rpcmq.wire.query_bodies import (
    CallerAnswer,
    CallerQuery,
    KickAnswer,
    KickQuery,
    MeshForgetQuery,
    MeshJoinQuery,
    MeshLeaveQuery,
    MeshStateAnswer,
    PurgeAnswer,
    PurgeQuery,
    QueryBody,
)
from tests.protocol_pages import protocol_text

HELLO = {"versions": [1], "identity": "web", "queue_type": "roundrobin"}
WELCOME = {"router_id": 1, "boot": 2, "handle": (1 << 64) - 1, "token": "t", "received": 0}

BODIES: list[Body] = [
    HelloBody(versions=(1,), identity="web", queue_type="pubsub", token="t", handle=7, received=0, keeps=True),
    WelcomeBody(router_id=1, boot=2, handle=3, token="t", received=4, resumed=True, lost_seconds=9.0),
    RefusedBody(reason="draining", text="the router has shut down", received=3),
    DrainBody(text="the router is shutting down", answer=True),
    DeclareBody(group="g"),
    RegisterBody(credit=3, group="g", recent=b"\x01\xff", peer_url="tcp://10.0.0.7:1"),
    RegisteredBody(topic="compute"),
    SubscribeBody(window=5),
    SubscribedBody(pattern="a.#"),
    IntroductionBody(url="tcp://10.0.0.7:1", ticket="t", identity="node", topic="compute", accepts=3),
    IntroductionBody(revoked="KEY"),
    DirectHelloBody(identity="web", ticket="t"),
    DirectWelcomeBody(identity="node", handle=3),
    ErrorBody(outcome=3, text="no consumer", details={"topic": "compute"}),
    ErrorBody(outcome=255),
    DroppedBody(dropped=(("compute", "cast", "expired", 2), ("", "fanout", "aged out", 1 << 40))),
    QueryBody(what="topics"),
    PurgeQuery(topic="compute.node-7", exchange="glance", group="audit", forget=True),
    PurgeAnswer(known=True, casts=1, calls=2, remaining=3, forgotten=False),
    KickQuery(identity="web"),
    KickAnswer(links=2),
    CallerQuery(key=bytes(range(20))),
    CallerAnswer(identity="web"),
]
#: Bodies as they are written: other implementations, and the dispatch log, have seen them so.
WRITTEN: list[tuple[Body, str]] = [
    (
        HelloBody(versions=(1,), identity="web", queue_type="pubsub", accepts=("json",), pid=5, answers_drain=True),
        '{"identity":"web","queue_type":"pubsub","accepts":["json"],"pid":5,"versions":[1],"answers_drain":true}',
    ),
    (
        HelloBody(versions=(1,), identity="web", queue_type="pubsub", token="t", handle=7, boot=2, received=0),
        '{"identity":"web","queue_type":"pubsub","accepts":[],"versions":[1],"token":"t","handle":7,"boot":2,"received":0}',
    ),
    (RegisterBody(credit=3), '{"credit":3,"peer_url":""}'),
    (
        RegisterBody(credit=3, group="g", recent=b"\x01\xff", peer_url="u"),
        '{"credit":3,"peer_url":"u","group":"g","recent":"01ff"}',
    ),
    (DeclareBody(), "{}"),
    (DeclareBody(group="g"), '{"group":"g"}'),
    (SubscribeBody(window=5), '{"window":5}'),
    (RefusedBody(reason="ticket", text="too old"), '{"reason":"ticket","text":"too old"}'),
    (DirectHelloBody(identity="web", ticket="t"), '{"identity":"web","ticket":"t","versions":[1]}'),
    (DirectWelcomeBody(identity="node", handle=3), '{"identity":"node","handle":3}'),
    (
        ErrorBody(outcome=Outcome.NO_CONSUMER, text="none", details={"topic": "a"}),
        '{"outcome":3,"text":"none","details":{"topic":"a"}}',
    ),
    (ErrorBody(outcome=Outcome.PROTOCOL, text="bad"), '{"outcome":7,"text":"bad","details":{}}'),
    (DroppedBody(dropped=(("a", "cast", "expired", 2),)), '{"dropped":[["a","cast","expired",2]]}'),
    (QueryBody(what="topics"), '{"what":"topics"}'),
    (
        PurgeQuery(topic="a"),
        '{"what":"control.purge","topic":"a","exchange":"","group":"","forget":false}',
    ),
    (
        PurgeAnswer(known=True, casts=1, calls=2, remaining=3),
        '{"known":true,"casts":1,"calls":2,"remaining":3,"forgotten":false}',
    ),
    (KickQuery(identity="web"), '{"what":"control.kick","identity":"web"}'),
    (KickAnswer(links=2), '{"links":2}'),
    (MeshJoinQuery(url="tcp://a:7700"), '{"what":"control.mesh.join","url":"tcp://a:7700","server_key":""}'),
    (MeshForgetQuery(url="tcp://a:7700"), '{"what":"control.mesh.forget","url":"tcp://a:7700"}'),
    (MeshLeaveQuery(), '{"what":"control.mesh.leave"}'),
    (MeshStateAnswer(linked=2), '{"was_member":false,"linked":2}'),
    (CallerQuery(key=b"\x01\xff"), '{"what":"caller","key":"01ff"}'),
    (CallerAnswer(), '{"identity":""}'),
]
KINDS = sorted({type(body) for body in BODIES}, key=lambda kind: kind.__name__)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=60)
    | st.just("\ud800")
    | st.just(10**400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_what_is_written_is_read(body: Body) -> None:
    message = body.message(key=bytes(range(20)))
    assert parse(message).kind == body.KIND
    assert type(body).of(message) == body


@pytest.mark.parametrize(("body", "written"), WRITTEN, ids=lambda value: type(value).__name__)
def test_bodies_are_written_to_the_byte_as_they_always_were(body: Body, written: str) -> None:
    assert body.payload() == written.encode()
    assert bytes(payload_of(body.message(key=bytes(20)))) == written.encode()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=60)
@given(data=st.data())
def test_a_hostile_body_is_read_or_refused_by_the_name_of_its_member(kind: type[Body], data: st.DataObject) -> None:
    names = [each.name for each in fields(kind)]
    body = data.draw(st.dictionaries(st.sampled_from([*names, "other"]), VALUES))
    try:
        read = kind.parse(body)
    except ProtocolError as error:
        assert any(name.replace("_", " ") in str(error) or name in str(error) for name in [*names, "version"])
        assert len(str(error)) < 400
        str(error).encode("utf-8", "backslashreplace")
    else:
        # By what they show: NaN is not equal to itself.
        assert repr(kind.parse(json.loads(read.payload()))) == repr(read)


def test_members_that_are_absent_have_their_defaults() -> None:
    hello, welcome = HelloBody.parse(HELLO), WelcomeBody.parse(WELCOME)
    assert (hello.handle, hello.received, hello.accepts, hello.keeps, hello.role) == (None, None, (), False, "")
    assert (welcome.heartbeat_seconds, welcome.lost_seconds, welcome.recovery_seconds) == (5.0, None, 2.5)
    assert not (welcome.tells_delivered or welcome.error_names or welcome.stamps)


def test_members_that_are_unknown_are_ignored() -> None:
    assert SubscribeBody.parse({"window": 2, "colour": "red"}) == SubscribeBody(window=2)


def test_what_is_only_shown_is_read_as_text_and_cut() -> None:
    hello = HelloBody.parse(HELLO | {"pid": 4711, "host": "h" * 300, "keeps": 1, "accepts": ["json", 3]})
    assert (hello.pid, len(hello.host), hello.keeps, hello.accepts) == ("4711", 255, False, ("json",))


@pytest.mark.parametrize(
    ("kind", "body", "name", "reason"),
    [
        (HelloBody, {}, "version", "version"),
        (HelloBody, HELLO | {"versions": [True]}, "version", "version"),
        (HelloBody, HELLO | {"identity": ""}, "identity", "identity"),
        (HelloBody, HELLO | {"identity": "\u00e4" * 128}, "identity", "identity"),
        (HelloBody, HELLO | {"queue_type": ["pubsub"]}, "queue type", "queue-type"),
        (HelloBody, HELLO | {"handle": 1.0}, "handle", "protocol"),
        (HelloBody, HELLO | {"received": True}, "received", "protocol"),
        (WelcomeBody, {}, "router_id", "body"),
        (WelcomeBody, WELCOME | {"router_id": 1 << 32}, "router_id", "body"),
        (WelcomeBody, WELCOME | {"handle": -1}, "handle", "body"),
        (WelcomeBody, WELCOME | {"received": False}, "received", "body"),
        (WelcomeBody, WELCOME | {"token": None}, "token", "body"),
        (WelcomeBody, WELCOME | {"heartbeat_seconds": True}, "heartbeat_seconds", "body"),
        (WelcomeBody, WELCOME | {"heartbeat_seconds": float("nan")}, "heartbeat_seconds", "body"),
        (WelcomeBody, WELCOME | {"lost_seconds": 10**400}, "lost_seconds", "body"),
        (WelcomeBody, WELCOME | {"recovery_seconds": -1}, "recovery_seconds", "body"),
        (WelcomeBody, WELCOME | {"max_message_bytes": 0}, "max_message_bytes", "body"),
        (RegisterBody, {}, "credit", "credit"),
        (RegisterBody, {"credit": 65_536}, "credit", "credit"),
        (RegisterBody, {"credit": 1, "recent": "xy"}, "recent", "body"),
        (RegisterBody, {"credit": 1, "recent": [1]}, "recent", "body"),
        (DeclareBody, {"group": "g" * 256}, "group", "body"),
        (SubscribeBody, {"window": "7"}, "window", "credit"),
        (IntroductionBody, {"url": 5}, "url", "body"),
        (IntroductionBody, {"ticket": ["t"]}, "ticket", "body"),
        (IntroductionBody, {"accepts": -1}, "accepts", "body"),
        (DirectHelloBody, {"identity": None, "ticket": "t"}, "identity", "body"),
        (DirectHelloBody, {"identity": "a", "ticket": {}}, "ticket", "body"),
        (DirectHelloBody, {"identity": "a", "ticket": "t", "versions": [2]}, "version", "version"),
        (DirectWelcomeBody, {}, "handle", "body"),
        (DirectWelcomeBody, {"handle": 1 << 64}, "handle", "body"),
        (ErrorBody, {}, "outcome", "body"),
        (ErrorBody, {"outcome": True}, "outcome", "body"),
        (ErrorBody, {"outcome": 10**400}, "outcome", "body"),
        (ErrorBody, {"outcome": 4, "text": ["x"] * 100_000}, "text", "body"),
        (ErrorBody, {"outcome": 4, "details": []}, "details", "body"),
        (DroppedBody, {"dropped": {}}, "dropped", "body"),
        (DroppedBody, {"dropped": [["a", "cast", "expired", 0]]}, "dropped", "body"),
        (DroppedBody, {"dropped": [["a", "cast", "expired", 1], ["a", "cast", 5, 1]]}, "dropped", "body"),
        (DroppedBody, {"dropped": ["abcd"]}, "dropped", "body"),
        (QueryBody, {"what": 5}, "what", "query"),
        (PurgeQuery, {"what": "control.purge"}, "topic", "query"),
        (PurgeQuery, {"topic": "a", "group": 5}, "group", "query"),
        (PurgeAnswer, {"known": True, "casts": 1, "calls": -1, "remaining": 0}, "calls", "body"),
        (KickQuery, {"identity": ""}, "identity", "query"),
        (KickAnswer, {"links": None}, "links", "body"),
        (CallerQuery, {"key": "xyz" * 1000}, "key", "query"),
        (CallerAnswer, {"identity": 5}, "identity", "body"),
    ],
)
def test_a_malformed_member_is_named(kind: type[Body], body: dict[str, Any], name: str, reason: str) -> None:
    with pytest.raises(ProtocolError, match=name) as error:
        kind.of(control(kind.KIND, body))
    assert error.value.reason == reason
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(("heading", "body"), [("HELLO", HelloBody), ("WELCOME", WelcomeBody)])
def test_each_member_is_in_the_specification(heading: str, body: type[Body]) -> None:
    section = protocol_text().partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert {each.name for each in fields(body)} == named
