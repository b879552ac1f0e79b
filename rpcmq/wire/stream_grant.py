"""REQUEST_GRANT and GRANT: how much more of a stream may be sent."""

from __future__ import annotations

from struct import Struct

from rpcmq.errors import ProtocolError
from rpcmq.wire.header import has_names, payload_of

__all__ = ["grant_of", "grant_payload", "reply_grant_of"]

#: Items, and bytes of their payloads.
_GRANT = Struct(">II")
_MOST = 0xFFFFFFFF


def grant_payload(items: int, size_bytes: int) -> bytes:
    """The payload that grants so many ``items``, and so many bytes of payloads."""
    return _GRANT.pack(items, min(size_bytes, _MOST))


def grant_of(message: bytes) -> tuple[int, int]:
    """The items and bytes that REQUEST_GRANT grants.

    Raises:
        ProtocolError: it does not have two counts and nothing else.
    """
    payload = payload_of(message)
    if has_names(message) or len(payload) != _GRANT.size:
        raise ProtocolError("REQUEST_GRANT needs two counts of 4 bytes each and nothing else", "length")
    items, size_bytes = _GRANT.unpack(payload)
    return items, size_bytes


def reply_grant_of(message: bytes) -> tuple[int, int]:
    """The items that GRANT grants, and the bytes; 0 where it has no count of these.

    Raises:
        ProtocolError: it has neither one count nor two, or something else.
    """
    payload = payload_of(message)
    if has_names(message) or len(payload) not in (4, _GRANT.size):
        raise ProtocolError("GRANT needs one count or two of 4 bytes each and nothing else", "length")
    return int.from_bytes(payload[:4]), int.from_bytes(payload[4:])
