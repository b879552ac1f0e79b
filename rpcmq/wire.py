"""The binary protocol: message header, addresses, batches. ``docs/protocol.md`` is the specification.

A ZeroMQ message carries one *batch* frame, which is any number of rpcmq messages back to back, and
then one frame for each message in the batch whose payload is *detached* (too large to be copied).
Everything here is pure and raises only :class:`~rpcmq.errors.ProtocolError` on bytes from a peer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import IntEnum
from itertools import pairwise
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from rpcmq.errors import ProtocolError, UsageError

__all__ = [
    "DETACH_BYTES",
    "HEADER",
    "MAX_BATCH_MESSAGES",
    "MAX_ERROR_BYTES",
    "MAX_INLINE_BYTES",
    "MAX_NAME_BYTES",
    "MAX_SETTLEMENTS",
    "MAX_TTL_MS",
    "MAX_VIEW_BYTES",
    "NO_TTL",
    "SESSION_KINDS",
    "SETTLEMENT",
    "VERSION",
    "Address",
    "Detached",
    "Flag",
    "Header",
    "Kind",
    "address_of",
    "body_of",
    "control",
    "error_name",
    "json_bytes",
    "key_of",
    "message",
    "method_of",
    "parse",
    "payload_of",
    "remade",
    "size_of",
    "split",
    "with_flag",
    "with_payload",
    "without_error",
    "without_flag",
]

VERSION = 1
NO_TTL = 0xFFFFFFFF
MAX_TTL_MS = NO_TTL - 1
MAX_NAME_BYTES = 255
#: Of the class that a FAULT may name.
MAX_ERROR_BYTES = 100
#: A payload of at least this many bytes travels in a frame of its own.
DETACH_BYTES = 32 * 1024
#: The longest body of a control message, but for a router's answer to a question: to read JSON takes time and memory.
MAX_BODY_BYTES = 1 << 20
#: The longest answer to a question.
MAX_VIEW_BYTES = 1 << 30
#: The longest message in a batch frame: header, three names and their lengths, method, trace, a payload that is not
#: detached. What is longer is refused, so that 256 of them always fit into a frame that any peer takes.
MAX_INLINE_BYTES = 40 + 3 + 3 * MAX_NAME_BYTES + 255 + 255 + DETACH_BYTES - 1
#: Messages in one batch; processes send 256. More would keep all others waiting.
MAX_BATCH_MESSAGES = 4096
#: Messages of a kind at or above this are counted, acknowledged and re-sent by the session.
SESSION_KINDS = 0x10


class Kind(IntEnum):
    """What a message is. Below 0x10: about the link itself. The numbers are on the wire."""

    HELLO = 0x01
    WELCOME = 0x02
    REFUSED = 0x03
    HEARTBEAT = 0x04
    ACK = 0x05
    GOODBYE = 0x06
    DRAIN = 0x07

    REQUEST = 0x10
    CAST = 0x11
    REPLY = 0x12
    FAULT = 0x13
    ERROR = 0x14
    ITEM = 0x15
    END = 0x16
    GRANT = 0x17
    ALIVE = 0x18
    CANCEL = 0x19
    SETTLE = 0x1A
    CONFIRM = 0x1B
    DELIVERED = 0x1C
    SENT = 0x1D
    DROPPED = 0x1E

    REGISTER = 0x20
    REGISTERED = 0x21
    UNREGISTER = 0x22
    DECLARE = 0x23

    SUBSCRIBE = 0x30
    SUBSCRIBED = 0x31
    UNSUBSCRIBE = 0x32
    PUBLISH = 0x33
    TAKEN = 0x34
    LOST = 0x35

    INTRODUCE = 0x40
    INTRODUCTION = 0x41

    QUERY = 0x50
    ANSWER = 0x51


class Flag:
    """Bits of the header's ``flags``. Plain integers: the operators of IntFlag cost ten times as much."""

    DETACHED = 0x0001
    FANOUT = 0x0002
    MANDATORY = 0x0004
    IDEMPOTENT = 0x0008
    CONFIRM = 0x0010
    RESENT = 0x0020
    STREAM = 0x0040
    ANSWER_WANTED = 0x0080
    ACCEPTS_DILL = 0x0100
    SEALED = 0x0200
    NESTED = 0x0400


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
_LENGTHS = Struct(">BBB")
#: The same with router, handle and sequence as one key of 20 bytes.
_KEYED = Struct(">IBBHBBBBI20sHBB")
_NO_KEY = bytes(20)
_pack_keyed = _KEYED.pack
#: One settled cast in a SETTLE message: key, attempt, outcome, handler time (microseconds).
SETTLEMENT = Struct(">20sBBI")
#: Records in one SETTLE: as many as the largest credit.
MAX_SETTLEMENTS = 65_535
#: Length, version, flags: what is needed to cut a message out of its batch.
_unpack_start = Struct(">IBxH").unpack_from


