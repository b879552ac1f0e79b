"""The records by which routers and consumers find out who has a message: ``docs/protocol`` has the exchange."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

from rpcmq.errors import ProtocolError
from rpcmq.wire.header import KEY_BYTES, payload_of

__all__ = ["HERE_RECORD", "MAX_ASKED", "WHERE_RECORD", "Word", "here_records", "taken_keys", "where_records"]

#: Key and stamp.
WHERE_RECORD = Struct(">20s2s")
#: Key, stamp, word.
HERE_RECORD = Struct(">20s2sB")
#: Most records of one message.
MAX_ASKED = 1000


class Word(IntEnum):
    """The word of a consumer about a message. The numbers are on the wire."""

    #: It has not had it, and starts it for no earlier owner than the one that asks.
    NOT_HAD = 0
    RUNNING = 1
    #: It has ended it, and sends the answer again.
    ANSWERED = 2
    #: It knows of a later owner.
    NEWER = 3
    #: There will be no answer: it keeps that no longer; or, of its router, it is gone with all that it knew.
    LOST = 4
    #: Of a router: the consumer may have it, and has left, or has ended it; it is looked for.
    SOUGHT = 5


def where_records(message: bytes) -> list[tuple[bytes, bytes]]:
    """Key and stamp of each message that a WHERE asks for.

    Raises:
        ProtocolError: there is a part of a record, or too many.
    """
    return list(WHERE_RECORD.iter_unpack(_records(message, WHERE_RECORD.size)))


def here_records(message: bytes) -> list[tuple[bytes, bytes, int]]:
    """Key, stamp and word of each message that a HERE tells of.

    Raises:
        ProtocolError: there is a part of a record, or too many, or a word that does not exist.
    """
    records = list(HERE_RECORD.iter_unpack(_records(message, HERE_RECORD.size)))
    if any(word > Word.SOUGHT for _, _, word in records):
        raise ProtocolError("HERE has a word that does not exist", "word")
    return records


def taken_keys(message: bytes) -> list[bytes]:
    """The keys in a TAKEN.

    Raises:
        ProtocolError: there is a part of a key, or too many.
    """
    payload = _records(message, KEY_BYTES)
    return [bytes(payload[at : at + KEY_BYTES]) for at in range(0, len(payload), KEY_BYTES)]


def _records(message: bytes, size: int) -> bytes | memoryview:
    payload = payload_of(message)
    count, rest = divmod(len(payload), size)
    if rest or count > MAX_ASKED:
        raise ProtocolError(
            f"{len(payload)} bytes are no multiple of {size}, or more than {MAX_ASKED} records", "length"
        )
    return payload
