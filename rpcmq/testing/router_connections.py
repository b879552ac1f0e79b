"""The connections of a router of a virtual network: with processes, and with other routers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Protocol

from rpcmq.core.router.actions import Dial
from rpcmq.core.router.router import Router
from rpcmq.testing.connections import Connection, Paths, Way
from rpcmq.testing.endpoint import Endpoint

__all__ = ["End", "Host", "RouterConnections", "Surroundings"]

#: Seconds after which an attempt to connect to another router is given up.
_DIAL_SECONDS = 5.0


class Surroundings(Protocol):
    """The network, as far as connections need it; see :class:`rpcmq.testing.virtual_time.VirtualTime`."""

    now: float
    paths: Paths
    under_way: dict[Connection, None]

    def connections_at(self, url: str) -> RouterConnections | None:
        """Return the connections of the router whose url is ``url``."""


class Host(Protocol):
    """The router that has the connections; see :class:`rpcmq.testing.router_host.RouterHost`."""

    name: str
    url: str
    user: str
    router: Router

    @property
    def is_up(self) -> bool:
        """Whether it runs, and is not paused."""

    @property
    def is_paused(self) -> bool:
        """Whether it is paused."""


@dataclass(slots=True, eq=False)
class End:
    """The router's end of a connection; at the other end is a process, or another router."""

    connection: Connection
    outgoing: Way
    incoming: Way
    process: Endpoint | None = None
    peer: RouterConnections | None = None
    #: The name of the connection at ``peer``.
    peer_route: bytes = b""


@dataclass(slots=True, eq=False)
class _Attempt:
    """A connection to another router that does not stand yet."""

    dial: Dial
    began_at: float


