"""Floods that are cheap for whoever sends them: they take neither memory, nor places, nor the time of others."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import gevent
import pytest

from rpcmq.gateway import Gateway
from rpcmq.gateway.http import Gate
from rpcmq.testing import eventually
from tests.gateway.browsers import browser, frame
from tests.gateway.conftest import Demo, Secrets, Start, address_of

pytestmark = [pytest.mark.integration, pytest.mark.fault]

MIB = 1 << 20
#: A megabyte of text that is as many objects as it can be.
OBJECTS = b"[" + b"{}," * (MIB // 4) + b"1]"


@pytest.fixture
def gateway(start: Start) -> Gateway:
    return start()


def test_patterns_are_given_back_by_whoever_leaves_at_once(gateway: Gateway, token: str) -> None:
    for number in range(30):
        with browser(address_of(gateway)) as page:
            page.hello(token)
            page.socket.sendall(
                b"".join(
                    frame(1, json.dumps({"op": "subscribe", "id": n, "pattern": f"disk.n{number}.x{n}"}).encode())
                    for n in range(60)
                )
            )
            if number % 3:
                page.next()  # the rest are confirmed in the moment in which it leaves
    eventually(lambda: gateway.statistics()["connections"] == 0)
    eventually(lambda: gateway.statistics()["patterns"] == 0)
    assert gateway.statistics()["request_bytes"] == 0


def test_a_stranger_has_no_long_message_decoded(gateway: Gateway, token: str) -> None:
    with browser(address_of(gateway)) as page:
        page.socket.sendall(frame(1, OBJECTS))
        assert page.ended() == 1009
    with browser(address_of(gateway)) as page:
        assert page.hello(token)["op"] == "welcome"
        assert page.ask("publish", topic="disk.x", payload="x" * 500_000)["op"] == "result"


def test_calls_that_wait_take_bounded_memory(start: Start, token: str, demo: Demo) -> None:
    gateway = start(limits__bytes_per_second=1 << 30, limits__request_bytes=40 * MIB)
    with browser(address_of(gateway)) as page:
        page.hello(token)
        for number in range(4):
            head = b'{"op":"call","id":%d,"topic":"nobody","method":"m","args":{"x":' % number
            page.socket.sendall(frame(1, head + OBJECTS + b"}}"))
        refused = [page.next() for _ in range(3)]
        assert {each["error"]["type"] for each in refused} == {"Overloaded"}
        assert "limits.request_bytes" in refused[0]["error"]["text"]
        assert 30 * MIB < gateway.statistics()["request_bytes"] < 41 * MIB
        assert page.ask("call", topic="demo", method="echo")["op"] == "result"
        for number in range(4):
            page.send(op="cancel", id=number)
        eventually(lambda: gateway.statistics()["request_bytes"] == 0)


def test_messages_that_take_long_to_decode_come_one_at_a_time(start: Start, token: str, demo: Demo) -> None:
    gateway = start(limits__bytes_per_second=1 << 30)
    with ExitStack() as stack:
        heavy = [stack.enter_context(browser(address_of(gateway))) for _ in range(6)]
        for page in heavy:
            page.hello(token)
        honest = stack.enter_context(browser(address_of(gateway)))
        honest.hello(token)
        message = frame(1, b'{"op":"publish","id":1,"topic":"disk.x","payload":' + OBJECTS + b"}")
        senders = [gevent.spawn(page.socket.sendall, message) for page in heavy]
        assert honest.ask("call", topic="demo", method="echo")["op"] == "result"
        assert [page.next()["op"] for page in heavy] == ["result"] * 6
        gevent.joinall(senders, raise_error=True)


def test_credits_without_end_end_the_connection(gateway: Gateway, token: str, demo: Demo) -> None:
    with browser(address_of(gateway)) as page:
        page.hello(token)
        page.send(op="stream", id=1, topic="demo", method="wait", credit=1)
        page.socket.sendall(frame(1, b'{"op":"credit","id":1,"count":1000}') * 1000)
        assert page.ended() in (1008, 1006)
    eventually(lambda: gateway.statistics()["connections"] == 0)
    assert gateway.statistics()["ended"] == {"close 1008": 1}


@pytest.mark.parametrize(
    "message",
    [
        {"op": "call", "topic": "demo", "method": "\ud800"},
        {"op": "cast", "topic": "demo.\ud800", "method": "m"},
        {"op": "publish", "topic": "disk.\udfff"},
        {"op": "subscribe", "pattern": "disk.\ud800"},
        {"op": "call", "topic": "demo", "method": "m", "exchange": "\ud800"},
    ],
)
def test_half_of_a_surrogate_pair_is_no_name(gateway: Gateway, token: str, message: dict[str, Any]) -> None:
    with browser(address_of(gateway)) as page:
        page.hello(token)
        error = page.ask(**message)["error"]
        assert error["type"] == "UsageError" and "half of a surrogate pair" in error["text"]


def test_what_fails_in_a_handshake_is_logged_and_counted(
    gateway: Gateway, token: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a mistake of the gateway")

    with monkeypatch.context() as patched:
        patched.setattr(Gate, "check_origin", fail)
        with browser(address_of(gateway)) as page:
            assert page.status == 0
    assert gateway.statistics()["refused"] == {"internal error": 1}
    assert "a mistake of the gateway" in caplog.text
    with browser(address_of(gateway)) as page:
        assert page.hello(token)["op"] == "welcome"


def test_a_token_that_loses_an_origin_or_a_right_ends_what_has_it(start: Start, secrets: Secrets, demo: Demo) -> None:
    app, other = "https://app.example.org", "https://other.example.org"
    gateway = start(access__origins=[app, other])
    secret = secrets.add("web", "call:demo", origins=(app, other))
    with (
        browser(address_of(gateway), origin=app) as stays,
        browser(address_of(gateway), origin=other) as goes,
    ):
        assert stays.hello(secret)["op"] == goes.hello(secret)["op"] == "welcome"
        stays.send(op="stream", id=1, topic="demo", method="count", args={"n": 10**6})
        assert stays.next()["op"] == "item"
        secrets.change("web", "call:demo", origins=(app,))
        assert goes.ended() == 4401
        secrets.change("web", "call:other", origins=(app,))
        assert stays.answer(1)["error"]["type"] == "AccessDenied"