class Detached(bytes):
    """A message (header and variable part) whose payload travels in a frame of its own."""

    payload: bytes | memoryview

    @classmethod
    def of(cls, head: bytes, payload: bytes | memoryview) -> Detached:
        """``head`` with ``payload`` attached; ``head`` must have the DETACHED flag set."""
        made = cls(head)
        made.payload = payload
        return made


class Address(NamedTuple):
    """Where a message goes: (exchange, topic, server), each a field of its own; names contain dots.

    ``server`` is empty for the shared topic. Fanout is a flag of the message.
    """

    topic: str
    server: str = ""
    exchange: str = ""

    def encode(self) -> bytes:
        """The address block: three length bytes, then exchange, topic and server as UTF-8.

        Raises:
            UsageError: the topic is empty, or a name is longer than 255 bytes or has a control character.
        """
        names = [_name_bytes(field, name) for field, name in self._named()]
        if not names[1]:
            raise UsageError("topic is empty: give the name of the topic to address")
        return _LENGTHS.pack(*map(len, names)) + b"".join(names)

    def _named(self) -> tuple[tuple[str, str], ...]:
        return ("exchange", self.exchange), ("topic", self.topic), ("server", self.server)

    @classmethod
    def decode(cls, block: bytes) -> Address:
        """The address in ``block``.

        Raises:
            ProtocolError: the lengths do not fit, the topic is empty, a name is not UTF-8 or has a
                control character.
        """
        if len(block) < _LENGTHS.size:
            raise ProtocolError(f"address block of {len(block)} bytes is shorter than its 3 lengths", "address")
        lengths = _LENGTHS.unpack_from(block)
        if _LENGTHS.size + sum(lengths) != len(block):
            raise ProtocolError(f"address lengths {lengths} do not fill a block of {len(block)} bytes", "address")
        exchange, topic, server = _decode_names(block, lengths)
        if not topic:
            raise ProtocolError("address has an empty topic", "address")
        return cls(topic, server, exchange)

    def __str__(self) -> str:
        name = f"{self.topic}.{self.server}" if self.server else self.topic
        return f"{self.exchange}/{name}" if self.exchange else name


def _decode_names(block: bytes, lengths: Sequence[int]) -> list[str]:
    names, position = [], _LENGTHS.size
    for length in lengths:
        raw = block[position : position + length]
        position += length
        try:
            name = raw.decode()
        except UnicodeDecodeError:
            raise ProtocolError(f"name {raw!r} in an address is not UTF-8", "address") from None
        if not name.isprintable():
            raise ProtocolError(f"name {name!r} in an address has a control character", "address")
        names.append(name)
    return names


def _name_bytes(field: str, name: str) -> bytes:
    if not isinstance(name, str):
        raise UsageError(f"{field} must be a str, not {type(name).__name__}: {name!r}")
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{field} {name!r} cannot be encoded as UTF-8") from None
    if len(raw) > MAX_NAME_BYTES:
        raise UsageError(f"{field} {name[:40]!r}... has {len(raw)} bytes; at most {MAX_NAME_BYTES}")
    if not name.isprintable():
        raise UsageError(f"{field} {name!r} has a control character")
    return raw


