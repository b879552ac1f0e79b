"""The kinds of messages and the flags of their headers, and the version of the protocol that they are of."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = [
    "FIRST_FREE_NODE_KIND",
    "FIRST_NODE_KIND",
    "FIRST_SESSION_KIND",
    "TRIED_SHIFT",
    "VERSION",
    "Flag",
    "Kind",
]

VERSION = 1
#: Messages of a kind at or above this are counted, acknowledged and re-sent by the session.
FIRST_SESSION_KIND = 0x10
#: The kinds from here on are of node types that are plugged in: below the second, of those that come with rpcmq.
FIRST_NODE_KIND, FIRST_FREE_NODE_KIND = 0x80, 0x90
#: Of the number ``Flag.TRIED``.
TRIED_SHIFT = 12


class Kind(IntEnum):
    """Kinds of messages. Below 0x10: about the link itself. The numbers are on the wire."""

    HELLO = 0x01
    WELCOME = 0x02
    REFUSED = 0x03
    HEARTBEAT = 0x04
    ACK = 0x05
    GOODBYE = 0x06
    DRAIN = 0x07
    RELAY = 0x08
    READ = 0x09

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
    CLOCK_STAMP = 0x1D
    DROPPED = 0x1E

    REGISTER = 0x20
    REGISTERED = 0x21
    UNREGISTER = 0x22
    DECLARE = 0x23
    OCCUPIED = 0x24
    GIVE_BACK = 0x25
    HEDGE = 0x26

    REQUEST_ITEM = 0x2A
    REQUEST_END = 0x2B
    REQUEST_GRANT = 0x2C
    REQUEST_STOP = 0x2D

    SUBSCRIBE = 0x30
    SUBSCRIBED = 0x31
    UNSUBSCRIBE = 0x32
    PUBLISH = 0x33
    EVENT_CREDIT = 0x34
    LOST = 0x35

    INTRODUCE = 0x40
    INTRODUCTION = 0x41

    QUERY = 0x50
    ANSWER = 0x51

    ROUTERS = 0x60
    MEMBERS = 0x61
    INTEREST = 0x62
    INTEREST_ACK = 0x63
    BUSY = 0x64
    WANT = 0x65
    ROOM = 0x66
    RETURNED = 0x67
    WHERE = 0x68
    HERE = 0x69
    TAKEN = 0x6A
    KNOWS = 0x6B
    PIECE = 0x6C
    FENCES = 0x6D
    NODE_NEWS = 0x6E
    RUNNER = 0x6F


class Flag:
    """Bits of the header's ``flags``. Plain integers: the operators of IntFlag cost ten times as much."""

    DETACHED: Final = 0x0001
    FANOUT: Final = 0x0002
    MANDATORY: Final = 0x0004
    IDEMPOTENT: Final = 0x0008
    CONFIRM: Final = 0x0010
    RESENT: Final = 0x0020
    STREAM: Final = 0x0040
    ANSWER_WANTED: Final = 0x0080
    ACCEPTS_DILL: Final = 0x0100
    SEALED: Final = 0x0200
    NESTED: Final = 0x0400
    NOT_AGAIN: Final = 0x0800
    #: Beside NOT_AGAIN a number of four bits, at TRIED_SHIFT: the attempts at the item before this one; 15: or more.
    TRIED: Final = 0xF000
    #: Without NOT_AGAIN: others have the same call. The router writes it.
    HEDGED: Final = 0x1000
    #: Without NOT_AGAIN: grants of its answer's items, or this item of an answer, are counted in bytes, too.
    BYTE_CREDIT: Final = 0x2000
