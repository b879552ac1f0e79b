"""PIECE: a part of a large payload, between routers.

A message whose payload is longer than a piece is sent as PIECEs, which carry the payload but for its end, and then
itself, with the end of its payload. A PIECE has the key of that message, its kind in ``format``, and in the place of
the address where its bytes belong: the bytes before them, and those of the whole payload (4 each).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from rpcmq.errors import ProtocolError
from rpcmq.wire.detached import Detached
from rpcmq.wire.header import FORMAT_AT, KEY, KIND_AT, LOW_FLAGS_AT, address_of, pack, parse, payload_of
from rpcmq.wire.kinds import Flag, Kind

__all__ = ["PIECE_BYTES", "Piece", "cut", "is_to_cut", "parse_piece"]

#: Most bytes of a payload that are sent at once between routers: 0.4 s at 20 Mbit/s, in which nothing else is heard.
PIECE_BYTES = 1 << 20
_PLACE = Struct(">II")


class Piece(NamedTuple):
    """The content of a PIECE."""

    #: Key and kind of the message that it is a part of.
    key: bytes
    kind: int
    #: Bytes of the payload before these, and of the whole payload.
    offset: int
    total: int
    data: bytes | memoryview


def is_to_cut(message: bytes) -> bool:
    """Return whether ``message`` is longer than a piece."""
    return bool(message[LOW_FLAGS_AT] & Flag.DETACHED) and len(payload_of(message)) > PIECE_BYTES


def cut(message: bytes) -> list[bytes]:
    """The messages that are sent in the place of ``message``; copies nothing of its payload."""
    payload = memoryview(payload_of(message))
    total = len(payload)
    end = (total - 1) // PIECE_BYTES * PIECE_BYTES
    key, kind = message[KEY], message[KIND_AT]
    pieces = [
        pack(Kind.PIECE, payload[at : at + PIECE_BYTES], key=key, format=kind, address=_PLACE.pack(at, total))
        for at in range(0, end, PIECE_BYTES)
    ]
    return [*pieces, Detached.of(message, payload[end:])]


def parse_piece(message: bytes) -> Piece:
    """The content of a PIECE.

    Raises:
        ProtocolError: it does not say where its bytes belong, or they do not belong there.
    """
    parse(message)
    place = address_of(message)
    if len(place) != _PLACE.size:
        raise ProtocolError(f"PIECE has a place of {len(place)} bytes, not {_PLACE.size}", "length")
    offset, total = _PLACE.unpack(place)
    data = payload_of(message)
    if not data or offset + len(data) >= total:
        text = f"PIECE has {len(data)} bytes from byte {offset} on of a payload of {total}, whose end comes later"
        raise ProtocolError(text, "length")
    return Piece(message[KEY], message[FORMAT_AT], offset, total, data)