def message(
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
    """One message. ``key`` is router, handle and sequence; ``sequence`` alone is for link control.

    A payload of ``DETACH_BYTES`` or more is detached: the result is then a :class:`Detached`.
    """
    if sequence:
        key = _NO_KEY[:12] + sequence.to_bytes(8)
    variable = address + method + trace
    length = 40 + len(variable)
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


def control(kind: int, body: Mapping[str, Any] | None = None, **fields: Any) -> bytes:
    """A message whose payload is ``body`` as plain JSON."""
    return message(kind, b"" if body is None else json_bytes(body), format=1, **fields)


def json_bytes(body: Mapping[str, Any]) -> bytes:
    """``body`` as compact JSON."""
    return json.dumps(body, separators=(",", ":")).encode()


def split(batch: bytes, payloads: Sequence[bytes | memoryview] = ()) -> list[bytes]:
    """The messages of a batch, each with its detached payload if it has one.

    Raises:
        ProtocolError: a length, version or the number of detached payloads is wrong, or there are too many
            messages. Nothing of such a batch is used.
    """
    if len(batch) > 40 * MAX_BATCH_MESSAGES:
        _check_number(batch)
    messages: list[bytes] = []
    append = messages.append
    start, end, longest = 0, len(batch), MAX_INLINE_BYTES
    taken = 0
    try:
        while start < end:
            length, version, flags = _unpack_start(batch, start)
            stop = start + length
            if not 40 <= length <= longest or stop > end or version != VERSION:
                raise _misfit(batch, start)
            part = batch[start:stop]
            if flags & 1:
                if taken >= len(payloads):
                    raise ProtocolError("a message's detached payload is missing", "detached")
                part = Detached.of(part, payloads[taken])
                taken += 1
            append(part)
            start = stop
    except StructError:
        raise _misfit(batch, start) from None
    if not messages:
        raise ProtocolError("empty batch", "truncated")
    if taken != len(payloads):
        raise ProtocolError(f"{len(payloads)} payload frames for {taken} detached messages", "detached")
    return messages


def _check_number(batch: bytes) -> None:
    """Refuse a batch of too many messages before any of them is made."""
    start, end = 0, len(batch)
    for _ in range(MAX_BATCH_MESSAGES):
        if end - start < 40:
            return
        length = _unpack_start(batch, start)[0]
        if length < 40:
            return  # as will be found
        start += length
    if start < end:
        raise ProtocolError(f"more than {MAX_BATCH_MESSAGES} messages in one batch", "batch")


def _misfit(batch: bytes, start: int) -> ProtocolError:
    """Why no message starts at ``start``."""
    left = len(batch) - start
    if left < 40:
        return ProtocolError(f"{left} bytes at {start} are shorter than a header (40)", "truncated")
    length, version, _ = _unpack_start(batch, start)
    if length > MAX_INLINE_BYTES and version == VERSION:
        text = f"message of {length} bytes at byte {start}: a payload of {DETACH_BYTES} bytes or more must be detached"
        return ProtocolError(text, "length")
    if length < 40 or length > left:
        return ProtocolError(f"message length {length} at byte {start} of a batch of {len(batch)}", "length")
    return ProtocolError(f"version {version} is not spoken here, only {VERSION}", "version")


def parse(part: bytes) -> Header:
    """The header of a message, its variable lengths checked against the message's length.

    Raises:
        ProtocolError: the variable parts do not fit.
    """
    header = Header._make(HEADER.unpack_from(part))
    if 40 + header.address_length + header.method_length + header.trace_length > len(part):
        raise ProtocolError("address, method and trace do not fit into the message", "length")
    return header


def key_of(part: bytes) -> bytes:
    """Router, handle and sequence: what names a message in the whole system."""
    return part[16:36]


def payload_of(part: bytes) -> bytes | memoryview:
    """The payload bytes, detached or not. The header must have been checked by :func:`parse`."""
    if part[7] & 1:
        payload: bytes | memoryview = part.payload  # type: ignore[attr-defined]
        return payload
    return part[40 + (part[36] << 8) + part[37] + part[38] + part[39] :]


def address_of(part: bytes) -> bytes:
    """The address block. The header must have been checked by :func:`parse`."""
    return part[40 : 40 + (part[36] << 8) + part[37]]


def method_of(part: bytes) -> str:
    """The method's name. As for :func:`address_of`."""
    begin = 40 + (part[36] << 8) + part[37]
    return part[begin : begin + part[38]].decode("utf-8", "replace")


def remade(part: bytes, head: bytes) -> bytes:
    """``head`` in place of ``part``, with the payload of ``part`` if that is detached."""
    return Detached.of(head, part.payload) if part[7] & 1 else head  # type: ignore[attr-defined]


def with_flag(part: bytes, flag: int) -> bytes:
    """``part`` with ``flag`` set."""
    flags = part[6] << 8 | part[7] | flag
    return remade(part, part[:6] + flags.to_bytes(2) + part[8:])


def without_flag(part: bytes, flag: int) -> bytes:
    """``part`` with ``flag`` not set."""
    flags = (part[6] << 8 | part[7]) & ~flag
    return remade(part, part[:6] + flags.to_bytes(2) + part[8:])


def with_payload(part: bytes, format: int, payload: bytes) -> bytes:
    """``part`` with another payload in another format."""
    header = parse(part)
    cuts = [40]
    for length in (header.address_length, header.method_length, header.trace_length):
        cuts.append(cuts[-1] + length)
    address, method, trace = (part[a:b] for a, b in pairwise(cuts))
    return message(
        header.kind,
        payload,
        flags=header.flags & ~Flag.DETACHED,
        format=format,
        ttl=header.ttl,
        key=part[16:36],
        address=address,
        method=method,
        trace=trace,
    )


def error_name(error: BaseException) -> bytes:
    """The class of ``error`` as a FAULT names it; empty if its name is none that a FAULT may carry."""
    name = type(error).__name__
    raw = name.encode() if name.isprintable() else b""
    return raw if len(raw) <= MAX_ERROR_BYTES else b""


def without_error(part: bytes) -> tuple[bytes, str]:
    """A FAULT, which has no trace, without the class that it names in the place of the method; and that name.

    The name is empty if it is too long, no UTF-8 or has a control character: whoever sends it is not to be trusted.
    """
    end = 40 + part[38]
    raw = part[40:end]
    try:
        name = raw.decode() if len(raw) <= MAX_ERROR_BYTES else ""
    except UnicodeDecodeError:
        name = ""
    length = int.from_bytes(part[:4]) - len(raw)
    head = length.to_bytes(4) + part[4:38] + bytes(2) + part[end:]
    return remade(part, head), name if name.isprintable() else ""


def size_of(part: bytes) -> int:
    """Bytes of a message with its payload."""
    return len(part) + len(part.payload) if part[7] & 1 else len(part)  # type: ignore[attr-defined]


def body_of(part: bytes, max_bytes: int = MAX_BODY_BYTES) -> dict[str, Any]:
    """The plain JSON object in the payload of a control message.

    Raises:
        ProtocolError: the payload is longer than ``max_bytes``, or not a JSON object.
    """
    parse(part)
    payload = payload_of(part)
    if len(payload) > max_bytes:
        raise ProtocolError(f"body of {len(payload)} bytes; {max_bytes} may be", "body")
    try:
        body = json.loads(bytes(payload).decode())
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"body is not JSON: {error}", "body") from None
    if not isinstance(body, dict):
        raise ProtocolError(f"body is a JSON {type(body).__name__}, not an object", "body")
    return body
