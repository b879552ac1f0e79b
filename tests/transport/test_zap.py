"""Our ZAP handler: who may finish a CURVE handshake, and that nobody may without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest
import zmq
from zmq.utils import z85

from rpcmq.testing import eventually
from rpcmq.transport.batches import BatchSocket, new_context
from rpcmq.transport.curve import Curve, new_pair
from rpcmq.transport.gevent_shell import GeventShell
from rpcmq.transport.zap import ZapHandler

PUBLIC, SECRET = new_pair()


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    context = new_context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def zap(context: zmq.Context[Any]) -> Iterator[ZapHandler]:
    handler = ZapHandler(context, GeventShell())
    yield handler
    handler.close()


@pytest.fixture
def knock(context: zmq.Context[Any]) -> Iterator[Callable[[str, float], bool]]:
    """Connects a new process with a new key to a router's socket of a domain; whether it got in."""
    elsewhere = new_context()

    def knock(domain: str, seconds: float) -> bool:
        router = BatchSocket(context, zmq.ROUTER, max_bytes=1000, curve=Curve(PUBLIC, SECRET, domain=domain))
        router.socket.bind("tcp://127.0.0.1:0")
        public, secret = new_pair()
        dealer = BatchSocket(elsewhere, zmq.DEALER, max_bytes=1000, curve=Curve(public, secret, PUBLIC))
        monitor = dealer.socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
        )
        dealer.socket.connect(router.socket.last_endpoint.decode())
        try:
            with gevent.Timeout(seconds, False):  # type: ignore[arg-type]
                while not monitor.poll(0):
                    gevent.sleep(0.005)
                got_in = int.from_bytes(monitor.recv()[:2], "little") == zmq.EVENT_HANDSHAKE_SUCCEEDED
                if got_in:
                    dealer.send(b"", [b"hello"])
                    eventually(router.readable)
                    router.receive()
                    assert router.last_user() == public
                return got_in
            return False
        finally:
            dealer.socket.disable_monitor()
            monitor.close()
            dealer.close()
            router.close()

    yield knock
    elsewhere.destroy(linger=0)


def test_without_a_handler_nobody_gets_in(knock):
    assert not knock("router", 1.0)


def test_who_is_decided_for_gets_in_under_his_key(zap, knock):
    asked: list[tuple[str, str]] = []

    def decide(key: str, address: str) -> str:
        asked.append((key, address))
        return ""

    zap.register("router", decide)
    assert knock("router", 10.0)
    ((key, address),) = asked
    assert len(key) == 40 and address == "127.0.0.1"


def test_who_is_decided_against_does_not(zap, knock):
    zap.register("router", lambda key, address: "no")
    assert not knock("router", 10.0)


def test_a_domain_that_nobody_registered_is_denied(zap, knock):
    zap.register("router", lambda key, address: "")
    assert not knock("other", 10.0)
    assert zap.malformed == 1
    assert zap.unregister("router")
    assert not knock("router", 10.0)


def test_a_no_may_become_a_yes_for_a_while(zap, knock):
    answers = ["not yet", "not yet", ""]
    zap.register("peer", lambda key, address: answers.pop(0), patience=5.0)
    assert knock("peer", 10.0)
    assert answers == []


def test_and_stays_a_no_after_that(zap, knock):
    zap.register("peer", lambda key, address: "never", patience=0.1)
    assert not knock("peer", 10.0)


def ask(context: zmq.Context[Any], *frames: bytes) -> list[bytes]:
    asking = context.socket(zmq.DEALER)
    asking.linger = 0
    asking.connect("inproc://zeromq.zap.01")
    asking.send_multipart([b"", *frames])
    try:
        eventually(lambda: asking.poll(0) or None)
    except AssertionError:
        return []
    finally:
        answer = asking.recv_multipart() if asking.poll(0) else []
        asking.close()
    return answer


RIGHT = [b"1.0", b"7", b"router", b"10.0.0.1", b"", b"CURVE", z85.decode(PUBLIC.encode())]


def test_a_proper_request_is_answered_with_the_key_as_user(context, zap):
    zap.register("router", lambda key, address: "")
    assert ask(context, *RIGHT) == [b"", b"1.0", b"7", b"200", b"OK", PUBLIC.encode(), b""]


@pytest.mark.parametrize(
    "frames",
    [
        [b"2.0", *RIGHT[1:]],
        [*RIGHT[:5], b"PLAIN", b"user", b"password"],
        [*RIGHT[:5], b"NULL"],
        [*RIGHT[:6], b"short"],
        [*RIGHT, b"more"],
    ],
)
def test_anything_but_a_curve_key_is_denied(context, zap, frames):
    zap.register("router", lambda key, address: "")
    answer = ask(context, *frames)
    assert answer == [] or (answer[3] == b"400" and answer[5] == b"")
    assert zap.malformed == 1


def test_a_request_that_is_none_is_counted_and_not_answered(context, zap):
    asking = context.socket(zmq.DEALER)
    asking.linger = 0
    asking.connect("inproc://zeromq.zap.01")
    asking.send_multipart([b"", b"1.0"])
    eventually(lambda: zap.malformed == 1)
    gevent.sleep(0.1)
    assert not asking.poll(0)
    asking.close()


def test_who_is_gone_before_the_answer_harms_nobody(context, zap):
    zap.register("router", lambda key, address: "no", patience=0.2)
    asking = context.socket(zmq.DEALER)
    asking.connect("inproc://zeromq.zap.01")
    asking.send_multipart([b"", *RIGHT])
    eventually(lambda: len(zap._defer) == 1)
    asking.close(linger=0)
    eventually(lambda: not zap._defer)
    zap.register("router", lambda key, address: "")
    assert ask(context, *RIGHT)[3] == b"200"


def test_closing_twice_is_closing(context, zap):
    zap.close()
    zap.close()


def test_a_decision_that_raises_refuses_that_handshake_and_no_other(zap, knock):
    def broken(key: str, address: str) -> str:
        raise ZeroDivisionError("a bug")

    zap.register("broken", broken)
    zap.register("open", lambda key, address: "")
    assert not knock("broken", 5.0)
    assert zap.failed >= 1
    assert knock("open", 5.0)
