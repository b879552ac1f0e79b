"""The rows of INTEREST about this router's own consumers, kept as its directory changes.

A place (topic, server or group) that changes is marked; some ticks later its row is made from its consumers as they
then are. So a burst costs one row a place, however often that changes. A place with many consumers is a *crowd*: it is
counted as they come and go, and who they are is in rows of parts, of which those are made anew that change.

Numbers stand for the names of consumers. A number is used again only after all routers were told that it is free.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from rpcmq.core.router.model import Consumer, Server, Topic
from rpcmq.wire.consumer_name import ConsumerName
from rpcmq.wire.interest import (
    MAX_IDENTITIES,
    MAX_INLINE,
    PART_SIZE,
    PlaceState,
    Row,
    bits_of,
    identity_key,
    numbers_of,
    part_key,
    place_key,
    row_digest,
)

__all__ = ["OwnAddresses", "key_of", "places_of"]

_MASK = (1 << 64) - 1
_MAX_CAPACITY = (1 << 32) - 1


def key_of(place: Topic | Server) -> bytes:
    """The key of the row of ``place``."""
    if isinstance(place, Topic):
        return place_key(place.address, place.group)
    return place_key(place.topic.address._replace(server=place.name))


def places_of(topic: Topic) -> list[Topic | Server]:
    """``topic``, which may be a group, and its servers: those that others are told of."""
    return [topic, *(server for server in topic.servers.values() if is_told(server))]


def is_told(place: Topic | Server) -> bool:
    """Return whether ``place`` has a row: consumers without a server are those of the topic, or group, itself."""
    return isinstance(place, Topic) or (bool(place.name) and not place.topic.group)


class OwnAddresses:
    """The rows of this router.

    Attributes:
        rows: all that others are to know, as they were made last.
        digest: of these, as in INTEREST.
    """

    __slots__ = ("_crowds", "_freed", "_identities", "_marked", "_unused", "digest", "rows")

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.digest = 0
        self._marked: dict[Topic | Server, None] = {}
        self._crowds: dict[Topic | Server, _Crowd] = {}
        self._identities = _Identities()
        #: Numbers that no row refers to any more: they are freed at the end of :meth:`take`, for use at the next.
        self._unused: dict[int, None] = {}
        self._freed: list[int] = []

    @property
    def has_changed(self) -> bool:
        """Whether :meth:`take` may have rows."""
        return bool(self._marked)

    def is_marked(self, place: Topic | Server) -> bool:
        """Return whether the row of ``place`` may be out of date."""
        return place in self._marked

    # --- changes -----------------------------------------------------------------------------

    def mark(self, place: Topic | Server) -> None:
        """``place`` has changed."""
        if is_told(place):
            self._marked[place] = None

    def changed(self, consumer: Consumer) -> None:
        """``consumer`` has come, gone, or stopped or started answering."""
        topic = consumer.topic
        server = topic.servers.get(consumer.server)
        for place in (topic, server):
            if place is not None and is_told(place):
                self._marked[place] = None
                crowd = self._crowds.get(place)
                if crowd is not None:
                    crowd.count(consumer, consumer in place.consumers or consumer in topic.leaving)

    # --- rows --------------------------------------------------------------------------------

    def take(self, limit: int) -> list[Row]:
        """Return the rows of at most ``limit`` marked places, if these have changed, with what they need."""
        self._identities.free.extend(self._freed)
        self._freed = []
        told: list[Row] = []
        for place in list(islice(self._marked, limit)):
            del self._marked[place]
            self._tell(place, told)
        for number in self._unused:
            if not self._identities.references[number]:
                name = self.rows[identity_key(number)]
                del self._identities.numbers[name]
                self._set(identity_key(number), b"", told)
                self._freed.append(number)
        self._unused = {}
        return told

    def _tell(self, place: Topic | Server, told: list[Row]) -> None:
        key = key_of(place)
        consumers, leaving = place.consumers, _leaving(place)
        crowd = self._crowds.get(place)
        if crowd is None and len(consumers) > MAX_INLINE:
            crowd = self._crowds[place] = _Crowd([*consumers, *leaving])
        elif crowd is not None and len(consumers) <= MAX_INLINE // 2:
            crowd.names.clear()
            self._tell_parts(key, crowd, list(crowd.told), told)
            del self._crowds[place]
            crowd = None
        before = PlaceState.read(self.rows.get(key, b""))
        numbers: list[int] = []
        if crowd is None:
            numbers = sorted(self._number(name, told) for name in {_name_of(c) for c in (*consumers, *leaving)})
            counted = [_counts(consumer) for consumer in consumers]
            connected, capacity = sum(one for one, _ in counted), sum(credit for _, credit in counted)
        else:
            connected, capacity = crowd.connected, crowd.capacity
            self._tell_parts(key, crowd, list(crowd.changed), told)
        for number in numbers:
            self._identities.references[number] += 1
        registered = place.registered_here
        state = PlaceState(connected, min(capacity, _MAX_CAPACITY), registered, tuple(numbers), crowd is not None)
        self._set(key, state.encode(), told)
        for number in before.identities:
            self._release(number)

    def _tell_parts(self, key: bytes, crowd: _Crowd, names: list[bytes], told: list[Row]) -> None:
        parts: dict[int, set[int]] = {}
        for name in names:
            is_there = name in crowd.names
            if is_there == (name in crowd.told):
                continue
            number = self._number(name, told)
            part = number // PART_SIZE
            if part not in parts:
                bits = self.rows.get(part_key(key, part))
                parts[part] = set(numbers_of(part, bits)) if bits else set()
            if is_there:
                crowd.told.add(name)
                parts[part].add(number)
                self._identities.references[number] += 1
            else:
                crowd.told.discard(name)
                parts[part].discard(number)
                self._release(number)
        crowd.changed.clear()
        for part, numbers in parts.items():
            self._set(part_key(key, part), bits_of(numbers), told)

    def _number(self, name: bytes, told: list[Row]) -> int:
        number = self._identities.numbers.get(name)
        if number is None:
            number = self._identities.add(name)
            self._unused[number] = None
            self._set(identity_key(number), name, told)
        return number

    def _release(self, number: int) -> None:
        self._identities.references[number] -= 1
        if not self._identities.references[number]:
            self._unused[number] = None

    def _set(self, key: bytes, state: bytes, told: list[Row]) -> None:
        before = self.rows.get(key, b"")
        if before == state:
            return
        self.digest = self.digest - row_digest(key, before) + row_digest(key, state) & _MASK
        if state:
            self.rows[key] = state
        else:
            del self.rows[key]
        told.append((key, state))


class _Identities:
    """Numbers of names, the smallest first."""

    __slots__ = ("free", "numbers", "references")

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        #: Number of rows that refer to each number.
        self.references: list[int] = []
        self.free: list[int] = []

    def add(self, name: bytes) -> int:
        """Give ``name`` a number."""
        if self.free:
            number = self.free.pop()
        else:
            number = len(self.references)
            assert number < MAX_IDENTITIES
            self.references.append(0)
        self.numbers[name] = number
        return number


class _Crowd:
    """The consumers of a place that has many."""

    __slots__ = ("_counted", "capacity", "changed", "connected", "names", "told")

    def __init__(self, consumers: Iterable[Consumer]) -> None:
        self.connected = self.capacity = 0
        #: Consumer -> for how many consumers and requests it counts.
        self._counted: dict[Consumer, tuple[int, int]] = {}
        #: Name -> number of its consumers.
        self.names: dict[bytes, int] = {}
        #: Names that are in the rows, and those that may have to be put in or taken out.
        self.told: set[bytes] = set()
        self.changed: set[bytes] = set()
        for consumer in consumers:
            self.count(consumer, True)

    def count(self, consumer: Consumer, is_there: bool) -> None:
        """Count ``consumer`` as it is now."""
        name = _name_of(consumer)
        before = self._counted.pop(consumer, None)
        if before is not None:
            self.connected -= before[0]
            self.capacity -= before[1]
        if is_there:
            now = self._counted[consumer] = _counts(consumer)
            self.connected += now[0]
            self.capacity += now[1]
        if is_there != (before is not None):
            left = self.names.get(name, 0) + (1 if is_there else -1)
            if left:
                self.names[name] = left
            else:
                del self.names[name]
            self.changed.add(name)


def _name_of(consumer: Consumer) -> bytes:
    return ConsumerName(consumer.link.origin, consumer.link.identity).encode()


def _counts(consumer: Consumer) -> tuple[int, int]:
    """For how many consumers, and requests at once, ``consumer`` counts elsewhere."""
    link = consumer.link
    if consumer.stopping:
        return 0, 0
    return int(link.route is not None), consumer.granted if link.is_responsive else 0


def _leaving(place: Topic | Server) -> list[Consumer]:
    """Consumers of ``place`` that take nothing more, and may still run what they have: they are to be asked for it."""
    if isinstance(place, Topic):
        return list(place.leaving)
    return [consumer for consumer in place.topic.leaving if consumer.server == place.name]
