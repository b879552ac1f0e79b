"""The router engine on a ZeroMQ ROUTER socket inside a gevent hub.

Everything here runs in the hub and never waits, so the engine needs no lock.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, assert_never

import zmq
from gevent import get_hub

from rpcmq.core.router.actions import Action, Answer, Dial, Disconnect, LinkDetached, LogEvent
from rpcmq.core.router.router import Router
from rpcmq.core.router.turns import TURN_STEPS
from rpcmq.errors import ConfigError
from rpcmq.transport.backlog import UnreadBytesWatch
from rpcmq.transport.batches import BatchSocket
from rpcmq.transport.curve import Curve
from rpcmq.transport.dialed_routers import DialedRouters
from rpcmq.transport.forks import abandon_after_fork
from rpcmq.transport.gevent_shell import GeventShell
from rpcmq.transport.link_sender import LinkSender
from rpcmq.transport.router_connections import RouterConnections
from rpcmq.transport.tick_timer import TickTimer
from rpcmq.transport.unidentified import UnidentifiedConnections
from rpcmq.transport.view_pacer import ViewPacer
from rpcmq.transport.watch import Watchdog
from rpcmq.wire import FIRST_KIND, Kind

__all__ = ["RouterShell"]

#: ZeroMQ messages received before others in the hub get their turn.
_ROUNDS = 64
#: Bytes received before the resulting messages are flushed.
_ROUND_BYTES = 8 << 20
#: Time for reading what has arrived when the router ends (seconds).
_LAST_READ = 0.5
#: Retry interval for a full connection (seconds).
_RETRY = 0.005
#: After so many wake-ups for one message each, the next message is expected to come alone, too.
_LONE_WAKES = 8
_HELLO = bytes([Kind.HELLO])


def _bound(socket: BatchSocket, url: str) -> str:
    """Bind ``socket``; return the url it has now."""
    try:
        socket.socket.bind(url)
    except zmq.ZMQError as error:
        socket.close()
        raise ConfigError(f"router.listen = {url!r}: cannot listen there: {error}") from None
    return str(socket.socket.last_endpoint.decode())


class RouterShell:
    """Binds ``url`` and runs ``router`` on it.

    Args:
        router: the engine.
        context: the ZeroMQ context to make the socket in.
        url: ``tcp://``, ``ipc://``; a port of 0 or ``*`` is chosen by the system.
        on_note: gets each event that is worth a line in the log.
        curve: the router's keys; who may connect is then for the ZAP handler of its domain to say.
        handshake_seconds: what a connection may take to say HELLO.
        max_handshakes: connections that have not said HELLO; the oldest are cut when there are more.
        options: for :class:`BatchSocket`.

    Attributes:
        unidentified: connections that have not said HELLO.

    Raises:
        ConfigError: the url cannot be bound.
    """

    def __init__(
        self,
        router: Router,
        context: zmq.Context[Any],
        url: str,
        on_note: Callable[[LogEvent], None] = lambda note: None,
        curve: Curve | None = None,
        handshake_seconds: float = 10.0,
        max_handshakes: int = 1000,
        **options: Any,
    ) -> None:
        self.router = router
        self._has_users = curve is not None
        self._on_note = on_note
        #: It is deaf when reading has stopped; readable: more was waiting at the end of the last wake-up.
        self._is_deaf = self._is_readable = self._closed = False
        self._lone_wakes = 0  # in a row: those that found one message at most
        self._socket = socket = BatchSocket(
            context, zmq.ROUTER, ipv6="[" in url, curve=curve, handshake_seconds=handshake_seconds, **options
        )
        self.url = _bound(socket, url)
        shell = GeventShell()
        self._loop = loop = get_hub().loop
        self._io = loop.io(socket.fd, 1)
        #: Goes on with what has come. No callback of the hub, of which 50 run before its timers have their turn.
        self._again = loop.timer(0.0)
        self._timer = TickTimer(loop, self._tick, self._wake, self._arm)
        self._views = ViewPacer(router, loop, self._wake)
        self.unidentified = UnidentifiedConnections(max_handshakes, handshake_seconds, self._count)
        self._connections = links = RouterConnections(router, socket, self.unidentified, self._arm, self._lose, shell)
        self._backlog = backlog = UnreadBytesWatch(router, links.sockets, self.unidentified)
        self._dialed = DialedRouters(router, links, curve, self._wake, backlog.begin, shell, context, **options)
        self._sender = LinkSender(router, socket, links, self._dialed, self._lose_soon)
        self._watchdog = Watchdog(lambda: None if self._is_deaf else socket, self._wake, shell)
        self._io.start(self._wake)
        self._watchdog.start()
        abandon_after_fork(self, shell)
        self._wake()

    @property
    def lost_wakeups(self) -> int:
        """Wake-ups that only the watchdog found. Must stay 0."""
        return self._watchdog.lost + self._dialed.lost_wakeups

    # --- the loop ----------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._closed:
            return
        self._watchdog.wakes += 1
        rounds = _ROUNDS
        try:
            rounds = self._turn()
        finally:
            # Also after an exception: more input gives no further edge, and due work stays due.
            more = self._has_more(rounds)
            if more:
                self._again.start(self._wake)
            self._lone_wakes = 0 if more or rounds > 1 else self._lone_wakes + 1
            if self.router.queries.is_anybody_waiting:
                self._views.start()
            self._arm()

    def _has_more(self, rounds: int) -> bool:
        if self._is_deaf:
            return False
        self._is_readable = self._socket.readable()
        if self._is_readable or rounds >= _ROUNDS or self.router.turns.waiting:
            return True
        return bool(self._dialed.ready) and self._dialed.has_more()

    def _turn(self) -> int:
        """Receive and send; return the number of messages received."""
        rounds = 0
        if not self._is_deaf:
            self.router.run_next_turn(monotonic())
            # To ask whether another has come would hold up the lone one, and has to be asked after sending anyway.
            most = 1 if self._lone_wakes >= _LONE_WAKES else _ROUNDS
            if self._dialed.ready:
                rounds = self._dialed.receive(most)
            # What has woken it has mostly come on one socket; the other one is looked at in the end.
            if not rounds or self._is_readable:
                rounds += self._receive(most)
        self._flush()
        return rounds

    def _receive(self, most: int) -> int:
        """Receive what there is, at most so many messages; return how many there were."""
        socket, router, turns = self._socket, self.router, self.router.turns
        rounds, room = 0, _ROUND_BYTES
        while rounds < most and room > 0 and turns.spent <= TURN_STEPS and (rounds == 0 or socket.readable()):
            try:
                route, batch, payloads = socket.receive()
            except zmq.Again:
                break  # nothing has come: this wake-up is for something else
            # Read the clock for each message: one that waited must not seem to have come with the first.
            now = monotonic()
            rounds += 1
            room -= len(batch)
            if payloads:
                room -= sum(map(len, payloads))
            if batch[FIRST_KIND] == _HELLO:
                router.receive(now, route, batch, payloads, socket.last_user() if self._has_users else "")
                self._guarded(self._has_greeted, route)
            else:
                router.receive(now, route, batch, payloads)
        return rounds

    def _tick(self, now: float) -> None:
        self.router.tick(now)
        self._guarded(self.unidentified.close_expired, now)
        self._wake()

    def _arm(self) -> None:
        now = monotonic()
        if self._timer.fires_soon(now):
            return
        due = self.router.next_deadline()
        if (late_at := self.unidentified.next_deadline()) is not None:
            due = min(due, late_at)
        if self._sender.blocked or self.router.relayed.blocked:
            due = min(due, now + _RETRY)
        self._timer.fire_by(due, now)

    def _guarded(self, step: Callable[..., object], *args: Any) -> None:
        """Run ``step``: an exception must not stop the rest of a wake-up."""
        try:
            step(*args)
        except Exception:
            self.router.faults.report(monotonic())

    def wake(self) -> None:
        """Flush after the engine was called from outside this shell."""
        self._loop.run_callback(self._wake)

    # --- sending -----------------------------------------------------------------------------

    def _flush(self) -> None:
        effects, sender = self.router.effects, self._sender
        if sender.blocked:
            effects.dirty.extend(sender.blocked)
            sender.blocked.clear()
        if effects.relayed.blocked:
            effects.relayed.retry()
        effects.perform(sender.send, self._act, sender.put)

    def _act(self, action: Action) -> None:
        self._guarded(self._do, action)

    def _do(self, action: Action) -> None:
        match action:
            case Answer(route, message):
                if not self._dialed.send(route, message):
                    self._connections.send(route, message)
            case Disconnect(route):
                if not self._dialed.disconnect(route):
                    self._connections.disconnect(route)
            case Dial():
                self._dialed.dial(action)
            case LinkDetached(route):
                self._connections.reset_to_handshake(route)
            case LogEvent():
                self._on_note(action)
            case _:
                assert_never(action)

    # --- connections -------------------------------------------------------------------------

    def _has_greeted(self, route: bytes) -> None:
        fd = self._connections.has_greeted(route)
        if fd is not None:
            self._backlog.begin(self.router.links.routes[route], fd)

    def _count(self, reason: str) -> None:
        self.router.links.counters[reason] += 1

    def _lose_soon(self, route: bytes) -> None:
        self._loop.run_callback(self._lose, route)

    def _lose(self, route: bytes) -> None:
        """Handle the end of a connection, of which a GOODBYE or other messages may still be unread."""
        self._wake()
        if not self._closed:
            self._connections.forget(route)
            self.router.lost(monotonic(), route)
            self._wake()

    @property
    def handshakes(self) -> int:
        """Number of connections that have not said HELLO."""
        return len(self.unidentified)

    def finish_drain(self) -> None:
        """Read everything that has arrived, then stop reading and send GOODBYE to all processes.

        They re-send unread messages to the router's next life, because they get the final receive count.
        """
        if self._closed:
            return
        self.router.refuse_nested_work()
        deadline = monotonic() + _LAST_READ
        while self._has_more(0) and monotonic() < deadline:
            self._wake()
        self._is_deaf = True
        self._io.stop()
        self._dialed.stop_reading()
        self.router.finish_drain(monotonic())
        self._wake()
        # Processes hang up when they have read the last of it; nobody else does on connections of our own.
        self._dialed.hang_up()

    def close(self, linger_seconds: float = 1.0) -> None:
        """Stop; queued messages have ``linger_seconds`` to leave."""
        if self._closed:
            return
        self._flush()
        self._closed = True
        self._stop_watching()
        self._dialed.close(linger_seconds)
        self._connections.close()
        self._socket.close(linger_seconds)

    def abandon(self, loop_runs: bool) -> None:
        """After a fork, in the child: the router is the parent's."""
        self._closed = True
        if loop_runs:
            self._stop_watching()
        self._dialed.abandon(loop_runs)
        self._connections.abandon(loop_runs)

    def _stop_watching(self) -> None:
        for watcher in (self._io, self._again):
            watcher.stop()
            watcher.close()
        self._timer.stop()
        self._views.stop()
        self._watchdog.stop()
        self._backlog.close()
