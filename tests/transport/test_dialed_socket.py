"""The end of a socket: who waits for it may give up before, and keeps no other socket of the process from ending."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from time import monotonic
from typing import Any

import gevent
import gevent.event
import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from rpcmq.testing import eventually
from rpcmq.transport.batches import BatchSocket, new_context
from rpcmq.transport.dialed_socket import DialedSocket
from rpcmq.transport.gevent_shell import GeventShell


class NotAwaited:
    """An event for which every wait is over before anything has happened."""

    def set(self) -> None:
        pass

    def wait(self, timeout: float) -> bool:
        return False


class Impatient(GeventShell):
    """Waits for nothing."""

    def event(self) -> Any:
        return NotAwaited()


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context = new_context()
    monkeypatch.setattr("rpcmq.transport.dialed_socket.process_context", lambda: context)
    yield context
    context.destroy(linger=0)


@pytest.fixture
def silent() -> Iterator[str]:
    """The url of one that takes connections and says nothing: libzmq keeps what is to be sent there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


def dialed(shell: GeventShell, url: str) -> DialedSocket:
    opened, connected = DialedSocket(shell, None), gevent.event.Event()
    opened.open(url, 1000, 60.0, lambda event, value: connected.set(), lambda: None, print)
    assert connected.wait(20)
    assert opened.socket is not None
    opened.socket.send(b"", [b"goodbye"])
    return opened


def check_libzmq_goes_on(context: zmq.Context[zmq.Socket[bytes]], url: str) -> None:
    """Another socket connects, and ends when it is closed."""
    other = BatchSocket(context, zmq.DEALER, max_bytes=1000)
    told = other.socket.get_monitor_socket(zmq.EVENT_CONNECTED | zmq.EVENT_MONITOR_STOPPED, "inproc://other")
    other.socket.connect(url)
    eventually(lambda: told.poll(0), what="connected")
    recv_monitor_message(told)
    other.close()
    eventually(lambda: told.poll(0), what="ended")
    told.close()


def test_a_close_that_is_not_waited_for_keeps_no_other_socket_from_its_end(context, silent):
    late = dialed(Impatient(), silent)
    monitor = late._watch._monitor  # type: ignore[union-attr]
    late.close_when_sent(0.1)
    gevent.sleep(0.3)  # libzmq gives up what it has to send
    check_libzmq_goes_on(context, silent)
    eventually(lambda: monitor.closed)


def test_nor_does_one_whose_loop_has_ended_meanwhile(context, silent):
    late = dialed(Impatient(), silent)
    watcher = late._watch._io  # type: ignore[union-attr]
    late.close_when_sent(0.1)
    watcher.stop()
    del late, watcher
    gc.collect()
    gevent.sleep(0.3)
    check_libzmq_goes_on(context, silent)


def test_a_close_is_waited_for_until_its_linger_is_over(context, silent):
    late = dialed(GeventShell(), silent)
    monitor = late._watch._monitor  # type: ignore[union-attr]
    began = monotonic()
    late.close_when_sent(0.1)
    assert monotonic() - began >= 0.1
    check_libzmq_goes_on(context, silent)
    eventually(lambda: monitor.closed)
