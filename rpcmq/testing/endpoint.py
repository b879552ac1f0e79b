"""A process's end of a link in a virtual network: its connection, and what can happen to that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rpcmq.core.common.session import Session
from rpcmq.core.process.uplink import Uplink
from rpcmq.testing.connections import Connection

__all__ = ["Endpoint", "Surroundings"]


class Surroundings(Protocol):
    """The network, as far as an endpoint needs it; see :class:`rpcmq.testing.virtual_time.VirtualTime`."""

    now: float
    processes: dict[Session, Endpoint]

    def attach(self, process: Endpoint) -> None:
        """Let ``process`` take part."""

    def connection(self, process: Endpoint) -> Connection | None:
        """Open a new connection of ``process``."""

    def broken(self, process: Endpoint, connection: Connection, is_noticed: bool, is_delivered: bool = False) -> None:
        """``connection`` of ``process`` is gone."""

    def inject_from(self, process: Endpoint, batch: bytes, payloads: Sequence[bytes] = ()) -> list[Any]:
        """Inject any bytes on the connection of ``process``."""

    def run(self) -> None:
        """Run all engines until nothing is pending."""


class Endpoint:
    """A process's end of one link.

    Attributes:
        uplink: the real engine of a process's end, which keeps the session.
        delay: seconds that a batch is under way, in either direction.
        connection: None while there is none.
        router: the name of the router that it connects to; empty where there is only one.
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
        self.router = ""
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
            self.uplink.connected(self._network.now, self.connection.url)
        self._network.run()

    def lose(self, is_noticed: bool = True) -> None:
        """Break the connection; batches in transit are lost.

        Unless ``is_noticed``, the router finds out only when it has something to send.
        """
        connection, self.connection = self.connection, None
        if connection is not None:
            self.uplink.lost(self._network.now)
            self._network.broken(self, connection, is_noticed)
            self._network.run()

    def move(self, router: str, is_noticed: bool = True, is_delivered: bool = False) -> None:
        """Leave the router for the one named ``router``. Nothing that the old one sends is read any more.

        Args:
            is_noticed: whether the old one notices now, or only when it has something to send.
            is_delivered: whether it still receives what is under way to it; if it is paused, once it goes on.
        """
        connection, self.connection = self.connection, None
        if connection is not None:
            self._network.broken(self, connection, is_noticed, is_delivered)
        self._is_cut_to_router = self._is_cut_to_process = False
        self.router = router
        self.connect()

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
        self._network.inject_from(self, batch, payloads)

    def stop(self) -> None:
        """Say goodbye and leave."""
        self.uplink.close()
        self._network.run()
        self.die()

    def die(self, is_noticed: bool = True) -> None:
        """End without a word, as by kill -9; unless ``is_noticed``, as when its host loses power."""
        self.lose(is_noticed)
        self._network.processes.pop(self.uplink, None)
