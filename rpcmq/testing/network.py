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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from math import inf
from typing import Any

from rpcmq.core.common.session import Session
from rpcmq.core.router.actions import Action, Answer, Dial, Disconnect, LinkDetached, LogEvent
from rpcmq.core.router.dispatch_log import Sink
from rpcmq.core.router.effects import NO_STORE, Store, StoreError
from rpcmq.core.router.model import Link
from rpcmq.core.router.router import Router
from rpcmq.core.router.settings import Settings
from rpcmq.testing.endpoint import Connection, Endpoint, Way
from rpcmq.testing.process import Call, Message, Process
from rpcmq.wire import LOW_FLAGS_AT, Flag, payload_of

__all__ = ["Call", "Message", "Network", "Process"]

#: Steps at one time that mean an engine never comes to rest.
_MAX_STEPS = 10_000


class Network:
    """A router and the processes that are connected to it.

    Args:
        settings: of the router; defaults as in :class:`Settings`.
        now: seconds at the beginning.
        lost_seconds: when the router notices at the latest that a connection is dead, as the transport's
            heartbeats see to it.
        sink: where the router's dispatch log goes.
        engine: makes the router, of what :class:`Router` takes.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        now: float = 1000.0,
        lost_seconds: float = 60.0,
        sink: Sink | None = None,
        engine: Callable[..., Router] = Router,
    ) -> None:
        self.settings = settings or Settings(recovery_seconds=0.0)
        self.now = now
        #: Endpoints by their engine.
        self.processes: dict[Session, Endpoint] = {}
        #: Answers to connections without a link, and log events.
        self.answers: list[Answer] = []
        self.notes: list[LogEvent] = []
        #: The store of its router's durable entries.
        self.store: Store = NO_STORE
        self._lost_seconds = lost_seconds
        self._sink = sink
        self._engine = engine
        self._boot = 1_700_000_000_000
        self._routes = count(1)
        self._tokens = count(1)
        self._dirty: list[Session] = []
        #: Processes by route; None where the router's output is not read.
        self._connections: dict[bytes, Connection | None] = {}
        #: Dead connections, by when the router will notice.
        self._unnoticed: deque[tuple[float, bytes]] = deque()
        #: Connections with something under way.
        self._under_way: dict[Connection, None] = {}
        self._is_holding = False
        #: Whether the router is paused, as by SIGSTOP; its input waits.
        self._is_router_paused = False
        self._is_router_down = False
        self.router = self._new_router()

    def _new_router(self) -> Router:
        return self._engine(self.settings, self._boot, self.now, lambda: f"token-{next(self._tokens)}", self._sink)

    def process(self, identity: str, queue_type: str = "roundrobin", user: str = "", **hello: Any) -> Process:
        """Add a process that has sent HELLO. ``hello``: further fields of HELLO, such as ``accepts``."""
        made = Process(self, identity, queue_type, hello)
        made.user = user
        made.connect()
        return made

    def attach(self, process: Endpoint) -> None:
        """Let ``process`` take part; it is not connected yet."""
        process.uplink.dirty = self._dirty
        self.processes[process.uplink] = process

    def link(self, process: Endpoint) -> Link:
        """Return the router's link of ``process``.

        Raises:
            LookupError: nothing.
        """
        link = self.router.links.by_origin(process.uplink.origin)
        if link is None:
            raise LookupError(f"the router has no link of {process.identity}")
        return link

    # --- the router --------------------------------------------------------------------------

    def restart_router(self, clock_step: float = 60.0) -> None:
        """Restart the router without its state. The processes have to reconnect.

        Args:
            clock_step: by how much the wall clock has gone on since the life before began (seconds); it may be
                negative.
        """
        self.kill_router()
        self.start_router(clock_step)

    def kill_router(self) -> None:
        """Kill the router. Until :meth:`start_router` nobody can connect."""
        self._is_router_down, self._is_router_paused = True, False
        for process in list(self.processes.values()):
            process.lose()
        self._connections.clear()
        self._under_way.clear()
        self._unnoticed.clear()
        self.router.dirty.clear()
        self.router.actions.clear()

    def start_router(self, clock_step: float = 60.0) -> None:
        """Start a new life of the router, after :meth:`kill_router`."""
        self._boot += int(clock_step * 1000)
        self._is_router_down = False
        self.router = self._new_router()

    def pause_router(self) -> None:
        """Pause the router, as by SIGSTOP: connections stay, and input waits."""
        self._is_router_paused = True

    def resume_router(self) -> None:
        """Resume the router."""
        self._is_router_paused = False
        self.run()

    def lose_at_router(self, process: Endpoint) -> None:
        """The router sees the connection of ``process`` end; the process does not, and is cut off."""
        connection = process.connection
        if connection is None:
            return
        process.cut_off()
        self._under_way.pop(connection, None)
        connection.to_router.clear()
        connection.to_process.clear()
        if self._connections.pop(connection.route, None) is not None:
            self.router.lost(self.now, connection.route)
        self.run()

    @property
    def is_router_up(self) -> bool:
        """Whether there is one that does its work."""
        return not (self._is_router_down or self._is_router_paused)

    def inject(self, route: bytes, batch: bytes, payloads: Sequence[bytes] = ()) -> list[Message]:
        """Inject any bytes on the connection ``route``; return the answers sent to it without a link."""
        before = len(self.answers)
        self._connections.setdefault(route, None)
        self.router.receive(self.now, route, batch, payloads)
        self.run()
        return [Message(a.message) for a in self.answers[before:] if a.route == route]

    # --- connections -------------------------------------------------------------------------

    def connection(self, process: Endpoint) -> Connection | None:
        """Open a new connection of ``process``; None without a router. Batches in transit on the old one are lost."""
        if process.connection is not None:
            self._under_way.pop(process.connection, None)
            self._connections[process.connection.route] = None
            self._unnoticed.append((self.now + self._lost_seconds, process.connection.route))
        if self._is_router_down:
            return None
        route = b"%s#%d" % (process.identity.encode(), next(self._routes))
        made = self._connections[route] = Connection(process, route)
        return made

    def broken(self, connection: Connection, is_noticed: bool) -> None:
        """``connection`` is gone; the router notices now, or when it has something to send."""
        self._under_way.pop(connection, None)
        self._connections.pop(connection.route, None)
        if self._is_router_down:
            return
        if is_noticed and not self._is_router_paused:
            self.router.lost(self.now, connection.route)
        elif is_noticed:
            self._unnoticed.appendleft((self.now, connection.route))
        else:
            self._unnoticed.append((self.now + self._lost_seconds, connection.route))

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
            if self.is_router_up:
                self._tick_router()
            for process in list(self.processes.values()):
                if not process.is_paused and (process.next_deadline() or inf) <= self.now:
                    process.tick(self.now)
                    process.after_receive(self.now)
        self.now = end

    def _tick_router(self) -> None:
        while self._unnoticed and self._unnoticed[0][0] <= self.now:
            _, route = self._unnoticed.popleft()
            self._connections.pop(route, None)
            self.router.lost(self.now, route)
        if self.router.next_deadline() <= self.now:
            self.router.tick(self.now)

    def _next_event(self) -> float:
        due = inf
        if self.is_router_up:
            due = min((self.router.next_deadline(), *(at for at, _ in self._unnoticed)))
        for process in self.processes.values():
            if not process.is_paused:
                due = min(due, process.next_deadline() or inf)
        for connection in self._under_way:
            process = connection.process
            if connection.to_router and process.sends and self.is_router_up:
                due = min(due, connection.to_router[0][0])
            if connection.to_process and process.receives:
                due = min(due, connection.to_process[0][0])
        return due

    def _send(self) -> None:
        router = self.router
        stopped: list[Session] = []
        while self._dirty or (self.is_router_up and router.effects):
            for session in _taken(self._dirty):
                process = self.processes.get(session)
                if process is None:
                    continue
                if process.is_paused:
                    stopped.append(session)
                    continue
                process.before_flush()
                if process.connection is not None:
                    self._flush(session, process.connection, process.connection.to_router, process.uplink.ready)
            if not self.is_router_up:
                continue
            try:
                router.effects.perform(self.store, self._send_to_process, self._perform)
            except StoreError:
                break  # nothing may be sent before it is durable: everything waits, as in the router's shell
        for session in stopped:
            session.mark()

    def _send_to_process(self, link: Session) -> None:
        assert isinstance(link, Link)
        if link.route is None:
            return
        if link.route not in self._connections:
            self.router.lost(self.now, link.route)
        else:
            connection = self._connections[link.route]
            self._flush(link, connection, connection.to_process if connection else deque(), True)

    def _perform(self, action: Action) -> None:
        if isinstance(action, LogEvent):
            self.notes.append(action)
            return
        if isinstance(action, Disconnect):
            broken = self._connections.get(action.route)
            if broken is not None:
                broken.process.lose()
            return
        if isinstance(action, LinkDetached | Dial):
            return
        self.answers.append(action)
        connection = self._connections.get(action.route)
        if connection is not None:
            self._put(connection, connection.to_process, [action.message])

    def _flush(self, session: Session, connection: Connection | None, way: Way, ready: bool) -> None:
        for message in session.first_messages:
            self._put(connection, way, [message])
        session.first_messages.clear()
        while ready and session.may_send:
            batch = session.batch()
            self._put(connection, way, batch)
            session.batch_was_sent()
        for message in session.last_messages:
            self._put(connection, way, [message])
        session.last_messages.clear()

    def _put(self, connection: Connection | None, way: Way, messages: list[bytes]) -> None:
        if connection is None:
            return
        payloads = [bytes(payload_of(message)) for message in messages if message[LOW_FLAGS_AT] & Flag.DETACHED]
        way.append((self.now + connection.process.delay, b"".join(messages), payloads))
        self._under_way[connection] = None

    def _deliver(self) -> bool:
        moved = False
        for connection in list(self._under_way):
            process = connection.process
            if process.sends and self.is_router_up:
                for batch, payloads in self._arrived(connection.to_router):
                    self.router.receive(self.now, connection.route, batch, payloads, process.user)
                    moved = True
            if process.receives and connection.to_process:
                for batch, payloads in self._arrived(connection.to_process):
                    process.uplink.receive(self.now, batch, payloads)
                    moved = True
                process.after_receive(self.now)
            if not connection.to_router and not connection.to_process:
                self._under_way.pop(connection, None)
        if self.is_router_up and self.router.turns.is_anybody_waiting:
            self.router.run_next_turn(self.now)
            moved = True
        if self.is_router_up and self.router.queries.is_anybody_waiting:
            self.router.make_views(self.now)
            moved = True
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
