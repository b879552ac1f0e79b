"""Addresses of messages: the address block and its names."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from rpcmq.errors import ProtocolError, UsageError

__all__ = ["MAX_NAME_BYTES", "Address"]

MAX_NAME_BYTES = 255
_LENGTHS = Struct(">BBB")


class Address(NamedTuple):
    """A destination: topic, server and exchange, each a field of its own; names contain dots.

    On the wire the exchange is first.

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
            raise ProtocolError(
                f"name '{raw.decode(errors='backslashreplace')}' in an address is not UTF-8", "address"
            ) from None
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
