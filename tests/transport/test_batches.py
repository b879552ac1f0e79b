"""The ZeroMQ socket itself: batches are whole, and libzmq does not end the process."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import zmq
from zmq.utils import garbage

from rpcmq.errors import ProtocolError
from rpcmq.testing.processes import Program
from rpcmq.transport.batches import BatchSocket, _frame_of, new_context
from rpcmq.wire import DETACH_BYTES, Detached, Kind, pack, payload_of, split

#: A peer sends more than anybody reads, and goes; heartbeats are every 50 ms. What is read later is all that it sent.
_FLOOD = """
import sys, time
import zmq
from rpcmq.transport.batches import BatchSocket, new_context
MANY = 15_000
router = BatchSocket(new_context(), zmq.ROUTER, max_bytes=1 << 20, lost_seconds=2.0)
router.socket.bind("tcp://127.0.0.1:*")
context = new_context()
peer = BatchSocket(context, zmq.DEALER, max_bytes=1 << 20)
peer.socket.sndhwm = 0
peer.socket.connect(router.socket.last_endpoint.decode())
for _ in range(MANY):
    peer.socket.send(b"x" * 200)
peer.socket.close(linger=5000)
context.term()  # when all is sent
time.sleep(2.0)  # four heartbeats; the event is that nothing happens
read = 0
while router.readable():
    router.receive()
    read += 1
print("read", read == MANY)
"""


@pytest.mark.fault
def test_a_peer_that_goes_while_nobody_reads_does_not_abort_the_process():
    with Program([sys.executable, "-c", _FLOOD], name="flood") as program:
        assert program.wait(60) == 0, program.said()
        assert "read True" in program.said()


# --- a batch is sent whole or not at all --------------------------------------------------------


@pytest.fixture
def pair() -> Iterator[tuple[BatchSocket, BatchSocket]]:
    """A ROUTER and a DEALER that is connected to it."""
    context = new_context()
    router = BatchSocket(context, zmq.ROUTER, max_bytes=1 << 24)
    dealer = BatchSocket(context, zmq.DEALER, max_bytes=1 << 24)
    router.socket.bind("tcp://127.0.0.1:*")
    dealer.socket.connect(router.socket.last_endpoint.decode())
    yield router, dealer
    context.destroy(linger=0)


def taken(socket: BatchSocket) -> tuple[bytes, list[bytes] | str]:
    """From whom the next batch is, and its messages, or why it was refused."""
    assert socket.socket.poll(5000), "nothing came"
    route, batch, payloads = socket.receive()
    try:
        return route, split(batch, payloads)
    except ProtocolError as error:
        return route, error.reason


def large(fill: bytes) -> bytes:
    return pack(Kind.CAST, fill * DETACH_BYTES)


@pytest.mark.parametrize("to_dealer", [True, False])
@pytest.mark.parametrize("fails_at", range(3))
def test_a_batch_that_is_interrupted_is_refused_whole_and_the_next_one_is_not_touched(pair, to_dealer, fails_at):
    router, dealer = pair
    dealer.send(b"", [pack(Kind.HEARTBEAT)])
    route, _ = taken(router)
    sender, receiver = (router, dealer) if to_dealer else (dealer, router)
    original, left = sender._send, [fails_at + to_dealer]

    def interrupted(data: Any, flags: int) -> None:
        original(data, flags)
        left[0] -= 1
        if left[0] == -1:
            raise KeyboardInterrupt  # as a signal handler does, between two frames

    sender._send = interrupted
    with contextlib.suppress(KeyboardInterrupt):
        sender.send(route, [large(b"1"), pack(Kind.CAST, b"2"), large(b"3")])
    sender._send = original
    sender.send(route, [pack(Kind.CAST, b"next"), large(b"4")])
    while isinstance(outcome := taken(receiver)[1], str):
        pass
    if len(outcome) == 3:
        # It was interrupted when all had been sent; the sender does not know, and says so by raising.
        assert fails_at == 2
        while isinstance(outcome := taken(receiver)[1], str):
            pass
    assert [bytes(payload_of(message))[:4] for message in outcome] == [b"next", b"4444"]


def test_a_batch_of_one_frame_that_is_interrupted_leaves_nothing_for_the_peer_to_refuse(pair):
    router, dealer = pair
    original = dealer._send

    def interrupted(data: Any, flags: int) -> None:
        raise KeyboardInterrupt

    dealer._send = interrupted
    with contextlib.suppress(KeyboardInterrupt):
        dealer.send(b"", [pack(Kind.CAST, b"1")])
    dealer._send = original
    dealer.send(b"", [pack(Kind.CAST, b"2")])
    assert taken(router)[1] == [pack(Kind.CAST, b"2")]


def test_what_cannot_be_sent_is_found_before_the_first_frame_leaves(pair):
    router, dealer = pair
    bad = Detached.of(pack(Kind.CAST, flags=1), "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        dealer.send(b"", [large(b"1"), bad])
    dealer.send(b"", [large(b"2")])
    assert isinstance(taken(router)[1], list)


def test_a_payload_is_passed_on_without_a_copy_and_without_a_thread(pair):
    router, dealer = pair
    dealer.send(b"", [large(b"1")])
    assert router.socket.poll(5000)
    route, batch, payloads = router.receive()
    (message,) = split(batch, payloads)
    assert isinstance(message, Detached) and isinstance(message.payload, memoryview)
    received: Any = message.payload.obj
    assert _frame_of(message.payload) is received
    assert _frame_of(message.payload[1:]) is not received
    router.send(route, [message])
    assert bytes(payload_of(taken(dealer)[1][0])) == b"1" * DETACH_BYTES  # type: ignore[arg-type]
    assert not garbage.gc.is_alive()
