"""A router of a virtual network: its engine through all its lives, and the work of its shell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from math import inf
from typing import Protocol, assert_never

from rpcmq.core.common.session import Session
from rpcmq.core.router.actions import Action, Answer, Dial, Disconnect, LinkDetached, LogEvent
from rpcmq.core.router.dispatch_log import Sink
from rpcmq.core.router.model import Link
from rpcmq.core.router.router import Router
from rpcmq.core.router.settings import Settings
from rpcmq.testing import router_connections
from rpcmq.testing.connections import Connection, Way
from rpcmq.testing.endpoint import Endpoint
from rpcmq.testing.process import Message
from rpcmq.testing.router_connections import RouterConnections

__all__ = ["RouterHost", "Surroundings"]


class Surroundings(router_connections.Surroundings, Protocol):
    """The network, as far as a router needs it; see :class:`rpcmq.testing.virtual_time.VirtualTime`."""

    processes: dict[Session, Endpoint]

    def put(self, connection: Connection | None, way: Way | None, messages: list[bytes]) -> None:
        """Send ``messages`` on ``way``."""

    def flush(self, session: Session, connection: Connection | None, way: Way | None, is_ready: bool) -> None:
        """Send what ``session`` has in its outbox."""

    def run(self) -> None:
        """Run all engines until nothing is pending."""


class RouterHost:
    """One router.

    Args:
        network: the rest of the network.
        settings: of the router.
        engine: makes the router, of what :class:`Router` takes.
        sink: where the router's dispatch log goes.
        lost_seconds: when the router notices at the latest that a connection is dead, as the transport's
            heartbeats see to it.
        name: its name in the network; empty where it is the only one.

    Attributes:
        router: the engine of its present life, or of its last one.
        connections: its connections.
        url: the url at which others reach it.
        user: the public key that other routers know it by, and have to dial it with; empty: none.
        answers: answers to connections without a link.
        notes: log events of all its lives.
        on_action: called with each action before it is performed.
        on_batch: called with the connection and messages of each batch that begins with a RELAY, before it is sent.
    """

    def __init__(
        self,
        network: Surroundings,
        settings: Settings,
        engine: Callable[..., Router],
        sink: Sink | None = None,
        lost_seconds: float = 60.0,
        name: str = "",
    ) -> None:
        self.name, self.url, self.user = name, name and f"inproc://{name}", ""
        self.settings = settings
        self.answers: list[Answer] = []
        self.notes: list[LogEvent] = []
        self.on_action: Callable[[Action], None] = lambda action: None
        self.on_batch: Callable[[bytes, Sequence[bytes]], None] = lambda route, messages: None
        self._network = network
        self._engine, self._sink = engine, sink
        self._boot = 1_700_000_000_000
        self._tokens = count(1)
        self.connections = RouterConnections(self, network, lost_seconds)
        self.is_down = self.is_paused = False
        self.router = self._new_router()

    def _new_router(self) -> Router:
        router = self._engine(self.settings, self._boot, self._network.now, self._new_token, self._sink)
        if self.url:
            router.mesh.own.urls = (self.url,)
        return router

    def _new_token(self) -> str:
        return f"{self.name and self.name + '-'}token-{next(self._tokens)}"

    # --- its lives ---------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Whether it runs, and is not paused."""
        return not (self.is_down or self.is_paused)

    def restart(self, clock_step: float = 60.0, is_delivered: bool = False) -> None:
        """Kill it, and start it again; arguments as of :meth:`start` and :meth:`kill`."""
        self.kill(is_delivered)
        self.start(clock_step)

    def kill(self, is_delivered: bool = False) -> None:
        """Kill it, as by kill -9. Until :meth:`start` nobody can connect.

        Args:
            is_delivered: whether what it has sent before still arrives; else batches in transit are lost.
        """
        self.is_down, self.is_paused = True, False
        receivers = self.connections.close_all(is_delivered)
        self.router.dirty.clear()
        self.router.actions.clear()
        for process in list(self._network.processes.values()):
            if process.router == self.name and process not in receivers:
                process.lose()
        self._network.run()

    def start(self, clock_step: float = 60.0) -> None:
        """Start a new life, after :meth:`kill`, without any state of the one before.

        Args:
            clock_step: by how much the wall clock has gone on since the life before began (seconds); it may be
                negative.
        """
        self._boot += int(clock_step * 1000)
        self.is_down = False
        self.router = self._new_router()
        self._network.run()

    def pause(self) -> None:
        """Pause it, as by SIGSTOP: connections stay, and input waits."""
        self.is_paused = True

    def resume(self) -> None:
        """Resume it."""
        self.is_paused = False
        self._network.run()

    # --- its work ----------------------------------------------------------------------------

    def inject(self, route: bytes, batch: bytes, payloads: Sequence[bytes] = ()) -> list[Message]:
        """Inject any bytes on the connection ``route``; return the answers sent to it without a link."""
        before = len(self.answers)
        self.connections.ends.setdefault(route, None)
        self.router.receive(self._network.now, route, batch, payloads)
        self._network.run()
        return [Message(a.message) for a in self.answers[before:] if a.route == route]

    @property
    def has_effects(self) -> bool:
        """Whether there is something for :meth:`perform_effects`."""
        return self.is_up and bool(self.router.effects)

    def perform_effects(self) -> None:
        """Do what the engine asks for."""
        if self.is_up:
            self.router.effects.perform(self._send, self._perform, self._put)

    def work(self) -> bool:
        """Go on with attempts to connect, and with what waits in the engine; return whether there was anything."""
        if not self.is_up:
            return False
        now, router = self._network.now, self.router
        has_moved = self.connections.dial_again(now)
        if router.turns.is_anybody_waiting:
            router.run_next_turn(now)
            has_moved = True
        if router.queries.is_anybody_waiting:
            router.make_views(now)
            has_moved = True
        return has_moved

    def next_event(self) -> float:
        """The time of the next :meth:`tick` or :meth:`work` (monotonic seconds)."""
        return min(self.router.next_deadline(), self.connections.next_event()) if self.is_up else inf

    def tick(self) -> None:
        """Do what is due."""
        if self.is_up:
            now = self._network.now
            self.connections.tick(now)
            if self.router.next_deadline() <= now:
                self.router.tick(now)

    def _send(self, link: Session) -> None:
        assert isinstance(link, Link)
        if link.route is None:
            return
        if link.route not in self.connections.ends:
            self.router.lost(self._network.now, link.route)
            return
        end = self.connections.ends[link.route]
        if end is None:
            self._network.flush(link, None, None, True)
        else:
            self._network.flush(link, end.connection, end.outgoing, True)

    def _put(self, route: bytes, messages: Sequence[bytes]) -> bool:
        end = self.connections.ends.get(route)
        if end is not None:
            self.on_batch(route, messages)
            self._network.put(end.connection, end.outgoing, list(messages))
        return True

    def _perform(self, action: Action) -> None:
        self.on_action(action)
        match action:
            case LogEvent():
                self.notes.append(action)
            case Answer(route, message):
                self.answers.append(action)
                if (end := self.connections.ends.get(route)) is not None:
                    self._network.put(end.connection, end.outgoing, [message])
            case Dial():
                self.connections.dial(action)
            case Disconnect(route):
                self.connections.disconnect(route)
            case LinkDetached():
                pass
            case _:
                assert_never(action)
