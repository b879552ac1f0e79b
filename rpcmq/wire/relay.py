"""RELAY: messages on their way to routers that are not linked to the one that sends them.

A RELAY is the first message of a batch, and says for whom those behind it are: for one router or several, each of which
has a *leg*. A leg names a connection between the router that sends and the one that receives, counts what was sent on
it, and selects messages by their places in the batch, in the order in which they are to be received. A leg with the
sequence 0 has no messages: its connection is closed. The connection 0 is the very one that the batch comes on.

Header: ``hops`` counts the routers that have passed it on. Payload: the id of the router that sends (4 bytes), then the
legs: destination (4), connection (8), sequence (8), and the number of ranges (2), each a first place and a count (both
2). No range: all messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from struct import Struct
from typing import NamedTuple, TypeVar

from rpcmq.errors import ProtocolError
from rpcmq.wire.batch import MAX_BATCH_MESSAGES
from rpcmq.wire.detached import Detached
from rpcmq.wire.header import pack, parse, payload_of
from rpcmq.wire.kinds import Kind

__all__ = [
    "MAX_HOPS",
    "MAX_LEGS",
    "MAX_SELECTED_BYTES",
    "Leg",
    "Ranges",
    "RelayMessage",
    "pack_relay",
    "parse_relay",
    "ranges_of",
    "selected",
]

#: Most links that a batch crosses, and most routers that it is for.
MAX_HOPS, MAX_LEGS = 16, 255
#: Most bytes that one leg selects, without detached payloads: a range of 4 bytes can select the same message again.
MAX_SELECTED_BYTES = 16 << 20
_SOURCE = Struct(">I")
_LEG = Struct(">IQQH")
_RANGE = Struct(">HH")

T = TypeVar("T")
#: First place and number of messages, each.
Ranges = tuple[tuple[int, int], ...]


class Leg(NamedTuple):
    """One of the routers that a batch is for."""

    destination: int
    connection: int
    sequence: int
    ranges: Ranges = ()


class RelayMessage(NamedTuple):
    """The content of a RELAY."""

    #: Id of the router that has sent it.
    source: int
    #: Number of routers that have passed it on.
    hops: int
    legs: tuple[Leg, ...]


def pack_relay(source: int, hops: int, legs: Iterable[Leg]) -> bytes:
    """Build a RELAY."""
    payload = [_SOURCE.pack(source)]
    for leg in legs:
        payload.append(_LEG.pack(leg.destination, leg.connection, leg.sequence, len(leg.ranges)))
        payload += [_RANGE.pack(*each) for each in leg.ranges]
    return pack(Kind.RELAY, b"".join(payload), hops=hops)


def parse_relay(message: bytes, messages: int) -> RelayMessage:
    """The content of a RELAY that is followed by so many ``messages``.

    Raises:
        ProtocolError: it is malformed, is for nobody or for too many, or selects messages that there are not, or, for
            all routers together, more than a batch has.
    """
    if isinstance(message, Detached):
        raise ProtocolError("RELAY has a detached payload", "length")
    payload = bytes(payload_of(message))
    if len(payload) < _SOURCE.size:
        raise ProtocolError(f"RELAY of {len(payload)} bytes has no source", "length")
    legs: list[Leg] = []
    at, chosen = _SOURCE.size, 0
    while at < len(payload):
        if len(legs) == MAX_LEGS:
            raise ProtocolError(f"RELAY is for more than {MAX_LEGS} routers", "length")
        if at + _LEG.size > len(payload):
            raise ProtocolError(f"RELAY ends within a leg at byte {at}", "length")
        destination, connection, sequence, count = _LEG.unpack_from(payload, at)
        at += _LEG.size
        end = at + count * _RANGE.size
        if end > len(payload):
            raise ProtocolError(f"RELAY ends within the {count} ranges of a leg", "length")
        ranges = tuple(_RANGE.iter_unpack(payload[at:end]))
        chosen += _count(ranges, messages)
        if chosen > MAX_BATCH_MESSAGES:
            raise ProtocolError(f"RELAY selects more than {MAX_BATCH_MESSAGES} messages", "batch")
        if sequence and not messages:
            raise ProtocolError("RELAY has no messages for a connection that is not closed", "length")
        legs.append(Leg(destination, connection, sequence, ranges))
        at = end
    if not legs:
        raise ProtocolError("RELAY is for nobody", "length")
    return RelayMessage(_SOURCE.unpack_from(payload)[0], parse(message).hops, tuple(legs))


def ranges_of(places: Sequence[int], messages: int) -> Ranges:
    """The ranges that select ``places`` of so many ``messages``, in that order."""
    ranges: list[tuple[int, int]] = []
    for place in places:
        if ranges and sum(ranges[-1]) == place:
            ranges[-1] = ranges[-1][0], ranges[-1][1] + 1
        else:
            ranges.append((place, 1))
    return () if ranges == [(0, messages)] else tuple(ranges)


def selected(ranges: Ranges, messages: Sequence[T]) -> Sequence[T]:
    """The ``messages``, or places of them, that ``ranges`` select."""
    if not ranges:
        return messages
    return list(chain.from_iterable(messages[first : first + count] for first, count in ranges))


def _count(ranges: Ranges, messages: int) -> int:
    """Return how many of so many ``messages`` a leg selects."""
    if not all(count and first + count <= messages for first, count in ranges):
        raise ProtocolError(f"RELAY selects no messages, or some beyond the {messages} that it has", "length")
    return sum(count for _, count in ranges) if ranges else messages
