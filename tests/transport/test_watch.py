from __future__ import annotations

from collections.abc import Iterator

import gevent
import pytest
import zmq

from rpcmq.testing import eventually
from rpcmq.transport.batches import BatchSocket, new_context
from rpcmq.transport.gevent_shell import GeventShell
from rpcmq.transport.watch import ConnectionWatch, Watchdog


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context = new_context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def pair(context) -> tuple[BatchSocket, BatchSocket]:
    """A bound ROUTER and a DEALER."""
    router = BatchSocket(context, zmq.ROUTER, max_bytes=1000)
    router.socket.bind("tcp://127.0.0.1:0")
    return router, BatchSocket(context, zmq.DEALER, max_bytes=1000)


def connect(router: BatchSocket, dealer: BatchSocket) -> bytes:
    """Connect, say hello, and see that nothing has come: only from then on libzmq gives signs."""
    dealer.socket.connect(router.socket.last_endpoint.decode())
    dealer.send(b"", [b"hello"])
    eventually(router.readable)
    route = router.receive()[0]
    assert not dealer.readable() and not router.readable()
    return route


def test_connections_that_come_and_go_are_told(context, pair):
    router, dealer = pair
    events: list[int] = []
    watch = ConnectionWatch(router.socket, lambda event, value: events.append(event), GeventShell())
    connect(router, dealer)
    eventually(lambda: events == [zmq.EVENT_ACCEPTED, zmq.EVENT_HANDSHAKE_SUCCEEDED])
    dealer.close()
    eventually(lambda: events[2:] == [zmq.EVENT_DISCONNECTED])
    watch.close()
    watch.close()


def test_a_refused_connection_is_told(context, free_port):
    dealer = BatchSocket(context, zmq.DEALER, max_bytes=1000)
    events: list[int] = []
    watch = ConnectionWatch(dealer.socket, lambda event, value: events.append(event), GeventShell())
    dealer.socket.connect(f"tcp://127.0.0.1:{free_port}")
    eventually(lambda: zmq.EVENT_CLOSED in events)
    watch.close()
    dealer.close()


def test_a_wake_up_that_nobody_had_is_found_and_counted(pair, monkeypatch):
    # However busy the machine is.
    monkeypatch.setattr("rpcmq.transport.watch._AT_ONCE", 60.0)
    router, dealer = pair
    route = connect(router, dealer)
    got: list[bytes] = []
    watchdog = Watchdog(lambda: dealer, lambda: got.append(dealer.receive()[1]), GeventShell())
    watchdog.start()
    router.send(route, [b"a"])
    # To look takes the sign away: whoever waited for it would wait for ever.
    eventually(dealer.readable)
    eventually(lambda: got == [b"a"])
    assert watchdog.lost == 1
    watchdog.stop()


def test_a_message_that_comes_while_the_watchdog_looks_is_not_counted(pair):
    router, dealer = pair
    route = connect(router, dealer)

    class Overtaken:
        """Another thread has the interpreter for a while between the look at the descriptor and that at the socket."""

        fd = dealer.fd

        def readable(self) -> bool:
            router.send(route, [b"a"])
            gevent.sleep(0.002)
            return bool(eventually(dealer.readable))

    got: list[bytes] = []
    watchdog = Watchdog(Overtaken, lambda: got.append(dealer.receive()[1]), GeventShell())  # type: ignore[arg-type]
    watchdog._look()
    assert got == [b"a"]
    assert watchdog.lost == 0


def test_a_wake_up_that_is_only_late_is_not_counted(pair):
    router, dealer = pair
    route = connect(router, dealer)
    got: list[bytes] = []
    watchdog = Watchdog(lambda: dealer, lambda: got.append(dealer.receive()[1]), GeventShell())
    watchdog.start()
    router.send(route, [b"a"])
    # Nobody listens to the file descriptor here, so the sign stays.
    eventually(lambda: got == [b"a"])
    assert watchdog.lost == 0
    watchdog.stop()


def test_a_socket_that_is_woken_all_the_time_is_not_suspected(pair):
    router, dealer = pair
    route = connect(router, dealer)
    got: list[bytes] = []

    def wake() -> None:
        watchdog.wakes += 1
        while dealer.readable():
            got.append(dealer.receive()[1])

    watchdog = Watchdog(lambda: dealer, wake, GeventShell())
    watchdog.start()
    io = gevent.get_hub().loop.io(dealer.fd, 1)
    io.start(wake)
    for n in range(2000):
        router.send(route, [b"%d" % n])
        if n % 20 == 0:
            gevent.sleep(0.01)
    eventually(lambda: len(got) == 2000)
    assert watchdog.lost == 0
    io.stop()
    io.close()
    watchdog.stop()


def test_there_may_be_no_socket():
    watchdog = Watchdog(lambda: None, lambda: None, GeventShell())
    watchdog._look()
    assert watchdog.lost == 0
    watchdog.stop()
