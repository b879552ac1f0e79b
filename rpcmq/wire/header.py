"""One message: its header of 40 bytes, its names, its payload, and how it is changed on its way.

Modules outside of this package read a message by the names below, ``message[KIND_AT]`` and ``message[KEY]``.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from rpcmq.errors import ProtocolError
from rpcmq.wire.detached import Detached
from rpcmq.wire.kinds import VERSION, Flag

__all__ = [
    "ATTEMPT_AT",
    "CONSUMER_AT",
    "DETACH_BYTES",
    "FIRST_KIND",
    "FORMAT_AT",
    "HEADER",
    "HEADER_BYTES",
    "KEY",
    "KEY_BYTES",
    "KIND_AT",
    "LOW_FLAGS_AT",
    "MAX_ERROR_BYTES",
    "MAX_TTL_MS",
    "NO_TTL",
    "ORIGIN",
    "ORIGIN_OF_KEY",
    "SEQUENCE",
    "SEQUENCE_OF_KEY",
    "STAMP",
    "TRACE_LENGTH_AT",
    "Header",
    "address_and_method_of",
    "address_of",
    "error_name",
    "flags_of",
    "for_consumer",
    "for_next_attempt",
    "has_error_name",
    "has_names",
    "key_of",
    "method_block_of",
    "method_of",
    "origin_of",
    "pack",
    "parse",
    "payload_of",
    "router_of_origin",
    "sequence_of",
    "sequence_of_key",
    "size_of",
    "split_error_name",
    "trace_of",
    "ttl_of",
    "unpack_reply",
    "unpack_request",
    "with_address",
    "with_flag",
    "with_header",
    "with_kind",
    "with_next_hop",
    "with_origin",
    "with_payload",
    "with_stamp",
    "with_ttl",
    "without_flag",
    "without_payload",
]

NO_TTL = 0xFFFFFFFF
MAX_TTL_MS = NO_TTL - 1
#: Longest class name in a FAULT (bytes).
MAX_ERROR_BYTES = 100
#: A payload of at least this many bytes travels in a frame of its own.
DETACH_BYTES = 32 * 1024
HEADER_BYTES = 40
#: Offsets of a message's fields of one byte. ``LOW_FLAGS_AT`` has the flags below 0x100, :func:`flags_of` all.
KIND_AT, LOW_FLAGS_AT, ATTEMPT_AT, FORMAT_AT, CONSUMER_AT, TRACE_LENGTH_AT = 5, 7, 9, 10, 11, 39
#: The fields ``hops`` and ``attempt``: the higher one is of the later owner of a message.
STAMP = slice(8, 10)
#: Of what else is read or written in place: two-byte fields begin there.
_HIGH_FLAGS_AT, _HOPS_AT, _TTL_AT, _KEY_AT, METHOD_LENGTH_AT = 6, 8, 12, 16, 38
ADDRESS_LENGTH = slice(36, 38)
_VERSION_AT, _SEQUENCE_AT = 4, 28
#: The kind of the first message of a batch, as one byte; empty if the batch is shorter.
FIRST_KIND = slice(5, 6)
#: The key (router, handle and sequence), which names a message in the whole system, and its halves.
KEY, ORIGIN, SEQUENCE = slice(16, 36), slice(16, 28), slice(28, 36)
KEY_BYTES = 20
ORIGIN_OF_KEY, SEQUENCE_OF_KEY = slice(0, 12), slice(12, 20)
_ORIGIN = Struct(">IQ")
#: Lengths of address, method and trace.
_NAMES = slice(36, 40)
_NO_NAMES = bytes(4)
#: For a router's hot path, of a REQUEST or CAST: length, kind, flags, attempt and format as one, consumer, ttl, key,
#: and the lengths of address, method and trace.
unpack_request = Struct(">IxBHxHBI20sHBB").unpack_from
#: For the same, of an answer: kind, attempt, consumer, ttl (what the handler took), key, and all lengths as one.
unpack_reply = Struct(">5xB3xBxBI20sI").unpack_from


class Header(NamedTuple):
    """The fixed part of a message, in the order of the wire."""

    length: int
    version: int
    kind: int
    flags: int
    hops: int
    attempt: int
    format: int
    consumer: int
    ttl: int
    router: int
    handle: int
    sequence: int
    address_length: int
    method_length: int
    trace_length: int


#: length, version, kind, flags, hops, attempt, format, consumer, ttl, router, handle, sequence,
#: address length, method length, trace length.
HEADER = Struct(">IBBHBBBBIIQQHBB")
#: The same with router, handle and sequence as one key of 20 bytes.
_KEYED = Struct(">IBBHBBBBI20sHBB")
_NO_KEY = bytes(20)
_pack_keyed = _KEYED.pack


def pack(
    kind: int,
    payload: bytes | memoryview = b"",
    *,
    flags: int = 0,
    format: int = 0,
    ttl: int = NO_TTL,
    key: bytes = _NO_KEY,
    sequence: int = 0,
    address: bytes = b"",
    method: bytes = b"",
    trace: bytes = b"",
    attempt: int = 0,
    consumer: int = 0,
    hops: int = 0,
) -> bytes:
    """Build a message. ``key`` is router, handle and sequence; ``sequence`` alone is for control messages.

    A payload of ``DETACH_BYTES`` or more is detached: the result is then a :class:`Detached`.
    """
    if sequence:
        key = _NO_KEY[:12] + sequence.to_bytes(8)
    variable = address + method + trace
    length = HEADER_BYTES + len(variable)
    detach = len(payload) >= DETACH_BYTES
    if detach:
        flags |= 1
    else:
        length += len(payload)
    head = _pack_keyed(
        length, VERSION, kind, flags, hops, attempt, format, consumer, ttl, key, len(address), len(method), len(trace)
    )
    if detach:
        return Detached.of(head + variable, payload)
    return b"".join((head, variable, payload))


def parse(message: bytes) -> Header:
    """The header of a message, its variable lengths checked against the message's length.

    Raises:
        ProtocolError: the variable parts do not fit.
    """
    header = Header._make(HEADER.unpack_from(message))
    if HEADER_BYTES + header.address_length + header.method_length + header.trace_length > len(message):
        raise ProtocolError("address, method and trace do not fit into the message", "length")
    return header


def key_of(message: bytes) -> bytes:
    """Router, handle and sequence: what names a message in the whole system."""
    return message[KEY]


def origin_of(router_id: int, handle: int) -> bytes:
    """Router and handle as the key of each message of a link begins with them (12 bytes)."""
    return _ORIGIN.pack(router_id, handle)


def router_of_origin(origin: bytes) -> int:
    """The id of the router in an origin, or in the key that begins with it."""
    router: int = _ORIGIN.unpack_from(origin)[0]
    return router


def sequence_of(message: bytes) -> int:
    """The number of the message at its sender; in ACK, HEARTBEAT and DRAIN a count."""
    return int.from_bytes(message[SEQUENCE])


def sequence_of_key(key: bytes) -> int:
    """The number at its sender of the message with ``key``."""
    return int.from_bytes(key[SEQUENCE_OF_KEY])


def has_names(message: bytes) -> bool:
    """Return whether there is an address, a method or a trace."""
    return message[_NAMES] != _NO_NAMES


def has_error_name(message: bytes) -> bool:
    """Return whether a FAULT names a class, in the place of the method, and has neither address nor trace."""
    if message[ADDRESS_LENGTH] != b"\0\0" or message[TRACE_LENGTH_AT]:
        return False
    return 0 < message[METHOD_LENGTH_AT] <= len(message) - HEADER_BYTES


def flags_of(message: bytes) -> int:
    """All flags of the message."""
    return message[_HIGH_FLAGS_AT] << 8 | message[LOW_FLAGS_AT]


# The lengths of address (36, 37), method (38) and trace (39) are read on the path of each message: with names for these
# offsets each function below is 3 to 5 % slower.


def payload_of(message: bytes) -> bytes | memoryview:
    """The payload bytes, detached or not. The header must have been checked by :func:`parse`."""
    if message[LOW_FLAGS_AT] & 1:
        payload: bytes | memoryview = message.payload  # type: ignore[attr-defined]
        return payload
    return message[40 + (message[36] << 8) + message[37] + message[38] + message[39] :]


def address_of(message: bytes) -> bytes:
    """The address block. The header must have been checked by :func:`parse`."""
    return message[40 : 40 + (message[36] << 8) + message[37]]


def address_and_method_of(message: bytes) -> bytes:
    """The address block and the method's name, as they stand. As for :func:`address_of`."""
    return message[40 : 40 + (message[36] << 8) + message[37] + message[38]]


