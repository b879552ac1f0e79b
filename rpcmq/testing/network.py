"""A virtual network: a router engine and processes that talk to it, in one thread, in virtual time.

No socket, no greenlet and no sleep is involved, so minutes of silence and lost connections cost
microseconds and happen the same way each time. A test reads as a conversation::

    net = Network()
    api, node = net.process("api"), net.process("node")
    node.register("compute", server="node-7", credit=2)
    call = api.request("compute", "reboot", ttl=30)
    node.reply(node.take(Kind.REQUEST), b"done")
    assert call.end.payload == b"done"

Each verb of a process sends at once and lets everything that follows from it happen; inside ``with
net.together():`` what is sent leaves as one batch for each process instead. Time stands still but for
:meth:`Network.advance`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from math import inf
from typing import Any

from rpcmq.core.actions import Answer, Note
from rpcmq.core.dispatch_log import Sink
from rpcmq.core.link import Session
from rpcmq.core.links import Link
from rpcmq.core.router import Router
from rpcmq.core.settings import Settings
from rpcmq.testing.process import Call, Connection, Message, Process, Way
from rpcmq.wire import Flag, payload_of

__all__ = ["Call", "Message", "Network", "Process"]

#: So many steps without time going on mean that an engine never comes to rest.
_MAX_STEPS = 10_000


class Network:
    """A router and the processes that are connected to it.

    Args:
        settings: of the router; defaults as in :class:`Settings`.
        now: seconds at the beginning.
        lost_seconds: when the router notices at the latest that a connection is dead, as the transport's
            heartbeats see to it.
        sink: where the router's dispatch log goes.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        now: float = 1000.0,
        lost_seconds: float = 60.0,
        sink: Sink | None = None,
    ) -> None:
        self.settings = settings or Settings(recovery_seconds=0.0)
        self.now = now
        #: By the engine of its end.
        self.processes: dict[Session, Process] = {}
        #: Answers to connections that are no link, and what was worth a line in the log.
        self.answers: list[Answer] = []
        self.notes: list[Note] = []
        self._lost_seconds = lost_seconds
        self._sink = sink
        self._boot = 1_700_000_000_000
        self._routes = count(1)
        self._tokens = count(1)
        self._dirty: list[Session] = []
        #: By route; None where nobody reads what the router sends.
        self._connections: dict[bytes, Connection | None] = {}
        #: Dead connections, by when the router will notice.
        self._unnoticed: deque[tuple[float, bytes]] = deque()
        #: Connections with something under way.
        self._under_way: dict[Connection, None] = {}
        self._is_holding = False
        self.router = self._new_router()

    def _new_router(self) -> Router:
        return Router(self.settings, self._boot, self.now, lambda: f"token-{next(self._tokens)}", self._sink)

    def process(self, identity: str, queue_type: str = "roundrobin", **hello: Any) -> Process:
        """A process that has said HELLO. ``hello`` is what else HELLO may say, as ``accepts``."""
        made = Process(self, identity, queue_type, hello)
        made.uplink.dirty = self._dirty
        self.processes[made.uplink] = made
        made.connect()
        return made

    def link(self, process: Process) -> Link:
        """What the router has of ``process``.

        Raises:
            LookupError: nothing.
        """
        link = self.router.links.by_origin(process.uplink.origin)
        if link is None:
            raise LookupError(f"the router has no link of {process.identity}")
        return link

    def restart_router(self) -> None:
        """The router dies with all it knew; a new one begins. The processes have to connect again."""
        processes = list(self.processes.values())
        for process in processes:
            process.lose()
        self._boot += 60_000
        self._connections.clear()
        self._under_way.clear()
        self._unnoticed.clear()
        self.router = self._new_router()

    def inject(self, route: bytes, batch: bytes, payloads: Sequence[bytes] = ()) -> list[Message]:
        """Let any bytes come on the connection ``route``; returns what was answered to it as no link."""
        before = len(self.answers)
        self._connections.setdefault(route, None)
        self.router.receive(self.now, route, batch, payloads)
        self.run()
        return [Message(a.part) for a in self.answers[before:] if a.route == route]

    # --- connections -------------------------------------------------------------------------

    def connection(self, process: Process) -> Connection:
        """A new connection of ``process``; of an earlier one, what is under way is lost."""
        if process.connection is not None:
            self._under_way.pop(process.connection, None)
            self._connections[process.connection.route] = None
            self._unnoticed.append((self.now + self._lost_seconds, process.connection.route))
        route = b"%s#%d" % (process.identity.encode(), next(self._routes))
        made = self._connections[route] = Connection(process, route)
        return made

    def broken(self, connection: Connection, is_noticed: bool) -> None:
        """``connection`` is gone; the router notices now, or when it has something to send."""
        self._under_way.pop(connection, None)
        del self._connections[connection.route]
        if is_noticed:
            self.router.lost(self.now, connection.route)
        else:
            self._unnoticed.append((self.now + self._lost_seconds, connection.route))

    # --- what happens ------------------------------------------------------------------------

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is sent inside leaves at the end, one batch for each process."""
        self._is_holding = True
        try:
            yield
        finally:
            self._is_holding = False
            self.run()

    def run(self) -> None:
        """Let all happen that can happen now."""
        if self._is_holding:
            return
        for _ in range(_MAX_STEPS):
            self._send()
            if not self._deliver():
                return
        raise RuntimeError("the engines do not come to rest")

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, with everything in its time."""
        end, steps = self.now + seconds, 0
        while True:
            self.run()
            due = self._next_event()
            if due > end:
                break
            steps = steps + 1 if due <= self.now else 0
            if steps > _MAX_STEPS:
                raise RuntimeError("an engine wants to be called again and again at the same time")
            self.now = max(self.now, due)
            while self._unnoticed and self._unnoticed[0][0] <= self.now:
                _, route = self._unnoticed.popleft()
                self._connections.pop(route, None)
                self.router.lost(self.now, route)
            if self.router.next_deadline() <= self.now:
                self.router.tick(self.now)
            for process in self.processes.values():
                process.uplink.tick(self.now)
        self.now = end

    def _next_event(self) -> float:
        due = min((self.router.next_deadline(), *(at for at, _ in self._unnoticed)))
        for process in self.processes.values():
            due = min(due, process.uplink.next_deadline() or inf)
        for connection in self._under_way:
            for way in (connection.to_router, connection.to_process):
                if way and not connection.process.is_cut_off:
                    due = min(due, way[0][0])
        return due

    def _send(self) -> None:
        router = self.router
        while self._dirty or router.dirty or router.actions:
            for session in _taken(self._dirty):
                process = self.processes.get(session)
                connection = process.connection if process is not None else None
                if process is not None and connection is not None:
                    self._flush(session, connection, connection.to_router, process.uplink.ready)
            for session in _taken(router.dirty):
                assert isinstance(session, Link)
                if session.route is not None:
                    if session.route not in self._connections:
                        router.lost(self.now, session.route)
                    else:
                        connection = self._connections[session.route]
                        self._flush(session, connection, connection.to_process if connection else deque(), True)
            actions, router.actions = router.actions, []
            for action in actions:
                self._perform(action)

    def _perform(self, action: Answer | Note) -> None:
        if isinstance(action, Note):
            self.notes.append(action)
            return
        self.answers.append(action)
        connection = self._connections.get(action.route)
        if connection is not None:
            self._put(connection, connection.to_process, [action.part])

    def _flush(self, session: Session, connection: Connection | None, way: Way, ready: bool) -> None:
        for part in session.greetings:
            self._put(connection, way, [part])
        session.greetings.clear()
        while ready and session.outbox:
            self._put(connection, way, session.batch())
            session.sent_batch()
        for part in session.closings:
            self._put(connection, way, [part])
        session.closings.clear()

    def _put(self, connection: Connection | None, way: Way, parts: list[bytes]) -> None:
        if connection is None:
            return
        payloads = [bytes(payload_of(part)) for part in parts if part[7] & Flag.DETACHED]
        way.append((self.now + connection.process.delay, b"".join(parts), payloads))
        self._under_way[connection] = None

    def _deliver(self) -> bool:
        moved = False
        for connection in list(self._under_way):
            process = connection.process
            if process.is_cut_off:
                continue
            for batch, payloads in self._arrived(connection.to_router):
                self.router.receive(self.now, connection.route, batch, payloads)
                moved = True
            for batch, payloads in self._arrived(connection.to_process):
                process.uplink.receive(self.now, batch, payloads)
                moved = True
            if not connection.to_router and not connection.to_process:
                self._under_way.pop(connection, None)
        return moved

    def _arrived(self, way: Way) -> Iterator[tuple[bytes, list[bytes]]]:
        while way and way[0][0] <= self.now:
            yield way.popleft()[1:]


def _taken(dirty: list[Session]) -> list[Session]:
    taken = dirty[:]
    dirty.clear()
    for session in taken:
        session.marked = False
    return taken
