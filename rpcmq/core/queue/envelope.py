"""An item as it is stored: the message for its worker, and in front of it whatever the queue itself must know."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

__all__ = ["Envelope", "envelope_bytes"]

#: Version, time until which it is wanted (milliseconds of the wall clock; 0: for ever), milliseconds for which its
#: result is kept, lengths of the series and of the unique key.
_HEAD = Struct(">BqqHH")
_VERSION = 2


class Envelope(NamedTuple):
    """An item."""

    #: For its worker.
    message: bytes
    #: Milliseconds of the wall clock after which nobody wants it; 0: for ever.
    expires: int = 0
    #: Of the items with the same one runs one at a time; empty: no matter.
    series: bytes = b""
    #: Milliseconds for which its result is kept; 0: it is not.
    keep_result: int = 0
    #: Of the items with the same one waits one; empty: no matter.
    unique: bytes = b""

    def to_bytes(self) -> bytes:
        """The envelope as the store keeps it."""
        return envelope_bytes(*self)

    @classmethod
    def from_bytes(cls, body: bytes) -> Envelope:
        """The inverse of :meth:`to_bytes`.

        Raises:
            ValueError: another version has written it, or it is none.
        """
        if len(body) < _HEAD.size:
            raise ValueError(f"the item has {len(body)} bytes, which is no item")
        version, expires, keep_result, series, unique = _HEAD.unpack_from(body)
        if version != _VERSION:
            raise ValueError(f"the item has version {version}, and this rpcmq knows {_VERSION}")
        if not series and not unique:
            return cls(body[_HEAD.size :], expires, b"", keep_result)
        at = _HEAD.size + series
        end = at + unique
        return cls(body[end:], expires, body[_HEAD.size : at], keep_result, body[at:end])


def envelope_bytes(message: bytes, expires: int, series: bytes, keep_result: int, unique: bytes) -> bytes:
    """An :class:`Envelope` as the store keeps it."""
    return _HEAD.pack(_VERSION, expires, keep_result, len(series), len(unique)) + series + unique + message