class RouterConnections:
    """The connections of the router ``host``.

    Args:
        lost_seconds: when the router notices at the latest that a process's connection is dead, as the transport's
            heartbeats see to it.

    Attributes:
        ends: its end of each connection by route; None where its output is not read.
    """

    def __init__(self, host: Host, network: Surroundings, lost_seconds: float) -> None:
        self._host = host
        self._network = network
        self._lost_seconds = lost_seconds
        self._routes = count(1)
        self.ends: dict[bytes, End | None] = {}
        #: Dead connections, by when the router will notice.
        self._unnoticed: deque[tuple[float, bytes]] = deque()
        self._attempts: list[_Attempt] = []

    def close_all(self, is_delivered: bool) -> list[Endpoint]:
        """Close all, as the router is gone; unless ``is_delivered``, what it has sent and is in transit is lost.

        Returns:
            The processes that are still to receive something.
        """
        ends, self.ends = list(self.ends.values()), {}
        self._unnoticed.clear()
        self._attempts.clear()
        receivers = []
        for end in ends:
            if end is not None and (end.process is None or is_delivered):
                self._close(end, is_delivered)
                receivers += [end.process] if end.process is not None else []
        return receivers

    def next_event(self) -> float:
        """The time of the next :meth:`tick` or :meth:`dial_again` that has an effect (monotonic seconds)."""
        now = self._network.now
        due = min((at for at, _ in self._unnoticed), default=inf)
        for attempt in self._attempts:
            stands_at = attempt.began_at + self._round_trip(attempt.dial.url)
            due = min(due, stands_at if stands_at > now else inf, attempt.began_at + _DIAL_SECONDS)
        return due

    def tick(self, now: float) -> None:
        """Notice what is due."""
        while self._unnoticed and self._unnoticed[0][0] <= now:
            _, route = self._unnoticed.popleft()
            self.ends.pop(route, None)
            self._host.router.lost(now, route)

    # --- processes ---------------------------------------------------------------------------

    def accept(self, process: Endpoint) -> Connection:
        """Accept a connection of ``process``."""
        host, route = self._host, self._new_route(process.identity)

        def lose(now: float) -> None:
            if process.connection is made:
                process.lose()

        to_router = Way(
            lambda now, batch, payloads: host.router.receive(now, route, batch, payloads, process.user),
            lambda now: self._lost(route),
            lambda: process.sends and host.is_up,
            lambda: process.delay,
        )
        to_process = Way(
            process.uplink.receive,
            lose,
            lambda: process.receives,
            lambda: process.delay,
            process.after_receive,
        )
        made = Connection(route, host.url, to_router, to_process)
        self.ends[route] = End(made, to_process, to_router, process)
        return made

    def forget(self, connection: Connection) -> None:
        """The process does not use ``connection`` any more, which is not noticed before it is dead for long."""
        self._network.under_way.pop(connection, None)
        if not connection.to_router.is_dead:
            self.ends[connection.route] = None
            self._notice_later(connection.route)

    def broken(self, connection: Connection, is_noticed: bool, is_delivered: bool = False) -> None:
        """``connection`` is gone; it is noticed now, or when there is something to send.

        Args:
            is_delivered: whether it is noticed once everything under way to this router has arrived.
        """
        if is_delivered and connection.route in self.ends:
            connection.to_dialer.kill()
            connection.to_router.close(self._network.now, is_delivered=True)
            self._network.under_way[connection] = None
            return
        self._network.under_way.pop(connection, None)
        if self.ends.pop(connection.route, None) is None:
            return
        if not is_noticed:
            self._notice_later(connection.route)
        elif self._host.is_paused:
            self._notice_first(connection.route)
        else:
            self._host.router.lost(self._network.now, connection.route)

    def lose(self, connection: Connection) -> None:
        """This router sees ``connection`` end; the process does not."""
        connection.kill()
        self._lost(connection.route)

    # --- other routers -----------------------------------------------------------------------

    def dial(self, dial: Dial) -> None:
        """Begin to connect to another router."""
        self._attempts.append(_Attempt(dial, self._network.now))

    def dial_again(self, now: float) -> bool:
        """Go on with all attempts to connect; return whether one of them is over."""
        attempts = len(self._attempts)
        self._attempts = [attempt for attempt in self._attempts if not self._is_over(now, attempt)]
        return len(self._attempts) < attempts

    def _is_over(self, now: float, attempt: _Attempt) -> bool:
        dial = attempt.dial
        other = self._network.connections_at(dial.url)
        if other is not None and self._is_reachable(other) and dial.server_key == other._host.user:
            if now < attempt.began_at + self._round_trip(dial.url):
                return False
            self._connect(dial.route, other)
            self._host.router.connected(now, dial.route)
            return True
        if now < attempt.began_at + _DIAL_SECONDS:
            return False
        self._host.router.lost(now, dial.route, f"no connection within {_DIAL_SECONDS:g} s")
        return True

    def _round_trip(self, url: str) -> float:
        other = self._network.connections_at(url)
        if other is None:
            return 0.0
        here, there, paths = self._host.name, other._host.name, self._network.paths
        return paths.delay(here, there) + paths.delay(there, here)

    def _is_reachable(self, other: RouterConnections) -> bool:
        here, there, paths = self._host.name, other._host.name, self._network.paths
        return other._host.is_up and paths.is_open(here, there) and paths.is_open(there, here)

    def _connect(self, route: bytes, other: RouterConnections) -> None:
        accepted = other._new_route(self._host.name)
        to_other, to_self = self._way(other, accepted, self._host.user), other._way(self, route, "")
        connection = Connection(accepted, other._host.url, to_other, to_self)
        self.ends[route] = End(connection, to_other, to_self, peer=other, peer_route=accepted)
        other.ends[accepted] = End(connection, to_self, to_other, peer=self, peer_route=route)

    def _way(self, other: RouterConnections, route: bytes, user: str) -> Way:
        """The way to ``other``, where the connection is called ``route``."""
        paths, here, there = self._network.paths, self._host, other._host
        return Way(
            lambda now, batch, payloads: there.router.receive(now, route, batch, payloads, user),
            lambda now: other._lost(route),
            lambda: there.is_up and paths.is_open(here.name, there.name),
            lambda: paths.delay(here.name, there.name),
        )

    def reset(self, other: RouterConnections) -> None:
        """Break all connections with ``other``: what is in transit is lost, and both ends notice."""
        for route, end in list(self.ends.items()):
            if end is not None and end.peer is other:
                end.connection.kill()
                self._notice(route)
                other._notice(end.peer_route)

    # --- the end of a connection -------------------------------------------------------------

    def disconnect(self, route: bytes) -> None:
        """Close the connection ``route``, or give up the attempt, as the engine wants it."""
        self._attempts = [attempt for attempt in self._attempts if attempt.dial.route != route]
        end = self.ends.get(route)
        if end is None:
            return
        if end.process is not None:
            end.process.lose()
            return
        del self.ends[route]
        self._close(end, is_delivered=True)
        if end.incoming is end.connection.to_router:
            # Nobody has dialled it here: a router's shell sees it end like any other.
            self._host.router.lost(self._network.now, route)

    def _close(self, end: End, is_delivered: bool) -> None:
        """Close ``end``; the other end learns it after everything that it is still to receive."""
        end.incoming.kill()
        end.outgoing.close(self._network.now, is_delivered)
        self._network.under_way[end.connection] = None

    def _new_route(self, dialer: str) -> bytes:
        return b"%s#%d" % (dialer.encode(), next(self._routes))

    def _notice_later(self, route: bytes) -> None:
        self._unnoticed.append((self._network.now + self._lost_seconds, route))

    def _notice_first(self, route: bytes) -> None:
        self._unnoticed.appendleft((self._network.now, route))

    def _notice(self, route: bytes) -> None:
        if self._host.is_paused:
            self._notice_first(route)
        else:
            self._lost(route)

    def _lost(self, route: bytes) -> None:
        if self.ends.pop(route, None) is not None:
            self._host.router.lost(self._network.now, route)
