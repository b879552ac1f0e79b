"""INTEREST: the addresses that a router has consumers for, and who these are, as it tells its neighbours.

The payload is a header (:data:`_HEADER`) and *rows*, each a key and the state of that key, whatever it was before:
repeated, or told in another order, they lead to the same. A row without a state is forgotten. There are three kinds:

* an address: the address block and, as the rest, the name of a group. Its state is a :class:`PlaceState`.
* a name: three zero bytes, as of an address with no names, and a number of three bytes. Its state is the name of a
  process (:class:`~rpcmq.wire.consumer_name.ConsumerName`); states of addresses name consumers by these numbers.
* a part of the consumers of an address that has too many for one row: the key of the address, a zero byte and the
  number of the part (three bytes). Its state is a bit for each of the 128 numbers from 128 times the part's on.

The versions number the messages of one router; ``digest`` is over all of its rows after this message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from rpcmq.errors import ProtocolError
from rpcmq.wire.address import MAX_NAME_BYTES, Address
from rpcmq.wire.header import pack, payload_of
from rpcmq.wire.kinds import Kind

__all__ = [
    "MAX_IDENTITIES",
    "MAX_INLINE",
    "PART_SIZE",
    "InterestBody",
    "PlaceState",
    "Row",
    "address_key",
    "bits_of",
    "identity_key",
    "identity_number",
    "is_address",
    "numbers_of",
    "part_key",
    "part_of_key",
    "place_key",
    "place_of_key",
    "row_digest",
    "size_of_state",
    "topic_key",
]

#: A key and its state.
Row = tuple[bytes, bytes]

#: Flags, base, version, number of rows, and digest of them, after this message.
_HEADER = Struct(">BQQIQ")
_BEGIN, _END, _CHECKED = 1, 2, 4
#: Of a row: bytes of key and state.
_LENGTHS = Struct(">HH")
#: Most identities that the row of an address has itself; numbers of identities are below ``MAX_IDENTITIES``.
MAX_INLINE, MAX_IDENTITIES = 100, 1 << 24
#: Numbers that one part has a bit for.
PART_SIZE: Final = 128
_PART_BYTES = PART_SIZE // 8
_NUMBER_BYTES = 3
_BLOCK_LENGTHS = 3
#: Longest INTEREST: a message is handled in one go, and a row of it can be 11 bytes.
_MAX_BYTES = 32 * 1024
_IDENTITY_PREFIX = bytes(_BLOCK_LENGTHS)
_MAX_KEY = _BLOCK_LENGTHS + 4 * MAX_NAME_BYTES + 1 + _NUMBER_BYTES

# Of a state: flags, consumers, capacity, number of identities; the same for numbers that are too large for it.
_SMALL, _WIDE = Struct(">BBHB"), Struct(">BIIB")
_REGISTERED, _IS_WIDE, _IN_PARTS = 1, 2, 4


class InterestBody(NamedTuple):
    """The content of an INTEREST.

    Attributes:
        begins: whether all rows follow: those that were told before and are not among them are forgotten at the end.
        ends: whether they have all been told with this one.
        is_checked: whether ``total`` and ``digest`` are those after this message, and not after later ones.
        base: the version that the router that it is told to has had from before.
        version: the version that it has then.
        total: the number of rows that it has then.
        digest: of these, the sum of their digests.
        rows: keys and states.
    """

    begins: bool
    ends: bool
    is_checked: bool
    base: int
    version: int
    total: int
    digest: int
    rows: list[Row]

    def message(self) -> bytes:
        """The whole message."""
        flags = _BEGIN * self.begins | _END * self.ends | _CHECKED * self.is_checked
        parts = [_HEADER.pack(flags, self.base, self.version, self.total, self.digest)]
        for key, state in self.rows:
            parts += _LENGTHS.pack(len(key), len(state)), key, state
        return pack(Kind.INTEREST, b"".join(parts))

    @classmethod
    def of(cls, message: bytes) -> InterestBody:
        """Read a message. Keys and states are checked where they are used.

        Raises:
            ProtocolError: its lengths do not fit, or it is too long.
        """
        payload = bytes(payload_of(message))
        if len(payload) < _HEADER.size:
            raise ProtocolError(f"INTEREST of {len(payload)} bytes is shorter than its header", "length")
        if len(payload) > _MAX_BYTES:
            raise ProtocolError(f"INTEREST of {len(payload)} bytes exceeds the limit of {_MAX_BYTES}", "length")
        flags, base, version, total, digest = _HEADER.unpack_from(payload)
        rows: list[Row] = []
        at, end = _HEADER.size, len(payload)
        while at < end:
            start = at + _LENGTHS.size
            if start > end:
                raise ProtocolError("INTEREST ends within a row", "length")
            key_bytes, state_bytes = _LENGTHS.unpack_from(payload, at)
            at = start + key_bytes + state_bytes
            if at > end or key_bytes > _MAX_KEY:
                raise ProtocolError("the row of an INTEREST is longer than the message, or its key than any", "length")
            rows.append((payload[start : start + key_bytes], payload[start + key_bytes : at]))
        begins, ends, is_checked = (bool(flags & flag) for flag in (_BEGIN, _END, _CHECKED))
        return cls(begins, ends, is_checked, base, version, total, digest, rows)

    @staticmethod
    def size_of(row: Row) -> int:
        """The bytes that ``row`` takes in a message."""
        return _LENGTHS.size + len(row[0]) + len(row[1])


def row_digest(key: bytes, state: bytes) -> int:
    """The digest of a row; 0 for one that is forgotten."""
    if not state:
        return 0
    return int.from_bytes(blake2b(len(key).to_bytes(2) + key + state, digest_size=8).digest())


# --- keys ----------------------------------------------------------------------------------------


def place_key(address: Address, group: str = "") -> bytes:
    """The key of an address, or of a group of a topic."""
    return address.encode() + group.encode()


def part_key(key: bytes, part: int) -> bytes:
    """The key of a part of the consumers of the address with ``key``."""
    return key + b"\0" + part.to_bytes(_NUMBER_BYTES)


def identity_key(number: int) -> bytes:
    """The key of the identity with ``number``."""
    return _IDENTITY_PREFIX + number.to_bytes(_NUMBER_BYTES)


def identity_number(key: bytes) -> int | None:
    """The number of the identity that ``key`` is of; None: it is of an address.

    Raises:
        ProtocolError: it has no number.
    """
    if not key.startswith(_IDENTITY_PREFIX):
        return None
    if len(key) != _BLOCK_LENGTHS + _NUMBER_BYTES:
        raise ProtocolError(f"the key of an identity has {len(key)} bytes", "interest")
    return int.from_bytes(key[_BLOCK_LENGTHS:])


def is_address(key: bytes) -> bool:
    """Return whether ``key``, which is well-formed, is that of an address, and not of an identity or a part."""
    return not key.startswith(_IDENTITY_PREFIX) and key.find(b"\0", _BLOCK_LENGTHS) < 0


def topic_key(key: bytes) -> bytes | None:
    """The key of the topic of which ``key``, which is well-formed, names a group; None: it does not name one."""
    if not is_address(key):
        return None
    block = _BLOCK_LENGTHS + sum(key[:_BLOCK_LENGTHS])
    return key[:block] if len(key) > block else None


def address_key(key: bytes) -> bytes | None:
    """The key of the address of which ``key``, which is well-formed, is a part; None: it is not one."""
    at = -1 if key.startswith(_IDENTITY_PREFIX) else key.find(b"\0", _BLOCK_LENGTHS)
    return key[:at] if at >= 0 else None


def part_of_key(key: bytes) -> int:
    """The number of the part that ``key``, which is that of one, is of."""
    return int.from_bytes(key[-_NUMBER_BYTES:])


def place_of_key(key: bytes) -> tuple[Address, str, int | None]:
    """The address and group that ``key`` is of, and the number of the part; None for the address itself.

    Raises:
        ProtocolError: it is malformed.
    """
    block = _BLOCK_LENGTHS + sum(key[:_BLOCK_LENGTHS])
    address = Address.decode(key[:block])
    rest = key[block:]
    part: int | None = None
    at = rest.find(b"\0")
    if at >= 0:
        if len(rest) - at != 1 + _NUMBER_BYTES:
            raise ProtocolError(f"the number of a part has {len(rest) - at - 1} bytes", "interest")
        part = int.from_bytes(rest[at + 1 :])
        rest = rest[:at]
    if not rest:
        return address, "", part
    try:
        group = rest.decode()
    except UnicodeDecodeError:
        raise ProtocolError("the name of a group is not UTF-8", "interest") from None
    if not group.isprintable() or address.server:
        raise ProtocolError(f"{group!r} is no name of a group, or one of a server", "interest")
    return address, group, part


# --- states --------------------------------------------------------------------------------------


class PlaceState(NamedTuple):
    """The consumers that a router has of an address.

    Attributes:
        consumers: those whose processes are connected.
        capacity: the requests that those of them take at once that answer.
        registered: whether it was consumed or declared there, and is remembered.
        identities: the numbers of all processes that consume it there, connected or not.
        in_parts: whether these are in rows of their own.
    """

    consumers: int = 0
    capacity: int = 0
    registered: bool = False
    identities: tuple[int, ...] = ()
    in_parts: bool = False

    def encode(self) -> bytes:
        """The state as a row has it; empty if there is nothing to tell."""
        consumers, capacity, registered, identities, in_parts = self
        if not (consumers or registered or identities or in_parts):
            return b""
        flags = _REGISTERED * registered | _IN_PARTS * in_parts
        if consumers < 1 << 8 and capacity < 1 << 16:
            head = _SMALL.pack(flags, consumers, capacity, len(identities))
        else:
            head = _WIDE.pack(flags | _IS_WIDE, consumers, min(capacity, (1 << 32) - 1), len(identities))
        return head + b"".join([number.to_bytes(_NUMBER_BYTES) for number in identities])

    @classmethod
    def read(cls, state: bytes) -> PlaceState:
        """Read a state.

        Raises:
            ProtocolError: it is malformed.
        """
        if not state:
            return _NOTHING
        size = size_of_state(state, 0)
        if size != len(state):
            raise ProtocolError(f"the state of an address has {len(state)} bytes instead of {size}", "interest")
        layout = _WIDE if state[0] & _IS_WIDE else _SMALL
        flags, consumers, capacity, _ = layout.unpack_from(state)
        return cls(
            consumers,
            capacity,
            bool(flags & _REGISTERED),
            tuple(
                int.from_bytes(state[at : at + _NUMBER_BYTES]) for at in range(layout.size, len(state), _NUMBER_BYTES)
            ),
            bool(flags & _IN_PARTS),
        )


_NOTHING = PlaceState()


def size_of_state(states: bytes, at: int) -> int:
    """The bytes of the state of an address that begins at ``at``; they may be more than there are."""
    layout = _WIDE if states[at] & _IS_WIDE else _SMALL
    last = at + layout.size - 1
    return layout.size + (_NUMBER_BYTES * states[last] if last < len(states) else 0)


def bits_of(numbers: Iterable[int]) -> bytes:
    """The state of the part that has ``numbers``; empty if there are none."""
    bits = 0
    for number in numbers:
        bits |= 1 << number % PART_SIZE
    return bits.to_bytes(_PART_BYTES) if bits else b""


def numbers_of(part: int, bits: bytes) -> Iterator[int]:
    """The numbers in ``part``.

    Raises:
        ProtocolError: it is malformed.
    """
    if len(bits) != _PART_BYTES:
        raise ProtocolError(f"a part of the consumers of an address has {len(bits)} bytes", "interest")
    left = int.from_bytes(bits)
    while left:
        lowest = left & -left
        yield part * PART_SIZE + lowest.bit_length() - 1
        left ^= lowest