def trace_of(message: bytes) -> bytes:
    """The traceparent; empty if it has none. As for :func:`address_of`."""
    start = 40 + (message[36] << 8) + message[37] + message[38]
    return message[start : start + message[39]]


def method_block_of(message: bytes) -> bytes:
    """The method's name as it stands. As for :func:`address_of`."""
    begin = 40 + (message[36] << 8) + message[37]
    return message[begin : begin + message[38]]


def method_of(message: bytes) -> str:
    """The method's name. As for :func:`address_of`."""
    return method_block_of(message).decode("utf-8", "replace")


def with_header(message: bytes, head: bytes) -> bytes:
    """Return ``message`` with ``head`` as its header, keeping a detached payload."""
    return Detached.of(head, message.payload) if message[LOW_FLAGS_AT] & 1 else head  # type: ignore[attr-defined]


def with_kind(message: bytes, kind: int) -> bytes:
    """``message`` as a message of another kind."""
    return with_header(message, message[:KIND_AT] + bytes((kind,)) + message[_HIGH_FLAGS_AT:])


def with_origin(message: bytes, origin: bytes) -> bytes:
    """``message`` as a message of ``origin`` (router and handle)."""
    return with_header(message, message[:_KEY_AT] + origin + message[_SEQUENCE_AT:])


def ttl_of(message: bytes) -> int:
    """The milliseconds that the message has left; ``NO_TTL`` for no limit."""
    return int.from_bytes(message[_TTL_AT:_KEY_AT])


