"""The message of an item as the store keeps it: method, format, and the body, which nobody here looks into."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Message"]


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
        return b"".join((bytes((len(self.method), self.format)), self.method, self.body))

    @classmethod
    def from_bytes(cls, raw: bytes) -> Message:
        """The inverse of :meth:`to_bytes`."""
        end = 2 + raw[0]
        return cls(raw[2:end], raw[1], raw[end:])
