"""The part of the mesh by which routers reach each other over others, and pass on what others send.

Which router is a neighbour of which is known from MEMBERS (:mod:`rpcmq.core.router.mesh.members`). One that no
connection can be made to, and to which there is a way, is dialled over it; the link that comes of this is like any
other. Where a connection can be made later, the link goes on there, and the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from rpcmq.core.common.log_limit import LogLimit
from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.mesh.route_table import RouteTable
from rpcmq.core.router.mesh.routes import Route
from rpcmq.core.router.mesh.unread_relays import bytes_of
from rpcmq.core.router.mesh.ways import RelayedConnection
from rpcmq.core.router.model import Link
from rpcmq.errors import ProtocolError
from rpcmq.wire import FIRST_SESSION_KIND, KIND_AT, Detached, Kind, payload_of, sequence_of
from rpcmq.wire.bodies import MESH_TYPE, HelloBody
from rpcmq.wire.mesh_bodies import MeshIdentity
from rpcmq.wire.relay import MAX_HOPS, MAX_SELECTED_BYTES, Leg, parse_relay, selected

__all__ = ["Relays"]

#: Seconds in which changes of the topology are gathered before routers are dialled.
_GATHER = 0.02
#: Ways are found anew after this time (seconds) for each connection and router that is known: some twenty times as long
#: as that takes, so that others, who may tell of new connections without end, have a twentieth of a processor.
_REST_PER_CONNECTION, _REST_PER_ROUTER = 1e-6, 50e-6


class Relays(MeshPart):
    """Knows the ways to other routers, and passes on what is for them."""

    def __init__(self, context: MeshContext) -> None:
        self._context = context
        self._node = context.node
        self._connections = context.node.relayed
        self._connections.own_id = lambda: context.own.id
        self._connections.next_hop = self._next_hop
        self._unread = unread = context.node.relayed.unread
        unread.most = lambda: context.node.settings.mesh_max_transit_bytes
        #: Batches that were dropped because of it, by router.
        self._dropped: LogLimit[str] = LogLimit()
        self.kinds = {Kind.READ: self._read}
        self._ways = RouteTable(context)
        self._connections.detour = self._detour
        self._due, self._rested_at = inf, 0.0
        context.route_to = self.route_to
        context.on_topology.append(self._changed)
        context.path_to = self._ways.path_to
        context.way_failed = self._way_failed

    # --- ways --------------------------------------------------------------------------------

    def route_to(self, id: int) -> Route | None:
        """Return the way to the router ``id``; None if there is none."""
        return self._ways.route_to(id)

    def _way_failed(self, id: int) -> str:
        """Take another way to the router ``id``; return a text that names it and the present one."""
        route = self.route_to(id)
        hop = self._name(route.hop) if route is not None else "others"
        self._ways.avoid(id)
        return f"router {self._name(id)}, over {hop}: neither it nor a router on the way"

    def _name(self, id: int) -> str:
        member = self._context.members.get(id)
        return member.said.name if member is not None else str(id)

    def _next_hop(self, id: int) -> Link | None:
        return self._link_of(self.route_to(id))

    def _detour(self, id: int, hop: Link) -> Link | None:
        neighbour = self._context.neighbours.by_link.get(hop)
        return self._link_of(self._ways.detour(id, neighbour.identity.id)) if neighbour is not None else None

    def _link_of(self, route: Route | None) -> Link | None:
        hop = self._context.neighbours.by_id.get(route.hop) if route is not None else None
        # Its connection may have been lost since the ways were found, and its link go on over others.
        return hop.link if hop is not None and not hop.is_relayed else None

    def _changed(self, now: float) -> None:
        if now >= self._rested_at:
            self._find_anew(now)
        self._due = min(self._due, max(now + _GATHER, self._rested_at))

    def _find_anew(self, now: float) -> None:
        """Find the ways when one is asked for next."""
        self._ways.find_anew()
        table = self._context.members
        self._rested_at = now + _REST_PER_CONNECTION * table.connections + _REST_PER_ROUTER * len(table)

    def neighbour_up(self, now: float, neighbour: Neighbour, resumed: bool) -> None:
        """It may be a way to others."""
        self._changed(now)

    def neighbour_changed(self, now: float, neighbour: Neighbour) -> None:
        """One that does not answer is no way to others, and may be reached over others itself, or on another way."""
        link = neighbour.link
        connection = self._connections.by_route.get(link.route) if link.route is not None else None
        if connection is not None and connection.was_dialed and not link.is_responsive:
            self._ways.avoid(connection.peer)
        self._changed(now)

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """It is no way to others any more."""
        self._unread.forget(neighbour.link)
        self._changed(now)

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        told_at = self._dropped.next_deadline()
        return self._due if told_at is None else min(self._due, told_at)

    def tick(self, now: float) -> None:
        """Dial the routers that can be reached only over others, and give up those that cannot be reached any more."""
        self._tell_dropped(now)
        if now < self._due:
            return
        self._due = inf
        self._find_anew(now)
        context, connections = self._context, self._connections
        for connection in list(connections.by_route.values()):
            if self.route_to(connection.peer) is None:
                self._lose(now, connection, "there is no way to that router any more")
            elif (link := self._node.links.routes.get(connection.route)) is not None:
                link.mark()  # it may have waited for a way
        for target in [each for each in context.targets if each.is_relayed]:
            if context.members.get(target.id) is None:
                context.targets.unreachable(target.id)
        for member in context.members:
            route = self.route_to(member.said.id)
            may_link = self._node.links.access.knows_router(member.said.key)
            if route is None or route.length == 1 or member.said.left or not may_link:
                context.targets.unreachable(member.said.id)
            else:
                context.targets.reachable(now, member.said, member.said.id in context.neighbours.by_id)

    # --- what neighbours have yet to read ----------------------------------------------------

    def _read(self, now: float, link: Link, message: bytes) -> None:
        """Take a READ: there may be room for what waits."""
        self._unread.told(link, sequence_of(message))
        if self._connections.blocked:
            self._connections.retry()

    def _tell_dropped(self, now: float) -> None:
        most = self._node.settings.mesh_max_transit_bytes
        for name, count in self._dropped.due(now):
            text = (
                f"{count} batches for {name or 'other routers'} were not passed on: more than mesh.max_transit_bytes = "
                f"{most} that it was sent are not read; the routers that they are of send them again"
            )
            self._node.act(LogEvent("not passed on", text, name or ""))

    # --- what comes --------------------------------------------------------------------------

    def take(self, now: float, link: Link, messages: Sequence[bytes]) -> None:
        """Take a RELAY and what it is about, which came from the neighbour at ``link``.

        Raises:
            ProtocolError: that is none, or may not send one.
        """
        neighbour = self._context.neighbours.by_link.get(link)
        if neighbour is None or not self._context.is_hop(neighbour):
            raise ProtocolError("RELAY is for routers that are linked without limits", "kind")
        size_bytes = bytes_of(messages)
        self._unread.received(link, size_bytes)
        relay, carried = parse_relay(messages[0], len(messages) - 1), messages[1:]
        own_id = self._context.own.id
        legs = [leg for leg in relay.legs if leg.destination not in (0, own_id)]
        if legs and relay.hops + 1 >= MAX_HOPS:
            self._connections.drop(f"more than {MAX_HOPS} hops", len(legs), link)
        elif legs:
            for hop in self._connections.pass_on(relay, legs, carried, link, size_bytes):
                self._dropped.add(now, hop.identity)
        for leg in relay.legs:
            if leg.destination in (0, own_id):
                self._node.guarded(now, self._take_leg, link, neighbour, relay.source, leg, messages)

    def _take_leg(
        self, now: float, link: Link, neighbour: Neighbour, source: int, leg: Leg, messages: Sequence[bytes]
    ) -> None:
        """Take what one leg of a RELAY, the first of ``messages``, selects for this router."""
        some = selected(leg.ranges, messages[1:])
        try:
            if sum(map(len, some)) > MAX_SELECTED_BYTES:
                raise ProtocolError(f"RELAY selects more than {MAX_SELECTED_BYTES} bytes for a router", "length")
            if not leg.destination and some:
                self._receive_from(now, link, neighbour, source, some)
            elif leg.destination and source != self._context.own.id:
                self._receive(now, link, source, leg, some)
        except ProtocolError as error:
            # The others are taken.
            self._node.protocol_error(now, link, messages[0], error)

    def _receive_from(
        self, now: float, link: Link, neighbour: Neighbour, source: int, messages: Sequence[bytes]
    ) -> None:
        """Take messages for the very link that they came on."""
        if source != neighbour.identity.id:
            raise ProtocolError(f"RELAY has messages of router {source} for the link of {neighbour.name}", "relay")
        if messages[0][KIND_AT] < FIRST_SESSION_KIND:
            # Each leg of a RELAY in a RELAY would multiply the work.
            raise ProtocolError(f"kind {messages[0][KIND_AT]:#04x} in a RELAY for the link that it came on", "kind")
        if link.route is not None:
            read_bytes = link.read_bytes  # is counted already
            self._hand_over(now, link.route, messages)
            link.read_bytes = read_bytes

    def _receive(self, now: float, link: Link, source: int, leg: Leg, messages: Sequence[bytes]) -> None:
        connections = self._connections
        connection = connections.find(source, leg.connection)
        if connection is None:
            if leg.sequence == 1 and messages[0][KIND_AT] == Kind.HELLO:
                self._greet(now, link, source, leg.connection, messages[0])
            elif leg.sequence:
                connections.tell_closed(now, source, leg.connection, link)
        elif not leg.sequence:
            self._lost_on_the_way(now, connection)
            self._lose(now, connection, "the other router has closed it", is_told=False)
        elif leg.sequence <= connection.received:
            connections.drop("came twice")
        elif leg.sequence > connection.received + 1:
            lost = leg.sequence - connection.received - 1
            self._lost_on_the_way(now, connection)
            connection.came_over = link
            self._lose(now, connection, f"{lost} batches were lost on the way")
        else:
            connection.received += 1
            connection.came_over = link
            self._take_batch(now, connection, messages)

    def _lost_on_the_way(self, now: float, connection: RelayedConnection) -> None:
        if connection.was_dialed and connection.route in self._node.links.routes:
            self._ways.lost(now, connection.peer)  # the other router answers on the way that is taken to it

    def _take_batch(self, now: float, connection: RelayedConnection, messages: Sequence[bytes]) -> None:
        if connection.route in self._node.links.routes:
            if messages[0][KIND_AT] in (Kind.HELLO, Kind.RELAY):
                raise ProtocolError(f"kind {messages[0][KIND_AT]:#04x} on a relayed connection that has a link", "kind")
            self._hand_over(now, connection.route, messages)
        else:
            self._context.greeting_answered(now, connection.route, messages[0])

    def _greet(self, now: float, link: Link, source: int, number: int, message: bytes) -> None:
        """Handle the HELLO of a router that has no connection to this one."""
        connections = self._connections
        if self.route_to(source) is None:
            connections.drop("no way back", source=link)  # it says HELLO again, and whoever has made it up gets nothing
            return
        hello = HelloBody.of(message)
        other = MeshIdentity.parse(hello.mesh) if hello.queue_type == MESH_TYPE else None
        if other is None or other.id != source:
            raise ProtocolError(f"HELLO of router {source} over others is not its own", "relay")
        connection, one_too_many = connections.accept(source, number, self._node.links.routes)
        connection.received, connection.came_over = 1, link
        if one_too_many is not None:
            self._lose(now, one_too_many, "a newer one has come")
        try:
            # Its key is that which those that vouch for it know: they are of one mesh, and have its secret.
            refusal = self._context.greet(now, connection.route, hello, other.key)
        except ProtocolError:
            connections.close(connection.route)
            raise
        if refusal is not None:
            self._context.answer(connection.route, refusal)
            connections.close(connection.route, is_told=False)

    def _lose(self, now: float, connection: RelayedConnection, reason: str, is_told: bool = True) -> None:
        self._connections.close(connection.route, is_told)
        self._context.route_lost(now, connection.route, reason)

    def _hand_over(self, now: float, route: bytes, messages: Sequence[bytes]) -> None:
        """Have the engine receive ``messages`` on the connection ``route``."""
        payloads = [payload_of(message) for message in messages if isinstance(message, Detached)]
        self._context.receive(now, route, b"".join(messages), payloads)
