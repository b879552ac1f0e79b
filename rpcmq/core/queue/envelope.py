"""An item as it is stored: the message for its worker, and in front of it whatever the queue itself must know."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

__all__ = ["Envelope"]

#: Version, time until which it is wanted (milliseconds of the wall clock; 0: for ever), length of the series.
_HEAD = Struct(">BqH")
_VERSION = 1


@dataclass(frozen=True)
class Envelope:
    """An item.

    Attributes:
        message: for its worker.
        expires: milliseconds of the wall clock after which nobody wants it; 0: for ever.
        series: of the items with the same one runs one at a time; empty: no matter.
    """

    message: bytes
    expires: int = 0
    series: bytes = b""

    def to_bytes(self) -> bytes:
        """The envelope as the store keeps it."""
        return b"".join((_HEAD.pack(_VERSION, self.expires, len(self.series)), self.series, self.message))

    @classmethod
    def from_bytes(cls, body: bytes) -> Envelope:
        """The inverse of :meth:`to_bytes`.

        Raises:
            ValueError: a later version has written it, or it is none.
        """
        if len(body) < _HEAD.size:
            raise ValueError(f"the item has {len(body)} bytes, which is no item")
        version, expires, length = _HEAD.unpack_from(body)
        if version != _VERSION:
            raise ValueError(f"the item has version {version}, and this rpcmq knows {_VERSION}")
        at = _HEAD.size + length
        return cls(body[at:], expires, body[_HEAD.size : at])
