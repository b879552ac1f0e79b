"""Learns from neighbours which addresses they have consumers for, and notes it where the directory knows these, too.

A neighbour begins by telling all its rows. From then on, whatever it tells has a version, and the number and digest of
its rows: what does not fit is counted and logged, and all rows are asked for anew; those that are known stay in force
until it has told them. What a neighbour told is void once it is gone, but who its consumers were is remembered for
:meth:`Learner.names`: whoever takes over calls of its processes asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import inf

from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.mesh.gone_routers import GoneRouters
from rpcmq.core.router.mesh.interest_table import Holding, InterestTable
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.own_addresses import key_of
from rpcmq.core.router.mesh.places import Places
from rpcmq.core.router.model import Destination, Link, Server, Topic
from rpcmq.core.router.node_type import NodeContext
from rpcmq.core.router.turns import ERROR_STEPS
from rpcmq.errors import ProtocolError
from rpcmq.wire import MAX_NAME_BYTES, Address, Kind, pack
from rpcmq.wire.consumer_name import ORIGIN_BYTES, ConsumerName
from rpcmq.wire.interest import (
    MAX_IDENTITIES,
    PART_SIZE,
    InterestBody,
    PlaceState,
    Row,
    identity_number,
    numbers_of,
    place_key,
    place_of_key,
)

__all__ = ["Learner"]

#: Turns' steps of one row.
_STEPS = 4
#: Rows swept, and places cleared, in one tick, and the pauses between.
_SWEPT_AT_ONCE, _SWEEP_PAUSE, _CLEARED_AT_ONCE, _PAUSE = 1_000, 0.01, 200, 0.002
#: A neighbour that has told everything anew so often, faster than what it told before is swept out, is asked again.
_MOST_UNSWEPT = 4
#: Groups of a topic that are noted when the topic is made: as many as it may have.
_MOST_GROUPS = 1_000
#: A neighbour is asked for all rows again after this time (seconds), which doubles up to the most.
_ASK_AGAIN, _ASK_AGAIN_AT_MOST = 1.0, 60.0


class Learner:
    """The addresses that neighbours have told.

    Attributes:
        due: the time of the next :meth:`tick` (monotonic seconds).
    """

    def __init__(self, context: NodeContext, places: Places) -> None:
        self._context = context
        self._directory = context.directory
        self._places = places
        self.table = InterestTable()
        self._sources: dict[Link, _Source] = {}
        self._gone = GoneRouters(context.settings, self.table.close)
        #: Links that have ended, of which places still say that they have consumers.
        self._ended: list[Link] = []
        self.due = inf

    # --- neighbours --------------------------------------------------------------------------

    def add(self, now: float, neighbour: Neighbour) -> None:
        """``neighbour`` will tell its addresses."""
        self._sources[neighbour.link] = _Source(now, neighbour)

    def remove(self, now: float, neighbour: Neighbour) -> None:
        """``neighbour`` is gone: none of its consumers can be reached through it."""
        source = self._sources.pop(neighbour.link, None)
        if source is None:
            return
        holding, filling = source.holding, source.filling
        if filling is not None:
            if holding is not None:
                self.table.close(filling)
            else:
                holding = filling
        if holding is not None:
            holding.is_live = False
            self._gone.add(now, source.neighbour.name, holding, source.is_complete)
        self._ended.append(neighbour.link)
        self.due = now

    def has_converged(self, now: float) -> bool:
        """Return whether each neighbour has told everything, or was given the time to."""
        patience = self._context.settings.mesh_recovery_seconds
        return all(source.is_complete or now >= source.since + patience for source in self._sources.values())

    def are_on_their_way(self, now: float, destination: Destination) -> bool:
        """Return whether ``destination`` had consumers at a router gone for less than ``router.recovery_seconds``.

        Their processes live, as far as known, and come to another router.
        """
        since = now - self._context.settings.recovery_seconds
        lately = self._gone.since(since)
        if not lately:
            return False
        places = [destination.server or destination.topic, *destination.groups.values()]
        return any(self.table.had_consumers(key_of(place), lately) for place in places)

    # --- messages ----------------------------------------------------------------------------

    def take(self, now: float, link: Link, message: bytes) -> None:
        """INTEREST of a neighbour.

        Raises:
            ProtocolError: malformed. Nothing of it is taken then, and all rows are asked for anew.
        """
        source = self._sources.get(link)
        if source is None:
            return  # it is taken for gone
        try:
            body = InterestBody.of(message)
            for row in body.rows:
                _check(row)
        except ProtocolError:
            self._ask(now, source, "malformed")
            raise
        self._context.turns.spend(_STEPS * len(body.rows))
        if body.begins:
            if self.table.unswept(link) >= _MOST_UNSWEPT:
                self._ask(now, source, "told anew again and again")
                return
            self._begin(source)
        elif source.has_failed or (source.holding is None and source.filling is None):
            return
        elif body.base != source.version:
            self._ask(now, source, f"version {body.base} after {source.version}")
            return
        source.version = body.version
        holding = source.filling or source.holding
        assert holding is not None
        for key, state in body.rows:
            self._put(now, source, holding, key, state)
        if body.ends and source.filling is not None:
            if source.holding is not None:
                self.table.close(source.holding)
                self.due = now
            source.holding, source.filling = holding, None
        if source.filling is None:
            self._check_digest(now, source, holding, body)

    def _begin(self, source: _Source) -> None:
        if source.filling is not None:
            self.table.close(source.filling)
        source.filling = self.table.open(source.link, source.neighbour.name)
        source.has_failed = False
        source.refused = 0

    def _check_digest(self, now: float, source: _Source, holding: Holding, body: InterestBody) -> None:
        if body.is_checked and not source.refused and (body.total, body.digest) != (holding.count, holding.digest):
            self._ask(now, source, f"{holding.count} addresses instead of {body.total}, or others")
            return
        if body.ends:
            if not source.is_complete:
                # Messages may wait for that.
                self.due = now
            source.is_complete = not source.refused
        source.link.send(pack(Kind.INTEREST_ACK, sequence=body.version))

    def _ask(self, now: float, source: _Source, why: str) -> None:
        """Have everything told anew."""
        if source.is_complete:
            source.is_complete, source.since = False, now
        source.has_failed = True
        if now >= source.asked_at + 2 * _ASK_AGAIN_AT_MOST:
            source.ask_pause = 0.0
        source.ask_at = source.asked_at = now + source.ask_pause
        source.ask_pause = min(_ASK_AGAIN_AT_MOST, max(_ASK_AGAIN, 2 * source.ask_pause))
        self.due = min(self.due, source.ask_at)
        link = source.link
        self._context.turns.spend(ERROR_STEPS)
        link.counters["interest asked for anew"] += 1
        text = f"addresses of router {source.neighbour.name} are asked for anew: {why}"
        self._context.act(LogEvent("interest asked for anew", text, link.identity))

    # --- rows --------------------------------------------------------------------------------

    def _put(self, now: float, source: _Source, holding: Holding, key: bytes, state: bytes) -> None:
        settings = self._context.settings
        number = identity_number(key)
        if state and (holding.count >= settings.mesh_max_addresses or (number or 0) >= settings.mesh_max_addresses):
            self._refuse(source, f"{holding.count} addresses", "max_addresses", settings.mesh_max_addresses)
        elif state and holding.size_bytes >= settings.mesh_max_address_bytes:
            size = f"addresses of {holding.size_bytes} bytes"
            self._refuse(source, size, "max_address_bytes", settings.mesh_max_address_bytes)
        elif number is not None:
            self.table.put_name(holding, key, number, state)
        else:
            self.table.put(holding, key, state)
            address, group, part = place_of_key(key)
            if part is None:
                self._context.guarded(now, self._try_to_note, source.link, address, group, state)

    def _refuse(self, source: _Source, there_are: str, limit: str, most: int) -> None:
        source.refused += 1
        source.link.counters["addresses beyond the limit"] += 1
        if source.refused == 1:
            text = f"of router {source.neighbour.name}, {there_are} are known, and no more: mesh.{limit} = {most}"
            self._context.act(LogEvent("too many addresses", text, source.link.identity))

    def _try_to_note(self, now: float, link: Link, address: Address, group: str, state: bytes) -> None:
        try:
            self._note(now, link, address, group, state)
        except ProtocolError as error:
            # Too many topics or groups, say: what is sent to it waits, or goes to consumers here only.
            if not link.counters["addresses not noted"]:
                text = f"{str(address)!r}, of which router {link.identity} has consumers, is not noted: {error}"
                self._context.act(LogEvent("address not noted", text, link.identity))
            link.counters["addresses not noted"] += 1

    def _note(self, now: float, link: Link, address: Address, group: str, state: bytes) -> None:
        """Note ``state`` of an address if that is known here."""
        row = PlaceState.read(state)
        directory = self._directory
        place = directory.place_of(address, group)
        if place is None:
            if not state or not self._concerns(address, group):
                return
            place = directory.learn(now, address, group)
        elif row.registered:
            place = directory.learn(now, address, group)
        self._places.set_remote(now, place, link, row.consumers, row.capacity)

    def _concerns(self, address: Address, group: str) -> bool:
        """Return whether an address, not known here, changes where messages for a known one go."""
        if group:
            return self._directory.place_of(address) is not None
        if not address.server:
            return False
        # What was sent to the topic "a.b" waits for the server "b" of "a".
        return self._directory.place_of(Address(f"{address.topic}.{address.server}", "", address.exchange)) is not None

    # --- the directory -----------------------------------------------------------------------

    def made(self, now: float, place: Topic | Server) -> None:
        """Note what is known elsewhere of ``place``, which was made just now."""
        if not len(self.table):
            return
        key = key_of(place)
        group = place.group if isinstance(place, Topic) else ""
        address = place.address if isinstance(place, Topic) else place.topic.address._replace(server=place.name)
        for link, state in self.table.states(key).items():
            self._context.guarded(now, self._try_to_note, link, address, group, state)
        groups = self.table.groups(key) if not group and not address.server else ()
        for each in list(islice(groups, _MOST_GROUPS)):
            for link, state in self.table.states(each).items():
                self._context.guarded(now, self._try_to_note, link, *place_of_key(each)[:2], state)

    def is_known(self, place: Topic | Server) -> bool:
        """Return whether a neighbour knows ``place``."""
        return bool(len(self.table)) and bool(self.table.states(key_of(place)))

    def find_alias(self, now: float, address: Address) -> Server | None:
        """Return the server that the topic of ``address`` is the own topic of, if a neighbour knows that."""
        if not len(self.table) or self._is_registered(address):
            return None
        name = address.topic
        for at in (at for at, letter in enumerate(name) if letter == "." and 0 < at < len(name) - 1):
            server = Address(name[:at], name[at + 1 :], address.exchange)
            if self._is_registered(server):
                place = self._directory.learn(now, server)
                return place if isinstance(place, Server) else None
        return None

    def _is_registered(self, address: Address) -> bool:
        return any(PlaceState.read(state).registered for state in self.table.states(place_key(address)).values())

    # --- consumers ---------------------------------------------------------------------------

    def names(self, address: Address, group: str = "") -> Iterator[tuple[str, ConsumerName]]:
        """Router and name of each consumer elsewhere of an address, of routers that are gone, too."""
        for holding, name in self.table.names(place_key(address, group)):
            yield holding.router, name

    # --- life --------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Go on with what is done in pieces, and ask again."""
        self.due = inf
        for source in self._sources.values():
            if now >= source.ask_at:
                source.ask_at = inf
                source.link.send(pack(Kind.INTEREST_ACK))
            self.due = min(self.due, source.ask_at)
            if not source.is_complete:
                gives_up_at = source.since + self._context.settings.mesh_recovery_seconds
                self.due = min(self.due, gives_up_at if gives_up_at > now else inf)
        self.due = min(self.due, self._gone.expire(now))
        self._clear(now)
        self._sweep(now)
        if self._ended:
            self.due = now + _PAUSE
        elif self.table.is_sweeping:
            self.due = min(self.due, now + _SWEEP_PAUSE)

    def _clear(self, now: float) -> None:
        if self._ended:
            places = self._places.of_link(self._ended[-1], _CLEARED_AT_ONCE)
            for place in places:
                self._context.guarded(now, self._places.set_remote, place, self._ended[-1], 0, 0)
            if len(places) < _CLEARED_AT_ONCE:
                self._ended.pop()

    def _sweep(self, now: float) -> None:
        for holding, key in self.table.sweep(_SWEPT_AT_ONCE):
            if holding.link not in self._sources:
                continue
            address, group, part = place_of_key(key)
            place = self._directory.place_of(address, group) if part is None else None
            if place is not None and holding.link not in self.table.states(key):
                # It was not told again.
                self._places.set_remote(now, place, holding.link, 0, 0)


