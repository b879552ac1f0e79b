"""Sizes, structs and kinds of the format: the bytes of a record are described by ``LAYOUT``."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from struct import Struct
from typing import NamedTuple

from rpcmq.wire.kinds import Flag, Kind

__all__ = [
    "CRC",
    "DIFFERS",
    "FRAME",
    "FRAME_BYTES",
    "HEAD",
    "LAYOUT",
    "LENGTH",
    "LOG_MODE",
    "MAGIC",
    "MARK",
    "MAX_ERROR",
    "MESSAGE",
    "NAME",
    "NOT_REPORTED",
    "PART",
    "RECORD",
    "RECORD_BYTES",
    "SEAL",
    "SEALED",
    "SHORT_RECORD",
    "START",
    "TEXTS",
    "VERSION",
    "BlockKind",
    "Field",
    "MessageKind",
    "NameKind",
]

MAGIC = b"rpcmqlog"
VERSION = 4
#: Bytes of a record, by the version of its file. One of version 3 lacks the last field.
RECORD_BYTES = {3: 120, 4: 124}
#: Extensions of a file being written and of a sealed one.
PART, SEALED = ".part", ".spool"
#: Mode of the files of a dispatch log, in the spool and where they are shipped to, whatever the umask is: they say who
#: calls what. For those who analyse them the folder has a group.
LOG_MODE = 0o640

HEAD = Struct(">8sHHIIQQdq")
START = Struct(">8sHH")
CRC = Struct(">I")
FRAME = Struct(">BxxxIII")
NAME = Struct(">IBB")
LENGTH = Struct(">H")
FRAME_BYTES = FRAME.size + CRC.size

#: Monotonic clock, last seq given, calls in flight.
MARK = Struct(">dQQ")
#: Records, in-flight entries, names, dropped records, whether the router's life ended here.
SEAL = Struct(">QQQQ?")
#: The bytes of one message: see LAYOUT. A request's header is packed by giving the request itself, for
#: ``36s`` takes the first bytes of what is longer.
RECORD = Struct(">36sQdddIIIIIIBBH16sQI")
#: The same without ``request_bytes``, ``error``, ``trace_id`` and ``home_us``: zero.
SHORT_RECORD = Struct(">36sQdddIII4xIIBB18xQ4x")

#: The header of a request, by docs/protocol.md, without the lengths of what follows it.
MESSAGE = Struct(">IBBHBBBBIIQQ")

#: ``handler_us`` and ``ttl_ms`` where there is none.
NOT_REPORTED = 0xFFFFFFFF
#: The greatest number that an ERROR may have.
MAX_ERROR = 0xFFFF
#: The ERROR of a delivery that others have overtaken, if its result is not the one that was used; where it has raised
#: something, with ": " and the class of that behind.
DIFFERS = "differs"


class Field(NamedTuple):
    """A part of a record, for those who read many at once: a numpy dtype is made of the first three."""

    name: str
    #: As numpy writes it.
    type: str
    offset: int
    note: str


#: The fields of a record of ``RECORD.size`` bytes, in order.
LAYOUT = (
    # The first 36 bytes of the message's header as it came, by docs/protocol.md.
    Field("length", ">u4", 0, "bytes of the message without a detached payload"),
    Field("version", ">u1", 4, "of the protocol"),
    Field(
        "kind",
        ">u1",
        5,
        "0x10 REQUEST: a call; 0x11 CAST: a cast, or with the flag 0x0002 a fanout's copy; 0x26 HEDGE: a delivery of a "
        "call that another server has answered: with the flag 0x1000 one beside the first, else the first",
    ),
    Field("flags", ">u2", 6, "of the message; of an item of a work queue with the attempts before this one: TRIED"),
    Field("hops", ">u1", 8, "routers that it had passed"),
    Field("zero", ">u1", 9, "attempt, as a caller sends it"),
    Field("format", ">u1", 10, "of the payload: 1 json, 2 pickle, 3 dill"),
    Field("tag", ">u1", 11, "nothing"),
    Field("ttl_ms", ">u4", 12, "milliseconds that it had left when it came; NOT_REPORTED: no limit"),
    Field("origin_router", ">u4", 16, "router_id of the caller's router"),
    Field("handle", ">u8", 20, "the caller's link there"),
    Field("sequence", ">u8", 28, "the caller's number of the message: with the two before, its correlation id"),
    # What the router knows.
    Field("seq", ">u8", 36, "this router's number of it"),
    Field("received_at", ">f8", 44, "monotonic seconds"),
    Field("dispatched_at", ">f8", 52, "the same, of the last time that a server got it; without server: nothing"),
    Field("ended_at", ">f8", 60, "the same"),
    Field("target", ">u4", 68, "number of a TARGET: what it was sent to"),
    Field("caller", ">u4", 72, "number of a CALLER: who sent it; 0: gone and forgotten"),
    Field("server", ">u4", 76, "number of a SERVER or SERVER_ELSEWHERE: who had it last; 0: nobody, it was queued"),
    Field("request_bytes", ">u4", 80, "the whole message with its payload; 0: as length says"),
    Field("reply_bytes", ">u4", 84, "the whole message that ended it; 0: none came (casts, timeouts, ...)"),
    Field("handler_us", ">u4", 88, "microseconds in the method, as the service says; or NOT_REPORTED"),
    Field("outcome", ">u1", 92, "rpcmq.errors.Outcome; of a cast any number that its consumer said"),
    Field("attempt", ">u1", 93, "servers that had it before and may have run it"),
    Field("error", ">u2", 94, "number of an ERROR: the class of what the method raised; 0: not known, or none"),
    Field("trace_id", "V16", 96, "of its W3C traceparent; zeros: none"),
    Field("sent_us", ">u8", 112, "the service's monotonic clock when it sent the answer; 0: not known"),
    Field("home_us", ">u4", 120, "of a SERVER_ELSEWHERE: microseconds at its router, as that says; 0: not known"),
)


class BlockKind(IntEnum):
    """Kinds of blocks."""

    NAMES = 1
    RECORDS = 2
    IN_FLIGHT = 3
    MARK = 4
    SEAL = 5


class NameKind(IntEnum):
    """Kinds of names, and so the texts that each has."""

    #: exchange, topic, group, server (empty: any), method
    TARGET = 1
    #: identity
    CALLER = 2
    #: name of the server, identity
    SERVER = 3
    #: class of an exception, as the service calls it
    ERROR = 4
    #: name of the server, identity (both empty: not known), name of the router that it was linked to
    SERVER_ELSEWHERE = 5


TEXTS = {
    NameKind.TARGET: 5,
    NameKind.CALLER: 1,
    NameKind.SERVER: 2,
    NameKind.ERROR: 1,
    NameKind.SERVER_ELSEWHERE: 3,
}


class MessageKind(StrEnum):
    """Kinds of messages."""

    CALL = "call"
    CAST = "cast"
    FANOUT = "fanout"
    #: A delivery of a call beside the first, and the first one, where another one was answered.
    HEDGE = "hedge"
    OVERTAKEN = "overtaken"

    @property
    def is_message(self) -> bool:
        """Whether it is a message in its own right, rather than one more delivery of a call."""
        return self is not MessageKind.HEDGE and self is not MessageKind.OVERTAKEN

    @classmethod
    def of(cls, kind: int, flags: int) -> MessageKind:
        """That of a record with the header's ``kind`` and ``flags``."""
        if kind == Kind.HEDGE:
            return cls.HEDGE if flags & Flag.HEDGED else cls.OVERTAKEN
        if kind != Kind.CAST:
            return cls.CALL
        return cls.FANOUT if flags & Flag.FANOUT else cls.CAST
