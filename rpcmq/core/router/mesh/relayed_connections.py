"""Connections to routers that this one is not linked to: other routers carry what is sent on them.

To the rest of the engine a relayed connection is one like any other: it has a route, HELLO is said on it, and it
carries a link with its session. A relay keeps nothing of what it passes on, and may drop it: each batch is counted, and
a gap closes the connection, so that the session is resumed on the next one and sends again what is missing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Container, Sequence
from itertools import count
from typing import NamedTuple

from rpcmq.core.common.session import Session
from rpcmq.core.router.actions import Action, Answer, Disconnect, LinkDetached
from rpcmq.core.router.mesh.unread_relays import UnreadRelays, bytes_of
from rpcmq.core.router.mesh.ways import Put, RelayedConnection, Sender, Way
from rpcmq.core.router.model import Link
from rpcmq.wire.relay import Leg, RelayMessage, pack_relay, ranges_of, selected

__all__ = ["DROPPED", "RelayedConnections"]

#: The names of counters of batches that were given up begin with this.
DROPPED = "batches not passed on: "
#: Connections from one router at most, and closed connections of which it is remembered that the other end was told.
_MOST_FROM_ONE, _MOST_CLOSED = 4, 1000
#: Seconds until the other end is told again: there may be many batches under way.
_TELL_SECONDS = 0.25


class RelayedConnections:
    """All relayed connections of a router, with all that waits to be sent on them.

    Args:
        counters: of batches that were passed on, and of those that were dropped, by reason.

    Attributes:
        by_route: each of them.
        waiting: links with something to send.
        transit: batches of others to pass on, and answers.
        blocked: links on whose way the neighbour takes nothing at present, to be tried again.
        unread: what neighbours have yet to read of what is passed on to them.
        own_id: gives the id of this router.
        next_hop: the link to the neighbour on the way to a router; None: there is no way.
        detour: the same of a way that does not begin with a neighbour: (id, link to that).
    """

    def __init__(self, counters: Counter[str]) -> None:
        self._counters = counters
        self.by_route: dict[bytes, RelayedConnection] = {}
        self._by_number: dict[tuple[int, int], RelayedConnection] = {}
        #: The times at which others were told that a connection is closed.
        self._closed: dict[tuple[int, int], float] = {}
        self._accepted = count(1)
        self.waiting: list[Session] = []
        self.transit: deque[_Transit] = deque()
        self.blocked: set[Link] = set()
        self.unread = UnreadRelays()
        self.own_id: Callable[[], int] = int
        self.next_hop: Callable[[int], Link | None] = lambda id: None
        self.detour: Callable[[int, Link], Link | None] = lambda id, hop: None

    # --- connections -------------------------------------------------------------------------

    def open(self, route: bytes, peer: int, number: int) -> None:
        """Make the connection ``route`` to the router ``peer``, with a number that no other has."""
        self._enter(RelayedConnection(route, peer, number))

    def accept(
        self, peer: int, number: int, in_use: Container[bytes]
    ) -> tuple[RelayedConnection, RelayedConnection | None]:
        """Enter a connection that the router ``peer`` has made; return it, and an older one that makes room for it.

        Args:
            in_use: the connections that carry links, which do not make room: somebody else may have said HELLO.
        """
        older = [each for each in self.by_route.values() if each.peer == peer and not each.was_dialed]
        idle = [each for each in older if each.route not in in_use]
        connection = RelayedConnection(b"relayed:%d" % next(self._accepted), peer, number)
        self._enter(connection)
        return connection, idle[0] if idle and len(older) >= _MOST_FROM_ONE else None

    def _enter(self, connection: RelayedConnection) -> None:
        self.by_route[connection.route] = connection
        self._by_number[connection.peer, connection.number] = connection

    def drop(self, reason: str, batches: int = 1, source: Link | None = None) -> None:
        """Count batches that are given up: the session of each sends them again.

        Args:
            source: the link that they came on, where they are counted, too.
        """
        self._counters[f"{DROPPED}{reason}"] += batches
        if source is not None:
            source.counters[f"{DROPPED}{reason}"] += batches

    def find(self, peer: int, number: int) -> RelayedConnection | None:
        """Return the connection ``number`` with the router ``peer``."""
        return self._by_number.get((peer, number))

    def close(self, route: bytes, is_told: bool = True) -> bool:
        """Close a connection; return whether it was one of these.

        Args:
            is_told: whether the other end is told.
        """
        connection = self.by_route.pop(route, None)
        if connection is None:
            return False
        self._by_number.pop((connection.peer, connection.number), None)
        if is_told:
            self._send_soon(Leg(connection.peer, connection.number, 0), [], self._hop_of(connection))
        return True

    def tell_closed(self, now: float, peer: int, number: int, hop: Link) -> None:
        """Tell the router ``peer`` that its connection ``number`` is closed here, now and then: that may get lost.

        Args:
            hop: the link to the neighbour that has brought something on that connection.
        """
        told_at = self._closed.get((peer, number))
        if told_at is not None and now < told_at + _TELL_SECONDS:
            return
        self._closed[peer, number] = now
        if len(self._closed) > _MOST_CLOSED:
            del self._closed[next(iter(self._closed))]
        self._send_soon(Leg(peer, number, 0), [], hop)

    def carry_link(self, link: Link, others: list[Session]) -> None:
        """Have ``link`` send on its present connection, whether that is one of these or the shell's.

        Args:
            others: the links with something to send on connections of the shell.
        """
        dirty = self.waiting if link.route in self.by_route else others
        if link.dirty is not dirty:
            if link.marked:
                link.dirty.remove(link)
                dirty.append(link)
            link.dirty = dirty
        self.blocked.discard(link)

    def takes(self, action: Action) -> bool:
        """Do ``action`` if it is about one of these connections; return whether it is."""
        if not isinstance(action, (Answer, Disconnect, LinkDetached)) or action.route not in self.by_route:
            return False
        if isinstance(action, Answer):
            connection = self.by_route[action.route]
            connection.sent += 1
            leg = Leg(connection.peer, connection.number, connection.sent)
            self._send_soon(leg, [action.message], self._hop_of(connection))
        else:
            # One that has lost its link may have done so to another connection, on which its session goes on.
            self.close(action.route, is_told=isinstance(action, Disconnect))
        return True

    # --- to pass on --------------------------------------------------------------------------

    def pass_on(
        self, relay: RelayMessage, legs: Sequence[Leg], messages: Sequence[bytes], source: Link, size_bytes: int
    ) -> list[Link]:
        """Send ``legs`` of a RELAY, which came from the neighbour at ``source``, on their ways.

        Args:
            size_bytes: of the RELAY and ``messages``.

        Returns:
            The links to neighbours for which it was dropped, as they have too much to read already.
        """
        by_hop: dict[Link, list[Leg]] = {}
        for leg in legs:
            hop = self.next_hop(leg.destination)
            if hop is source:
                hop = self.detour(leg.destination, source) or source
            if hop is None or hop is source:
                self.drop("no way" if hop is None else "the way leads back", source=source)
            else:
                by_hop.setdefault(hop, []).append(leg)
        full = [hop for hop in by_hop if not self.unread.has_room(hop)]
        for hop in full:
            # Nobody else may have to wait for it.
            self.drop("more than mesh.max_transit_bytes", len(by_hop.pop(hop)))
        for hop, some in by_hop.items():
            is_cut = len(some) < len(relay.legs)
            some, needed = _cut(some, messages) if is_cut else (some, messages)
            batch = [pack_relay(relay.source, relay.hops + 1, some), *needed]
            self._counters["batches passed on"] += 1
            self.transit.append(_Transit(hop, batch, bytes_of(batch) if is_cut else size_bytes))
        return full

    def _hop_of(self, connection: RelayedConnection) -> Link | None:
        """The link to the neighbour that carries what is sent on ``connection``.

        The router that has made it chooses the way, and takes another one where nothing comes through.
        """
        hop = connection.came_over
        if connection.was_dialed or hop is None or not hop.is_responsive or hop.route in self.by_route:
            return self.next_hop(connection.peer)
        return hop

    def _send_soon(self, leg: Leg, messages: list[bytes], hop: Link | None) -> None:
        if hop is None:
            self.drop("no way")
        else:
            batch = [pack_relay(self.own_id(), 0, [leg]), *messages]
            self.transit.append(_Transit(hop, batch, bytes_of(batch)))

    # --- to send -----------------------------------------------------------------------------

    def retry(self) -> None:
        """Try again what was blocked."""
        blocked, self.blocked = self.blocked, set()
        for link in blocked:
            link.mark()

    def carry(self, put: Put) -> None:
        """Send everything there is. Neighbours that take nothing keep only their own waiting."""
        while self.transit:
            transit = self.transit.popleft()
            if _greet(transit.hop, put) and transit.hop.route and put(transit.hop.route, transit.messages):
                self.unread.sent(transit.hop, transit.size_bytes)
            else:
                self.drop("the next router takes nothing")
        by_hop: dict[Link, list[Sender]] = {}
        links, self.waiting[:] = self.waiting[:], []
        for link in links:
            link.marked = False
            assert isinstance(link, Link)
            connection = self.by_route.get(link.route) if link.route is not None else None
            hop = self._hop_of(connection) if connection is not None else None
            # Without a way it waits: whoever finds one marks the link.
            if hop is not None and hop.route is not None:
                by_hop.setdefault(hop, []).append(Sender(link, connection))
        for hop, senders in by_hop.items():
            assert hop.route is not None
            way = Way(self.own_id(), hop, hop.route, put, self.unread)
            if not (_greet(hop, put) and way.send(senders)):
                self.blocked.update(sender.link for sender in senders)


class _Transit(NamedTuple):
    """A batch to be sent to the neighbour at ``hop``."""

    hop: Link
    messages: list[bytes]
    size_bytes: int


def _greet(hop: Link, put: Put) -> bool:
    """Send a neighbour what it has to get before anything else, such as WELCOME; return whether it takes more."""
    while hop.first_messages and hop.route is not None:
        if not put(hop.route, hop.first_messages[:1]):
            return False
        del hop.first_messages[0]
    return True


def _cut(legs: list[Leg], messages: Sequence[bytes]) -> tuple[list[Leg], Sequence[bytes]]:
    """Some legs of a RELAY, and the messages that these select."""
    places: dict[int, int] = {}
    cut = []
    for leg in legs:
        wanted = selected(leg.ranges, range(len(messages)))
        cut.append([places.setdefault(place, len(places)) for place in wanted])
    needed = [messages[place] for place in places]
    return [leg._replace(ranges=ranges_of(each, len(needed))) for leg, each in zip(legs, cut, strict=True)], needed
