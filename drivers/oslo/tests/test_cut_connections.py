"""The connection of a server alone is cut, and comes back: what waited in the server is run once, here or elsewhere."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from processes import Router, eventually, program
from topics import occupied

Make = Callable[..., Any]

CASTS = 30


class Wire:
    """Passes connections on to a router, until they are cut; ``url`` is the transport url of the way through it."""

    def __init__(self, router: Router) -> None:
        host, port = router.host.split(":")
        self._to = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"rpcmq://127.0.0.1:{self._listener.getsockname()[1]}/"
        self._is_cut = False
        self._sockets: list[socket.socket] = []
        self._is_closed = False
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while not self._is_closed:
            near, _ = self._listener.accept()
            if self._is_cut:
                near.close()
                continue
            far = socket.create_connection(self._to)
            self._sockets += [near, far]
            for ends in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass  # it was cut
        _shut(sink)
        # By who reads it: eventlet would take whoever gets its number next for the same one.
        source.close()

    def cut(self) -> None:
        self._is_cut = True
        for each in self._sockets:
            _shut(each)
        self._sockets.clear()

    def mend(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        self.cut()
        self._is_closed = True
        socket.create_connection(self._listener.getsockname()).close()
        self._accepting.join(10)
        self._listener.close()


@pytest.fixture
def wire(router: Router) -> Iterator[Wire]:
    wire = Wire(router)
    yield wire
    wire.close()


def begun(lines: list[str]) -> list[int]:
    return [int(line.split()[1]) for line in lines if line.startswith("began")]


@pytest.mark.parametrize("kind", ["native", "eventlet", "gevent"])
def test_casts_that_waited_in_a_server_that_was_cut_off_run_once(
    router: Router, wire: Wire, client: Make, kind: str
) -> None:
    topic = f"cut-{kind}"
    caller = client(topic)
    with program("server", kind, wire.url, topic, "far", "1", "hoards", PYTHONWARNINGS="ignore") as far:
        far.expect("listening")
        for n in range(CASTS):
            caller.cast({}, "hold", n=n)
        far.expect("began")
        eventually(lambda: occupied(router, topic) == [1])
        with program("server", kind, router.url, topic, "near", "1", "hoards", PYTHONWARNINGS="ignore") as near:
            near.expect("listening")
            wire.cut()
            near.signal(signal.SIGUSR1)
            # All that the other one has not begun is given to this one, and it alone.
            eventually(lambda: len(begun(near.lines)) == CASTS - len(begun(far.lines)), 60)
            wire.mend()
            back = client(topic, target={"server": "far"})
            back.cast({}, "hold", n=CASTS)
            far.signal(signal.SIGUSR1)
            far.expect(f"began {CASTS}")
            ran = begun(near.lines) + begun(far.lines)
    assert sorted(ran) == list(range(CASTS + 1)), ran


def _shut(each: socket.socket) -> None:
    try:
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # by the other side, before
