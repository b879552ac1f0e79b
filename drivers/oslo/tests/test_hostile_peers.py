"""Peers that have a place on the bus and do not use the driver as it is: their messages, and their answers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import oslo_messaging
import pytest
from endpoints import Endpoint
from oslo_messaging import RemoteError
from processes import Router, eventually

from rpcmq import Address, Codec, Format, threads
from rpcmq.adapters.calling import LegacyMessage
from rpcmq.adapters.serving import IncomingMessage, MessageConsumer
from rpcmq.errors import RpcError

Make = Callable[..., Any]

EXCHANGE = "openstack"
#: More than a listener has places for.
TIMES = 70


class Bytes(Codec):
    """Sends what it is told, whatever the value is."""

    __slots__ = ()
    payload = b""

    def encode(self, value: object, accepted: int = 0) -> tuple[int, bytes]:
        return Format.JSON, type(self).payload


def body(message: Any, **beside: Any) -> bytes:
    return json.dumps({"method": "m", "args": {}, "context": {}, "oslo": message} | beside).encode()


#: Each is no JSON, or no message of oslo.messaging.
NO_MESSAGES = [
    b"",
    b"{",
    b"5",
    b"\xff\xfe",
    b"[" * 100_000,
    b"1" * 6_000,
    body(None),
    body([]),
    body({"method": "tell"}, context=[]),
]
#: Each is one, and nothing that a method could be called with.
NO_CALLS = [
    body({}),
    body({"method": ["tell"]}),
    body({"method": "__class__"}),
    body({"method": "tell", "args": [1]}),
    body({"method": "tell", "args": {"ctxt": 1, "n": 1}}),
    body({"method": "tell", "args": {"n": 1}, "version": 5}),
    body({"method": "tell", "args": {"n": 1}, "namespace": {}}),
    body({"method": "absent"}, keepalive=1e308),
    body({"priority": ["info"], "event_type": {}, "payload": 1}),
]


@pytest.fixture
def stranger(router: Router) -> Iterator[threads.Client]:
    codec = Bytes(prefer=Format.JSON)
    with threads.Client(f"tcp://{router.host}", codec=codec) as client:
        yield client


@pytest.fixture
def unlogged() -> Iterator[None]:
    """Nothing is logged meanwhile: each of so many messages would be, with its traceback."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("unlogged")
def test_a_service_survives_messages_that_are_none(
    serve: Make, client: Make, stranger: threads.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = Endpoint()
    serve(endpoint, topic="attacked")
    address, message = Address("attacked", "", EXCHANGE), LegacyMessage({"method": "m"})
    for payload in NO_MESSAGES + NO_CALLS:
        monkeypatch.setattr(Bytes, "payload", payload)
        for _ in range(TIMES):
            stranger.cast({}, address, message, confirm=True, timeout=30)
        stranger.fanout_cast({}, address, message, confirm=True, timeout=30)
        # It is told what is wrong, in either way, and waits for no timeout.
        try:
            answer = stranger.call({}, address, message, 30)
        except (RpcError, ValueError) as error:
            assert "reachable" not in str(error) and "within 30 s" not in str(error), payload[:60]
        else:
            assert set(answer) == {"failure"}, payload[:60]
        endpoint.seen.clear()
        assert [client("attacked", timeout=30).call({}, "tell", n=n) for n in range(20)] == list(range(20))
        assert endpoint.seen == list(range(20)), payload[:60]


@pytest.mark.usefixtures("unlogged")
def test_a_listener_of_notifications_survives_them(
    conf: Any, router: Router, stranger: threads.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    class Listening:
        def info(self, ctxt: Any, publisher_id: str, event_type: str, payload: Any, metadata: Any) -> None:
            seen.append(payload)

    transport = oslo_messaging.get_notification_transport(conf, router.url)
    target = oslo_messaging.Target(topic="attacked-events")
    listener = oslo_messaging.get_notification_listener(transport, [target], [Listening()])
    listener.start()
    try:
        for payload in NO_MESSAGES + NO_CALLS:
            monkeypatch.setattr(Bytes, "payload", payload)
            for _ in range(TIMES // 5):
                stranger.cast(
                    {},
                    Address("attacked-events:info", "", EXCHANGE),
                    LegacyMessage({"method": "m"}),
                    confirm=True,
                    timeout=30,
                )
        notifier = oslo_messaging.Notifier(transport, "p", driver="messagingv2", topics=["attacked-events"])
        for n in range(100, 200):
            notifier.info({}, "e", n)
        # The stranger's last one may have become a notification, too.
        eventually(lambda: sorted(n for n in seen if type(n) is int and n >= 100) == list(range(100, 200)))
    finally:
        listener.stop()
        listener.wait()
        transport.cleanup()


def told(**failure: Any) -> dict[str, str]:
    return {"failure": json.dumps(failure)}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        5,
        [],
        {},
        {"failure": 5},
        {"failure": "{"},
        {"failure": "[]"},
        {"failure": "[" * 100_000},
        told(**{"class": "Popen", "module": "subprocess", "args": ["exit"], "message": "m", "tb": []}),
        told(**{"class": "system", "module": "os", "args": ["exit"], "message": "m", "tb": []}),
        told(**{"class": "SystemExit", "module": "builtins", "args": [], "message": "m", "tb": []}),
        told(**{"class": "eval", "module": "builtins", "args": ["1"], "message": "m", "tb": []}),
        told(**{"class": "ValueError", "module": "builtins", "args": 5, "message": 6, "tb": 7}),
        told(**{"class": "ExceptionGroup", "module": "builtins", "args": ["m", []], "message": "m", "tb": []}),
        told(**{"class": "ValueError", "module": ["builtins"], "args": []}),
        told(**{"class": "X", "module": "absent.module", "args": []}),
    ],
    ids=lambda answer: str(answer)[:60],
)
def test_a_client_is_told_of_answers_that_are_none(client: Make, transport: Make, router: Router, answer: Any) -> None:
    with threads.Client(f"tcp://{router.host}") as forger:

        def forge(message: IncomingMessage) -> None:
            message.reply(answer)

        consumer = MessageConsumer(forger, Address("forged", "", EXCHANGE), forge)
        consumer.start(30)
        over = transport(allowed_remote_exmods=["oslo_messaging.exceptions"])
        try:
            with pytest.raises((RemoteError, oslo_messaging.MessageDeliveryFailure)):
                client("forged", over=over, timeout=30).call({}, "m")
        finally:
            consumer.stop(5)


@pytest.mark.parametrize("name", ["\ud800", "a\nb", "", "x" * 300, "thème"])
def test_methods_have_any_name(serve: Make, client: Make, name: str) -> None:
    endpoint = Endpoint()
    setattr(endpoint, name, lambda ctxt, n: n)
    serve(endpoint, topic="named")
    try:
        answer = client("named", timeout=30).call({}, name, n=1)
    except RemoteError as error:
        # oslo.messaging itself has methods of some names only; it was asked.
        answer = 1 if error.exc_type == "NoSuchMethod" else error
    assert answer == 1


def test_no_context_is_an_empty_one(serve: Make, client: Make) -> None:
    class Contextual:
        def context(self, ctxt: Any) -> Any:
            return ctxt

    serve(Contextual(), topic="contextual")
    assert client("contextual", timeout=30).call(None, "context") == {}


def test_a_context_of_another_type_is_named(client: Make) -> None:
    with pytest.raises(oslo_messaging.MessageDeliveryFailure, match="ctx must be None, a mapping"):
        client("contextual", timeout=30).call([1], "context")
