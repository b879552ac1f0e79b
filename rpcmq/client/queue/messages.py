"""The message of an item as the store keeps it: method, format, and the body, which nobody here looks into."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

__all__ = ["Message", "message_bytes"]

#: Length of the method, and format.
_HEAD = Struct(">BB")


class Message(NamedTuple):
    """The message of an item.

    Attributes:
        method: of at most 255 bytes.
        format: of the body.
    """

    method: bytes
    format: int
    body: bytes

    def to_bytes(self) -> bytes:
        """The message as the store keeps it."""
        return message_bytes(*self)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Message:
        """The inverse of :meth:`to_bytes`. Bytes that are no message name no method."""
        length, format = _HEAD.unpack_from(raw.ljust(_HEAD.size, b"\0"))
        end = _HEAD.size + length
        return cls(raw[_HEAD.size : end], format, raw[end:])


def message_bytes(method: bytes, format: int, body: bytes) -> bytes:
    """A :class:`Message` as the store keeps it."""
    return _HEAD.pack(len(method), format) + method + body
