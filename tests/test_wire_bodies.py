"""Bodies of control messages: read, written, refused by the member's name, and documented."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from rpcmq.errors import ProtocolError
from rpcmq.wire import control, parse
from rpcmq.wire.bodies import (
    DeclareBody,
    DrainBody,
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

PROTOCOL = Path(__file__).parents[1] / "docs" / "protocol.md"
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
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_what_is_written_is_read(body: Body) -> None:
    message = body.message(key=bytes(range(20)))
    assert parse(message).kind == body.KIND
    assert type(body).of(message) == body


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
    ],
)
def test_a_malformed_member_is_named(kind: type[Body], body: dict[str, Any], name: str, reason: str) -> None:
    with pytest.raises(ProtocolError, match=name) as error:
        kind.of(control(kind.KIND, body))
    assert error.value.reason == reason
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(("heading", "body"), [("HELLO", HelloBody), ("WELCOME", WelcomeBody)])
def test_each_member_is_in_the_specification(heading: str, body: type[Body]) -> None:
    section = PROTOCOL.read_text().partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    informative = {"boot"} if body is HelloBody else set()
    assert {each.name for each in fields(body)} == named - informative
