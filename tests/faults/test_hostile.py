"""Hostile peers without keys: whatever comes is refused before it is decoded, and honest peers notice nothing.

What needs keys (no key, a wrong one, a topic that a key may not use) is with the tests of those.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from time import monotonic
from typing import Any

import gevent
import pytest
import zmq

from rpcmq.client import Client
from rpcmq.drill.run import Drill
from rpcmq.drill.topology import Topology
from rpcmq.errors import CallError
from rpcmq.testing import eventually
from rpcmq.wire import Address, Kind, control, pack
from tests.faults.running_code import send_pickles

pytestmark = [pytest.mark.integration, pytest.mark.fault]

#: Time that an honest process may need to be welcomed, whoever else is there (seconds).
WELCOMED = 1.0
DRILL = Address("drill").encode()


@pytest.fixture
def drill() -> Iterator[Drill]:
    with Drill(Topology(services=1, callers=0), seed=1) as made:
        yield made
        # The one that serves, and the router, have lived through all of it.
        honest_handshake(made)
        result = made.finish()
        assert [str(violation) for violation in result.verdict.violations] == []


def honest_handshake(drill: Drill) -> float:
    """Seconds until a new process is welcomed, and has had an answer."""
    began = monotonic()
    with Client(drill.router.url) as client:
        assert client.call(None, "drill", {"method": "rpcmq.ping", "args": {}}, 20)["identity"] == "s0"
    return monotonic() - began


def tcp(drill: Drill) -> socket.socket:
    host, port = drill.router.url.removeprefix("tcp://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


class Stranger:
    """A ZeroMQ peer that sends what it likes."""

    def __init__(self, drill: Drill, context: zmq.Context[Any]) -> None:
        self._socket = context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.connect(drill.router.url)

    def send(self, *frames: bytes) -> None:
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            pass  # it is not read any more

    def received(self) -> list[bytes]:
        """The first frame of each message so far."""
        batches = []
        while self._socket.poll(0):
            batches.append(self._socket.recv_multipart()[0])
        return batches

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    made: zmq.Context[Any] = zmq.Context()
    yield made
    made.destroy(linger=0)


def hello(**body: Any) -> bytes:
    return control(Kind.HELLO, {"identity": "mallory", "queue_type": "roundrobin", "versions": [1]} | body)


def random_bytes(drill: Drill, context: zmq.Context[Any], seconds: float) -> list[float]:
    """As raw TCP, inside of ZMTP, and on a link that was welcomed; returns the honest handshakes' times."""
    rng = Random(1)
    handshakes: list[float] = []
    welcomed = Stranger(drill, context)
    welcomed.send(hello())
    end = monotonic() + seconds
    while monotonic() < end:
        with tcp(drill) as raw:
            try:
                raw.sendall(rng.randbytes(rng.randrange(1, 5000)))
            except OSError:
                pass  # the router has closed it already
        stranger = Stranger(drill, context)
        for _ in range(20):
            stranger.send(rng.randbytes(rng.randrange(1, 300)))
            welcomed.send(*(rng.randbytes(rng.randrange(1, 300)) for _ in range(rng.randrange(1, 4))))
        gevent.sleep(0.01)
        stranger.close()
        if len(handshakes) < seconds * 2:
            handshakes.append(honest_handshake(drill))
    welcomed.close()
    return handshakes


def test_random_bytes(drill: Drill, context: zmq.Context[Any]):
    assert random_bytes(drill, context, 2.0)
    assert sum(drill.router.varz()["refused"].values()) > 100


def half_open_handshakes(drill: Drill, count: int) -> float:
    """``count`` connections that begin a handshake and say no more; the time of an honest one meanwhile."""
    with ExitStack() as stack:
        for number in range(count):
            connection = stack.enter_context(tcp(drill))
            # A part of ZMTP's greeting: of none, the signature, or nearly all of it.
            connection.sendall(b"\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL"[: number % 16])
        return honest_handshake(drill)


def test_half_open_handshakes(drill: Drill):
    half_open_handshakes(drill, 200)


def test_tampered_frames(drill: Drill, context: zmq.Context[Any]):
    rng = Random(2)
    stranger = Stranger(drill, context)
    stranger.send(hello())
    (welcome,) = eventually(stranger.received, 10)
    origin = json.loads(welcome[40:])
    key = origin["router_id"].to_bytes(4) + origin["handle"].to_bytes(8)
    for number in range(2000):
        message = bytearray(
            pack(Kind.REQUEST, b"null", key=key + number.to_bytes(8), format=1, address=DRILL, method=b"m")
        )
        for _ in range(rng.randint(1, 4)):
            message[rng.randrange(len(message))] ^= 1 << rng.randrange(8)
        stranger.send(bytes(message))
    eventually(lambda: sum(drill.router.varz()["refused"].values()) > 500, 20)
    stranger.close()


def test_a_replayed_hello_takes_nothing_over(drill: Drill, context: zmq.Context[Any]):
    with Client(drill.router.url, "honest") as client:
        client.connect()
        known = client.process.uplink.router
        assert known is not None
        for body in ({}, {"token": "guessed", "handle": known.handle, "received": 0}):
            stranger = Stranger(drill, context)
            stranger.send(hello(identity="honest", **body))
            (refused,) = eventually(stranger.received, 10)
            assert refused[5] == Kind.REFUSED and b"identity-taken" in refused
            stranger.close()
        assert client.call(None, "drill", {"method": "rpcmq.ping", "args": {}}, 20)["identity"] == "s0"
        assert client.process.connection.reconnects == 0


def test_pickles_that_try_to_run_code(drill: Drill):
    with Client(drill.router.url) as client:
        send_pickles(client, "drill", "work")
    (service,) = drill.services
    assert service.program.exit_code is None and "owned" not in service.program.said()
    with pytest.raises(CallError):  # and the caller itself cannot be made to
        client_of_a_refused_view(drill)


def client_of_a_refused_view(drill: Drill) -> None:
    with Client(drill.router.url) as client:
        client.query("__class__")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_with_the_figures_of_the_table(drill: Drill, context: zmq.Context[Any], capsys: pytest.CaptureFixture[str]):
    handshakes = random_bytes(drill, context, 60.0)
    handshakes.append(half_open_handshakes(drill, 1000))
    with capsys.disabled():
        row = {"scenario": "hostile peers, no keys", "seconds": 60.0, "violations": 0}
        figures = {"worst_honest_handshake_seconds": round(max(handshakes), 3), "half_open": 1000}
        print("\nresult", json.dumps(row | figures | {"refused": drill.router.varz()["refused"]}))
    assert max(handshakes) < WELCOMED
