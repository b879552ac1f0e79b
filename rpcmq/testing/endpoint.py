"""One end of a link in a virtual network: its connection, and what can happen to that."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from rpcmq.core.common.session import Session
from rpcmq.core.process.uplink import Uplink

__all__ = ["Connection", "Endpoint", "Surroundings", "Way"]

#: Batches in order: when it arrives, the messages, their detached payloads.
Way = deque[tuple[float, bytes, list[bytes]]]


class Connection:
    """A simulated connection: the batches in transit in both directions."""

    __slots__ = ("process", "route", "to_process", "to_router")

    def __init__(self, process: Endpoint, route: bytes) -> None:
        self.process = process
        self.route = route
        self.to_router: Way = deque()
        self.to_process: Way = deque()


class Surroundings(Protocol):
    """The network, as far as an endpoint needs it; see :class:`rpcmq.testing.network.Network`."""

    now: float
    processes: dict[Session, Endpoint]

    def attach(self, process: Endpoint) -> None:
        """Let ``process`` take part."""

    def connection(self, process: Endpoint) -> Connection | None:
        """Open a new connection of ``process``."""

    def broken(self, connection: Connection, is_noticed: bool) -> None:
        """``connection`` is gone."""

    def inject(self, route: bytes, batch: bytes, payloads: Sequence[bytes] = ()) -> list[Any]:
        """Inject any bytes on the connection ``route``."""

    def run(self) -> None:
        """Run all engines until nothing is pending."""


class Endpoint:
    """A process's end of one link.

    Attributes:
        uplink: the real engine of a process's end, which keeps the session.
        delay: seconds that a batch is under way, in either direction.
        connection: None while there is none.
        is_paused: it does nothing at all, as after SIGSTOP; what comes waits.
    """

    def __init__(self, network: Surroundings, identity: str, uplink: Uplink) -> None:
        self._network = network
        self.identity = identity
        self.uplink = uplink
        self.delay = 0.0
        #: The public key that its connections are authenticated with; empty: none.
        self.user = ""
        self.connection: Connection | None = None
        self.is_paused = False
        self._is_cut_to_router = False
        self._is_cut_to_process = False
        network.attach(self)

    # --- what the network asks ---------------------------------------------------------------

    @property
    def sends(self) -> bool:
        """Whether its outgoing batches arrive."""
        return not self._is_cut_to_router

    @property
    def receives(self) -> bool:
        """Whether batches sent to it arrive."""
        return not (self._is_cut_to_process or self.is_paused)

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`tick` (monotonic seconds); None if nothing is due."""
        return self.uplink.next_deadline()

    def tick(self, now: float) -> None:
        """Do what is due."""
        self.uplink.tick(now)

    def after_receive(self, now: float) -> None:
        """Something was received, or has timed out."""

    def before_flush(self) -> None:
        """Hook: called before queued messages are sent."""

    # --- the connection ----------------------------------------------------------------------

    def connect(self) -> None:
        """Connect (again). The router does not notice that a connection before this one is gone."""
        self.connection = self._network.connection(self)
        self.uplink.lost(self._network.now)
        if self.connection is not None:
            self.uplink.connected(self._network.now)
        self._network.run()

    def lose(self, is_noticed: bool = True) -> None:
        """Break the connection; batches in transit are lost.

        Unless ``is_noticed``, the router finds out only when it has something to send.
        """
        connection, self.connection = self.connection, None
        if connection is not None:
            self.uplink.lost(self._network.now)
            self._network.broken(connection, is_noticed)
            self._network.run()

    def cut_off(self, to_router: bool = True, to_process: bool = True) -> None:
        """Block these directions from now on, without notifying either end."""
        self._is_cut_to_router |= to_router
        self._is_cut_to_process |= to_process

    def heal(self) -> None:
        """Let everything held up since :meth:`cut_off` arrive."""
        self._is_cut_to_router = self._is_cut_to_process = False
        self._network.run()

    def pause(self) -> None:
        """Pause the process, as by SIGSTOP: it keeps its connection and does nothing."""
        self.is_paused = True

    def resume(self) -> None:
        """Resume the process; only the clock has advanced meanwhile."""
        self.is_paused = False
        self._network.run()

    def inject(self, batch: bytes, *payloads: bytes) -> None:
        """Let any bytes come to the router on this connection, past the session."""
        assert self.connection is not None, f"{self.identity} is not connected"
        self._network.inject(self.connection.route, batch, payloads)

    def stop(self) -> None:
        """Say goodbye and leave."""
        self.uplink.close()
        self._network.run()
        self.die()

    def die(self, is_noticed: bool = True) -> None:
        """End without a word, as by kill -9; unless ``is_noticed``, as when its host loses power."""
        self.lose(is_noticed)
        self._network.processes.pop(self.uplink, None)
