"""A TCP proxy that does to connections what bad networks do: reset, cut off, delay, stall, half-open.

It stands in front of a router, for one process or for many, in the gevent hub of the drill. ZeroMQ is not
looked at: bytes are.
"""

from __future__ import annotations

import socket
import struct
from time import monotonic
from typing import Any

import gevent
from gevent.event import Event
from gevent.queue import Queue
from gevent.server import StreamServer
from gevent.socket import create_connection

__all__ = ["FaultProxy"]

#: Pieces that may be under way in one direction before the sender feels it.
_PIECES = 64
_PIECE = 65536


class _Way:
    """One direction of a connection."""

    def __init__(self, proxy: FaultProxy, source: Any, sink: Any, gate: Event) -> None:
        self._proxy = proxy
        self._source = source
        self._sink = sink
        self._gate = gate
        self._pieces: Queue[tuple[float, bytes]] = Queue(_PIECES)
        self.swallows = False
        self.greenlets = [gevent.spawn(self._read), gevent.spawn(self._write)]

    def _read(self) -> None:
        try:
            while data := self._source.recv(_PIECE):
                self._pieces.put((monotonic() + self._proxy.delay_seconds, data))
        except OSError:
            pass  # the connection is broken, which the other side is told by its end
        self._pieces.put((0.0, b""))

    def _write(self) -> None:
        while True:
            due, data = self._pieces.get()
            if not data:
                return
            pause = due - monotonic()
            if pause > 0:
                gevent.sleep(pause)
            self._gate.wait()
            if self.swallows:
                continue
            try:
                self._sink.sendall(data)
            except OSError:
                return


class _Pair:
    """A connection: the process's end is near, the router's far."""

    def __init__(self, proxy: FaultProxy, near: Any, far: Any, gates: tuple[Event, Event]) -> None:
        self.near, self.far, self.gates = near, far, gates
        self.ways = (_Way(proxy, near, far, gates[0]), _Way(proxy, far, near, gates[1]))

    def wait(self) -> None:
        """Until either direction has ended, unless the connection is half-open."""
        up, down = self.ways
        gevent.wait([*up.greenlets, *down.greenlets], count=1)
        while up.swallows and not up.greenlets[0].ready():
            gevent.wait([up.greenlets[0]])

    def cut(self) -> None:
        """Reset both ends, discarding data in transit."""
        for end in (self.near, self.far):
            _reset(end)
        for way in self.ways:
            gevent.killall(way.greenlets, block=False)


def _reset(end: Any) -> None:
    try:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass  # it is closed already
    end.close()


class FaultProxy:
    """Listens on a loopback port and passes on to the router at ``url``.

    Args:
        url: ``tcp://host:port``; empty: as :meth:`lead_to` says.

    Attributes:
        url: where processes connect instead.
        delay_seconds: how long each piece is under way, in either direction.
    """

    def __init__(self, url: str = "") -> None:
        self._target: tuple[str, int] | None = None
        if url:
            self.lead_to(url)
        self._pairs: set[_Pair] = set()
        self.to_router, self.to_process = Event(), Event()
        self.to_router.set()
        self.to_process.set()
        self.delay_seconds = 0.0
        self._server = StreamServer(("127.0.0.1", 0), self._serve)
        self._server.start()
        self.url = f"tcp://127.0.0.1:{self._server.server_port}"

    def lead_to(self, url: str) -> None:
        """Pass on to the router at ``url`` from now on; connections before that are reset."""
        host, _, port = url.removeprefix("tcp://").rpartition(":")
        self._target = host.strip("[]"), int(port)

    def gates(self, near: Any) -> tuple[Event, Event]:
        """The gates of a new connection to the router and back; each is set while nothing is in the way."""
        return self.to_router, self.to_process

    def _serve(self, near: Any, address: object) -> None:
        try:
            if self._target is None:
                raise OSError("there is no router yet")
            gates = self.gates(near)
            far = create_connection(self._target, timeout=5.0)
        except OSError:
            _reset(near)
            return
        far.settimeout(None)
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pair = _Pair(self, near, far, gates)
        self._pairs.add(pair)
        pair.wait()
        self.cut(pair)

    def cut(self, pair: _Pair) -> None:
        """Reset both ends of one connection."""
        if pair in self._pairs:
            self._pairs.discard(pair)
            pair.cut()

    # --- faults ------------------------------------------------------------------------------

    @property
    def pairs(self) -> list[_Pair]:
        """The connections at this moment."""
        return list(self._pairs)

    @property
    def open(self) -> int:
        """Connections at this moment."""
        return len(self._pairs)

    def reset(self) -> None:
        """Reset all connections; new ones are taken."""
        for pair in list(self._pairs):
            self.cut(pair)

    def partition(self, to_router: bool = True, to_process: bool = True) -> None:
        """Block these directions from now on; connections stay, and data queues."""
        if to_router:
            self.to_router.clear()
        if to_process:
            self.to_process.clear()

    def heal(self) -> None:
        """Let delayed bytes since :meth:`partition` arrive; end all delays."""
        self.delay_seconds = 0.0
        self.to_router.set()
        self.to_process.set()

    def half_open(self) -> None:
        """Close the connections on the router's side only; what processes send is discarded."""
        for pair in self._pairs:
            for way in pair.ways:
                way.swallows = True
            _reset(pair.far)

    def close(self) -> None:
        """End all connections and listen no more."""
        self._server.stop()
        self.heal()
        self.reset()
