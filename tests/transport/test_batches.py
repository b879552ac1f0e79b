"""The ZeroMQ socket itself, where libzmq would end the process."""

from __future__ import annotations

import sys

import pytest

from rpcmq.testing.processes import Program

#: A peer sends more than anybody reads, and goes; heartbeats are every 50 ms. What is read later is all that it sent.
_FLOOD = """
import sys, time
import zmq
from rpcmq.transport.batches import BatchSocket, new_context
MANY = 15_000
router = BatchSocket(new_context(), zmq.ROUTER, max_bytes=1 << 20, lost_seconds=0.2)
router.socket.bind("tcp://127.0.0.1:*")
context = new_context()
peer = BatchSocket(context, zmq.DEALER, max_bytes=1 << 20)
peer.socket.sndhwm = 0
peer.socket.connect(router.socket.last_endpoint.decode())
for _ in range(MANY):
    peer.socket.send(b"x" * 200)
peer.socket.close(linger=5000)
context.term()  # when all is sent
time.sleep(0.5)  # ten heartbeats; the event is that nothing happens
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