class _Source:
    """A neighbour that tells its addresses.

    Attributes:
        version: of what it told last.
        holding: what it told; None: nothing yet.
        filling: what it tells anew, all over; None: it does not.
        is_complete: whether it has told everything, as far as known.
        since: the time from which on it was not (monotonic seconds).
        ask_at: the time at which it is asked to tell everything anew; inf: it need not be.
        asked_at: the same, of the last time.
        ask_pause: seconds by which the next time is put off.
        refused: the number of its rows that were beyond the bounds.
    """

    __slots__ = (
        "ask_at", "ask_pause", "asked_at", "filling", "has_failed", "holding", "is_complete", "link", "neighbour",
        "refused", "since", "version",
    )  # fmt: skip

    def __init__(self, now: float, neighbour: Neighbour) -> None:
        self.neighbour = neighbour
        self.link = neighbour.link
        self.version = 0
        self.holding: Holding | None = None
        self.filling: Holding | None = None
        self.is_complete = self.has_failed = False
        self.since = now
        self.ask_at, self.ask_pause = inf, 0.0
        self.asked_at = -inf
        self.refused = 0


def _check(row: Row) -> None:
    """Check that ``row`` is well-formed.

    Raises:
        ProtocolError: it is not.
    """
    key, state = row
    number = identity_number(key)
    if number is not None:
        if state:
            identity = ConsumerName.decode(state).identity
            if not identity.isprintable() or len(state) > ORIGIN_BYTES + MAX_NAME_BYTES:
                raise ProtocolError(f"identity {identity[:40]!r} is too long or has a control character", "interest")
        return
    _, _, part = place_of_key(key)
    if part is None:
        PlaceState.read(state)
    elif part >= MAX_IDENTITIES // PART_SIZE:
        raise ProtocolError(f"part {part} of the consumers of an address is beyond all numbers", "interest")
    elif state:
        next(numbers_of(part, state), None)
