"""Virtual time: routers and processes in one thread, with a clock that advances only when it is told to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

from rpcmq.core.common.session import Session
from rpcmq.core.router.model import Link
from rpcmq.testing.connections import Connection, Paths, Way
from rpcmq.testing.endpoint import Endpoint
from rpcmq.testing.process import Message, Process
from rpcmq.testing.router_connections import RouterConnections
from rpcmq.testing.router_host import RouterHost
from rpcmq.wire import LOW_FLAGS_AT, Flag, payload_of

__all__ = ["VirtualTime"]

#: Steps at one time that mean an engine never comes to rest.
_MAX_STEPS = 10_000


class VirtualTime:
    """Routers, processes, and the connections between them, none of which uses a socket.

    Everything happens in a fixed order, so that the same steps have the same results.

    Args:
        now: seconds at the beginning.

    Attributes:
        hosts: the routers by their names.
        processes: the endpoints by their engine.
        paths: the paths between routers.
        under_way: connections with something in transit.
    """

    def __init__(self, now: float) -> None:
        self.now = now
        self.hosts: dict[str, RouterHost] = {}
        self.processes: dict[Session, Endpoint] = {}
        self.paths = Paths()
        self.under_way: dict[Connection, None] = {}
        self._dirty: list[Session] = []
        self._is_holding = False

    def process(
        self, identity: str, queue_type: str = "roundrobin", user: str = "", *, router: str = "", **hello: Any
    ) -> Process:
        """Add a process that has sent HELLO.

        Args:
            identity: its name.
            queue_type: of its link.
            user: the public key that its connections are authenticated with; empty: none.
            router: the name of the router that it connects to; empty: the first one.
            hello: further fields of HELLO, such as ``accepts``.
        """
        made = Process(self, identity, queue_type, hello)
        made.user = user
        made.router = router or next(iter(self.hosts))
        made.connect()
        return made

    def attach(self, process: Endpoint) -> None:
        """Let ``process`` take part; it is not connected yet."""
        process.uplink.dirty = self._dirty
        self.processes[process.uplink] = process

    def host_of(self, process: Endpoint) -> RouterHost:
        """Return the router that ``process`` connects to."""
        return self.hosts[process.router]

    def connections_at(self, url: str) -> RouterConnections | None:
        """Return the connections of the router whose url is ``url``; None if there is none."""
        return next((host.connections for host in self.hosts.values() if host.url == url), None)

    def link(self, process: Endpoint) -> Link:
        """Return the link of ``process`` at its router.

        Raises:
            LookupError: nothing.
        """
        link = self.host_of(process).router.links.by_origin(process.uplink.origin)
        if link is None:
            raise LookupError(f"the router has no link of {process.identity}")
        return link

    # --- connections of processes ------------------------------------------------------------

    def connection(self, process: Endpoint) -> Connection | None:
        """Open a new connection of ``process``; None without a router. Batches in transit on the old one are lost."""
        host = self.host_of(process)
        if process.connection is not None:
            host.connections.forget(process.connection)
        return None if host.is_down else host.connections.accept(process)

    def broken(self, process: Endpoint, connection: Connection, is_noticed: bool, is_delivered: bool = False) -> None:
        """``connection`` of ``process`` is gone; its router notices now, or when it has something to send.

        Args:
            is_delivered: whether batches that are under way to the router arrive before.
        """
        self.host_of(process).connections.broken(connection, is_noticed, is_delivered)

    def lose_at_router(self, process: Endpoint) -> None:
        """The router sees the connection of ``process`` end; the process does not, and is cut off."""
        if process.connection is not None:
            process.cut_off()
            self.host_of(process).connections.lose(process.connection)
            self.run()

    def inject_from(self, process: Endpoint, batch: bytes, payloads: Sequence[bytes] = ()) -> list[Message]:
        """Inject any bytes on the connection of ``process``; return the answers sent to it without a link."""
        assert process.connection is not None, f"{process.identity} is not connected"
        return self.host_of(process).inject(process.connection.route, batch, payloads)

    def put(self, connection: Connection | None, way: Way | None, messages: list[bytes]) -> None:
        """Send ``messages`` on ``way`` of ``connection``; None: nobody reads them."""
        if connection is None or way is None:
            return
        payloads = [bytes(payload_of(message)) for message in messages if message[LOW_FLAGS_AT] & Flag.DETACHED]
        way.put(self.now, b"".join(messages), payloads)
        self.under_way[connection] = None

    def flush(self, session: Session, connection: Connection | None, way: Way | None, is_ready: bool) -> None:
        """Send what ``session`` has in its outbox, as far as its connection ``is_ready`` for it."""
        for message in session.first_messages:
            self.put(connection, way, [message])
        session.first_messages.clear()
        while is_ready and session.may_send:
            batch = session.batch()
            self.put(connection, way, batch)
            session.batch_was_sent()
        for message in session.last_messages:
            self.put(connection, way, [message])
        session.last_messages.clear()

    # --- what happens ------------------------------------------------------------------------

    @contextmanager
    def together(self) -> Iterator[None]:
        """Send everything queued inside at the end, one batch for each process."""
        self._is_holding = True
        try:
            yield
        finally:
            self._is_holding = False
            self.run()

    def run(self) -> None:
        """Run all engines until nothing is pending at the current time."""
        if self._is_holding:
            return
        for _ in range(_MAX_STEPS):
            self._send()
            if not self._deliver():
                return
        raise RuntimeError("the engines do not come to rest")

    def advance(self, seconds: float) -> None:
        """Advance the clock by ``seconds``, running everything that comes due."""
        end, steps = self.now + seconds, 0
        while True:
            self.run()
            due = self._next_event()
            if due > end:
                break
            steps = steps + 1 if due <= self.now else 0
            if steps > _MAX_STEPS:
                raise RuntimeError("an engine keeps asking for a tick at the same time")
            self.now = max(self.now, due)
            for host in list(self.hosts.values()):
                host.tick()
            for process in list(self.processes.values()):
                if not process.is_paused and (process.next_deadline() or inf) <= self.now:
                    process.tick(self.now)
                    process.after_receive(self.now)
        self.now = end

    def _next_event(self) -> float:
        due = min(host.next_event() for host in self.hosts.values())
        for process in self.processes.values():
            if not process.is_paused:
                due = min(due, process.next_deadline() or inf)
        for connection in self.under_way:
            due = min(due, connection.to_router.next_arrival(), connection.to_dialer.next_arrival())
        return due

    def _send(self) -> None:
        stopped: list[Session] = []
        while self._dirty or any(host.has_effects for host in self.hosts.values()):
            for session in _taken(self._dirty):
                process = self.processes.get(session)
                if process is None:
                    continue
                if process.is_paused:
                    stopped.append(session)
                    continue
                process.before_flush()
                if (connection := process.connection) is not None:
                    self.flush(session, connection, connection.to_router, process.uplink.ready)
            for host in list(self.hosts.values()):
                host.perform_effects()
        for session in stopped:
            session.mark()

    def _deliver(self) -> bool:
        has_moved = False
        for connection in self._in_delivery_order():
            has_moved |= connection.to_router.arrive(self.now)
            has_moved |= connection.to_dialer.arrive(self.now)
            if not connection.is_pending:
                self.under_way.pop(connection, None)
        for host in list(self.hosts.values()):
            has_moved |= host.work()
        return has_moved

    def _in_delivery_order(self) -> list[Connection]:
        """The connections with something under way; the order in which they are served is no promise of the network."""
        return list(self.under_way)


def _taken(dirty: list[Session]) -> list[Session]:
    taken = dirty[:]
    dirty.clear()
    for session in taken:
        session.marked = False
    return taken