def with_address(message: bytes, block: bytes) -> bytes:
    """``message`` with another address block. Its header must have been checked by :func:`parse`."""
    end = HEADER_BYTES + (message[36] << 8) + message[37]
    length = int.from_bytes(message[:_VERSION_AT]) - (end - HEADER_BYTES) + len(block)
    lengths = len(block).to_bytes(2) + message[METHOD_LENGTH_AT:HEADER_BYTES]
    return with_header(message, length.to_bytes(4) + message[_VERSION_AT:36] + lengths + block + message[end:])


def with_stamp(message: bytes, stamp: bytes) -> bytes:
    """``message`` with another :data:`STAMP`."""
    return with_header(message, message[:_HOPS_AT] + stamp + message[FORMAT_AT:])


def with_next_hop(message: bytes) -> bytes:
    """``message`` as its sender sends it to another router, or to another life of one.

    Raises:
        OverflowError: it was sent to 255 others before.
    """
    stamp = message[STAMP]
    if stamp[0] == 255:
        raise OverflowError("the message was sent to 255 routers")
    return with_stamp(message, bytes((stamp[0] + 1, 0)))


def with_ttl(message: bytes, ttl: int) -> bytes:
    """``message`` with ``ttl`` milliseconds left."""
    return with_header(message, message[:_TTL_AT] + ttl.to_bytes(4) + message[_KEY_AT:])


def for_consumer(message: bytes, tag: int) -> bytes:
    """``message`` for the consumer ``tag`` of a link."""
    return with_header(message, message[:CONSUMER_AT] + tag.to_bytes() + message[_TTL_AT:])


def for_next_attempt(message: bytes, attempt: int, tag: int, ttl: int) -> bytes:
    """``message`` for the consumer ``tag`` of a link, after ``attempt`` others, with ``ttl`` milliseconds left."""
    return with_header(
        message, message[:ATTEMPT_AT] + bytes((attempt, message[FORMAT_AT], tag)) + ttl.to_bytes(4) + message[_KEY_AT:]
    )


def with_flag(message: bytes, flag: int) -> bytes:
    """``message`` with ``flag`` set."""
    flags = message[_HIGH_FLAGS_AT] << 8 | message[LOW_FLAGS_AT] | flag
    return with_header(message, message[:_HIGH_FLAGS_AT] + flags.to_bytes(2) + message[_HOPS_AT:])


def without_flag(message: bytes, flag: int) -> bytes:
    """``message`` with ``flag`` not set."""
    flags = (message[_HIGH_FLAGS_AT] << 8 | message[LOW_FLAGS_AT]) & ~flag
    return with_header(message, message[:_HIGH_FLAGS_AT] + flags.to_bytes(2) + message[_HOPS_AT:])


def without_payload(message: bytes) -> bytes:
    """The header and the names of ``message`` alone."""
    end = 40 + (message[36] << 8) + message[37] + message[38] + message[39]
    flags = bytes((message[LOW_FLAGS_AT] & ~Flag.DETACHED,))
    return end.to_bytes(4) + message[_VERSION_AT:LOW_FLAGS_AT] + flags + message[_HOPS_AT:end]


def with_payload(message: bytes, format: int, payload: bytes) -> bytes:
    """``message`` with another payload in another format; attempt, consumer and hops are 0."""
    header = parse(message)
    cuts = [HEADER_BYTES]
    for length in (header.address_length, header.method_length, header.trace_length):
        cuts.append(cuts[-1] + length)
    address, method, trace = (message[a:b] for a, b in pairwise(cuts))
    return pack(
        header.kind,
        payload,
        flags=header.flags & ~Flag.DETACHED,
        format=format,
        ttl=header.ttl,
        key=message[KEY],
        address=address,
        method=method,
        trace=trace,
    )


def error_name(error: BaseException) -> bytes:
    """The class of ``error`` as a FAULT names it; empty if its name is none that a FAULT may carry."""
    name = type(error).__name__
    raw = name.encode() if name.isprintable() else b""
    return raw if len(raw) <= MAX_ERROR_BYTES else b""


def split_error_name(message: bytes) -> tuple[bytes, str]:
    """Split a FAULT into the message without its error class, which stands in the place of the method, and the name.

    The name is empty if it is too long, no UTF-8 or has a control character: whoever sends it is not to be trusted.
    """
    end = HEADER_BYTES + message[METHOD_LENGTH_AT]
    raw = message[HEADER_BYTES:end]
    try:
        name = raw.decode() if len(raw) <= MAX_ERROR_BYTES else ""
    except UnicodeDecodeError:
        name = ""
    length = int.from_bytes(message[:_VERSION_AT]) - len(raw)
    head = length.to_bytes(4) + message[_VERSION_AT:METHOD_LENGTH_AT] + bytes(2) + message[end:]
    return with_header(message, head), name if name.isprintable() else ""


def size_of(message: bytes) -> int:
    """Bytes of a message with its payload."""
    return len(message) + len(message.payload) if message[LOW_FLAGS_AT] & 1 else len(message)  # type: ignore[attr-defined]
