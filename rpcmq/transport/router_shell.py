"""The router engine on a ZeroMQ ROUTER socket inside a gevent hub.

Everything here runs in the hub and never waits, so the engine needs no lock.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Any, assert_never

import gevent
import zmq
from gevent import get_hub

from rpcmq.core.common.session import Session
from rpcmq.core.router.actions import Action, Answer, Disconnect, LinkDetached, LogEvent
from rpcmq.core.router.effects import NO_STORE, Store, StoreError
from rpcmq.core.router.link import Link
from rpcmq.core.router.router import Router
from rpcmq.core.router.turns import TURN_STEPS
from rpcmq.errors import ConfigError
from rpcmq.transport.backlog import BacklogWatch, UnidentifiedConnection, received_bytes
from rpcmq.transport.batches import BatchSocket, flush_session
from rpcmq.transport.curve import Curve
from rpcmq.transport.forks import abandon_after_fork
from rpcmq.transport.strangers import break_connection, socket_of
from rpcmq.transport.watch import ConnectionWatch, Watchdog
from rpcmq.wire import FIRST_KIND, Kind, pack

__all__ = ["RouterShell"]

#: ZeroMQ messages received before others in the hub get their turn.
_ROUNDS = 64
#: Bytes received before the resulting messages are flushed.
_ROUND_BYTES = 8 << 20
#: Time for reading what has arrived when the router ends (seconds).
_LAST_READ = 0.5
#: Retry interval for a full connection (seconds).
_RETRY = 0.005
#: Interval of attempts to use a store that has failed (seconds).
_STORE_RETRY = 0.1
#: Lateness of a timer (seconds) that indicates a stopped process; then unread messages are read for so long first.
_LATE = 0.5
_CATCH_UP = 0.25
#: Views are made for so long at a time, and not again before so long has passed (seconds): a fifth of all time.
_VIEW_WORK = 0.001
_VIEW_PAUSE = 0.004
#: And no more of them are sent than so many bytes a second: what is sent to others waits behind them.
_VIEW_BYTES = 32 << 20
#: Delays before checking that a connection reported closed has left the socket (seconds).
_PROBES = (0.0, 0.02, 0.1, 0.5)
_PROBE = pack(Kind.HEARTBEAT)
_HELLO = bytes([Kind.HELLO])


_FAILED: dict[int, str] = {
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "handshake failed: closed",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "handshake failed: key",
}


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
        store: where entries go that must be durable before anything is sent.
        options: for :class:`BatchSocket`.

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
        store: Store = NO_STORE,
        **options: Any,
    ) -> None:
        self.router = router
        self._store = store
        self._is_store_broken = False
        self.max_handshakes = max_handshakes
        self._handshake_seconds = handshake_seconds
        self._has_users = curve is not None
        self._on_note = on_note
        self._socket = BatchSocket(
            context, zmq.ROUTER, ipv6="[" in url, curve=curve, handshake_seconds=handshake_seconds, **options
        )
        #: Connections that have not said HELLO, the oldest first, by file descriptor.
        self._strangers: OrderedDict[int, UnidentifiedConnection] = OrderedDict()
        try:
            self._socket.socket.bind(url)
        except zmq.ZMQError as error:
            self._socket.close()
            raise ConfigError(f"router.listen = {url!r}: cannot listen there: {error}") from None
        self.url = self._socket.socket.last_endpoint.decode()
        self._routes_by_fd: dict[int, bytes] = {}
        #: Of each link's connection: file descriptor, and which socket that is.
        self._sockets: dict[bytes, tuple[int, int]] = {}
        self._blocked: set[Link] = set()
        #: Origins of links to which the last send raised.
        self._suspects: set[bytes] = set()
        self._closed = False
        #: Whether reading has stopped.
        self._is_deaf = False
        loop = get_hub().loop
        self._loop = loop
        self._watch = ConnectionWatch(self._socket.socket, self._on_connection_event)
        self._io = loop.io(self._socket.fd, 1)
        #: Goes on with what has come. No callback of the hub, of which 50 run before its timers have their turn.
        self._again = loop.timer(0.0)
        self._views = loop.timer(_VIEW_PAUSE)
        self._will_make_views = False
        self._timer = loop.timer(0.0)
        self._watchdog = Watchdog(lambda: None if self._is_deaf else self._socket, self._wake)
        self._backlog = BacklogWatch(router, self._sockets, self._strangers, break_connection)
        self._timer_at = 0.0
        self._not_before = 0.0
        self._has_caught_up = False
        #: Connections that have said HELLO, by file descriptor.
        self._greeted: set[int] = set()
        #: Number of successful handshakes on connections without HELLO: libzmq does not say which.
        self._handshakes_done = 0
        #: Whether the reason of the next handshake failure was counted already.
        self._explained = False
        self._io.start(self._wake)
        self._watchdog.start()
        abandon_after_fork(self)
        self._wake()

    @property
    def lost_wakeups(self) -> int:
        """Wake-ups that only the watchdog found. Must stay 0."""
        return self._watchdog.lost

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
            if self._has_more(rounds):
                self._again.start(self._wake)
            if self.router.queries.is_anybody_waiting:
                self._start_views(0.0)
            self._arm(monotonic())

    def _has_more(self, rounds: int) -> bool:
        if self._is_deaf:
            return False
        return rounds >= _ROUNDS or bool(self.router.turns.waiting) or self._socket.readable()

    def _turn(self) -> int:
        socket, router = self._socket, self.router
        rounds, room = 0, _ROUND_BYTES
        turns = router.turns
        if self._is_deaf:
            self._flush()
            return 0
        router.run_next_turn(monotonic())
        while rounds < _ROUNDS and room > 0 and turns.spent <= TURN_STEPS and socket.readable():
            route, batch, payloads = socket.receive()
            # Read the clock for each message: one that waited must not seem to have come with the first.
            now = monotonic()
            rounds += 1
            room -= len(batch)
            if payloads:
                room -= sum(map(len, payloads))
            if batch[FIRST_KIND] == _HELLO:
                router.receive(now, route, batch, payloads, socket.last_user() if self._has_users else "")
                self._guarded(self._remember_fd, route)
            else:
                router.receive(now, route, batch, payloads)
        self._flush()
        return rounds

    def _make_views(self) -> None:
        self._will_make_views = False
        router, now = self.router, monotonic()
        end = now + _VIEW_WORK
        sent = 0
        while not (self._closed or sent) and router.queries.is_anybody_waiting and now < end:
            sent = router.make_views(now)
            now = monotonic()
        if sent and router.queries.is_anybody_waiting:
            self._start_views(sent / _VIEW_BYTES)
        self._wake()

    def _start_views(self, pause: float) -> None:
        if not self._will_make_views:
            self._will_make_views = True
            self._views.close()
            self._views = self._loop.timer(max(_VIEW_PAUSE, pause))
            self._views.start(self._make_views)

    def _tick(self) -> None:
        now, due, self._timer_at = monotonic(), self._timer_at, 0.0
        if now - due > _LATE and not self._has_caught_up:
            # This process was stopped, or had no CPU: read input before declaring anybody silent. Not twice in a row:
            # where there is never CPU enough nothing would ever be done that is due.
            self._has_caught_up = True
            self._not_before = now + _CATCH_UP
            self._wake()
            return
        self._has_caught_up = False
        self.router.tick(now)
        self._guarded(self._cut_strangers, now)
        self._wake()

    def _arm(self, now: float) -> None:
        due = self.router.next_deadline()
        if self._strangers:
            due = min(due, next(iter(self._strangers.values())).since + self._handshake_seconds)
        if self._blocked:
            due = min(due, now + _RETRY)
        if self._is_store_broken:
            due = min(due, now + _STORE_RETRY)
        # Not before now: something long due must not look as if this process had been stopped since.
        due = max(due, self._not_before, now)
        if self._timer_at and self._timer_at <= due:
            return
        self._timer.stop()
        self._timer.close()
        self._timer_at = due
        self._timer = self._loop.timer(max(0.001, due - now))
        self._timer.start(self._tick)

    def _guarded(self, step: Callable[..., None], *args: Any) -> bool:
        """Run ``step``; return whether it succeeded. An exception must not stop the rest of a wake-up."""
        try:
            step(*args)
        except Exception:
            self.router.faults.report(monotonic())
            return False
        return True

    def wake(self) -> None:
        """Flush after the engine was called from outside this shell."""
        self._loop.run_callback(self._wake)

    # --- sending -----------------------------------------------------------------------------

    def _flush(self) -> None:
        effects = self.router.effects
        if self._blocked:
            effects.dirty.extend(self._blocked)
            self._blocked.clear()
        try:
            effects.perform(self._store, self._send_link, self._act)
        except StoreError as error:
            if not self._is_store_broken:
                self._is_store_broken = True
                self._on_note(LogEvent("store failed", f"nothing is sent until the store works again: {error}", ""))
        else:
            self._is_store_broken = False

    def _send_link(self, link: Session) -> None:
        if not self._guarded(self._flush_link, link):
            self._guarded(self._give_up, link)

    def _act(self, action: Action) -> None:
        self._guarded(self._do, action)

    def _give_up(self, link: Session) -> None:
        """Break the connection of a link whose messages could not be sent: its process resumes the session.

        The second time in a row the link ends, because its messages would fail again each time.
        """
        assert isinstance(link, Link)
        route, again = link.route, link.origin in self._suspects
        if route is not None:
            # Send nothing more on it: part of the failed batch may have been sent.
            self._disconnect(route)
            self._sockets.pop(route, None)
            self.router.lost(monotonic(), route)
        if again:
            self._suspects.discard(link.origin)
            self.router.links.end(monotonic(), link, "internal error while sending")
        else:
            self._suspects.add(link.origin)

    def _flush_link(self, link: Session) -> None:
        assert isinstance(link, Link)
        route = link.route
        if route is None:
            return
        try:
            flush_session(self._socket, link, route)
            if self._suspects:
                self._suspects.discard(link.origin)
        except zmq.Again:
            self._blocked.add(link)
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            self._loop.run_callback(self._lose, route)

    def _do(self, action: Action) -> None:
        match action:
            case Answer(route, message):
                self._answer(route, message)
            case Disconnect(route):
                self._disconnect(route)
            case LinkDetached(route):
                self._reset_to_handshake(route)
            case LogEvent():
                self._on_note(action)
            case _:
                assert_never(action)

    def _answer(self, route: bytes, message: bytes) -> bool:
        """Send to a connection that may be gone; return whether it still exists."""
        try:
            self._socket.send(route, (message,))
        except zmq.Again:
            return True
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            return False
        return True

    # --- connections -------------------------------------------------------------------------

    def _remember_fd(self, route: bytes) -> None:
        # What it was before, and that it was accepted, may not have been read yet.
        self._watch.read()
        fd = self._socket.last_fd()
        old = self._routes_by_fd.get(fd)
        if old is not None and old != route:
            self._sockets.pop(old, None)
            self._probe(old)
        if fd not in self._greeted:
            self._greeted.add(fd)
            self._handshakes_done = max(0, self._handshakes_done - 1)
        if route in self.router.links.routes:
            self._routes_by_fd[fd] = route
            if self._strangers.pop(fd, None) is None and old is None:
                # It had ended before its HELLO was read.
                self._probe_soon(route)
            if (known := socket_of(fd)) is not None:
                self._sockets[route] = fd, known
                self._backlog.begin(self.router.links.routes[route], fd)

    def _on_connection_event(self, event: int, value: int) -> None:
        self._guarded(self._connection_event, event, value)

    def _connection_event(self, event: int, value: int) -> None:
        if event == zmq.EVENT_ACCEPTED:
            self._accepted(value)
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._handshakes_done += 1
        elif (failed := _FAILED.get(event)) is not None:
            self.router.links.counters[failed] += 1
            self._explained = True
        elif event == zmq.EVENT_DISCONNECTED:
            self._count_failure(value)
            self._disconnected(value)

    def _count_failure(self, fd: int) -> None:
        """Count a failed handshake, unless it is counted already."""
        if fd in self._greeted:
            self._greeted.discard(fd)
        elif self._explained:
            pass
        elif self._handshakes_done:
            self._handshakes_done -= 1
        else:
            self.router.links.counters["handshake failed: protocol"] += 1
        self._explained = False

    def _accepted(self, fd: int) -> None:
        known = socket_of(fd)
        if known is not None:
            self._admit(fd, known)

    def _admit(self, fd: int, known: int, received: int = 0) -> None:
        self._strangers.pop(fd, None)
        self._strangers[fd] = UnidentifiedConnection(known, monotonic(), received)
        while len(self._strangers) > self.max_handshakes:
            oldest, stranger = self._strangers.popitem(last=False)
            self.router.links.counters["cut: too many handshakes"] += 1
            break_connection(oldest, stranger.socket)
        if len(self._strangers) == 1:
            self._arm(monotonic())

    def _cut_strangers(self, now: float) -> None:
        while self._strangers:
            fd, stranger = next(iter(self._strangers.items()))
            if now < stranger.since + self._handshake_seconds:
                break
            del self._strangers[fd]
            self.router.links.counters["cut: no HELLO in time"] += 1
            break_connection(fd, stranger.socket)

    def _disconnect(self, route: bytes) -> None:
        known = self._sockets.get(route)
        if known is not None:
            break_connection(*known)

    def _reset_to_handshake(self, route: bytes) -> None:
        """Reset a connection whose link has ended to the handshake phase, and bound it as one without a link."""
        known = self._sockets.get(route)
        if known is None or route in self.router.links.routes:
            return
        fd, socket = self._sockets.pop(route)
        self._routes_by_fd.pop(fd, None)
        if socket_of(fd) == socket:
            self._admit(fd, socket, received_bytes(fd) or 0)

    def _disconnected(self, fd: int) -> None:
        self._strangers.pop(fd, None)
        route = self._routes_by_fd.pop(fd, None)
        if route is None:
            return
        self._sockets.pop(route, None)
        self._probe_soon(route)

    def _probe_soon(self, route: bytes) -> None:
        # The event can come before the ROUTER has noticed, so ask it more than once.
        for after in _PROBES:
            gevent.spawn_later(after, self._probe, route)

    def _probe(self, route: bytes) -> None:
        if self._closed or route not in self.router.links.routes:
            return
        if not self._answer(route, _PROBE):
            self._lose(route)

    def _lose(self, route: bytes) -> None:
        """Handle the end of a connection, of which a GOODBYE or other messages may still be unread."""
        self._wake()
        if not self._closed:
            self._sockets.pop(route, None)
            self.router.lost(monotonic(), route)
            self._wake()

    @property
    def handshakes(self) -> int:
        """Number of connections that have not said HELLO."""
        return len(self._strangers)

    def dismiss(self) -> None:
        """Read everything that has arrived, then stop reading and send GOODBYE to all processes.

        They re-send unread messages to the router's next incarnation, because they get the final receive count.
        """
        if self._closed:
            return
        self.router.end_drain()
        deadline = monotonic() + _LAST_READ
        while self._has_more(0) and monotonic() < deadline:
            self._wake()
        self._is_deaf = True
        self._io.stop()
        self.router.dismiss(monotonic())
        self._wake()

    def close(self, linger_seconds: float = 1.0) -> None:
        """Stop; queued messages have ``linger_seconds`` to leave."""
        if self._closed:
            return
        self._flush()
        self._closed = True
        self._stop_watching()
        self._watch.close()
        self._socket.close(linger_seconds)

    def abandon(self, loop_runs: bool) -> None:
        """After a fork, in the child: the router is the parent's."""
        self._closed = True
        if loop_runs:
            self._stop_watching()
            self._watch.abandon()

    def _stop_watching(self) -> None:
        for watcher in (self._io, self._timer, self._again, self._views):
            watcher.stop()
            watcher.close()
        self._watchdog.stop()
        self._backlog.close()
