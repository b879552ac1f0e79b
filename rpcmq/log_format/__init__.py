"""The spool: what a router writes of the messages that it dispatched. Format version 4.

A file is a *head* and then *blocks*; all numbers are big-endian, all text is UTF-8. Every file stands
alone: what its records name by number is defined in it, in a block before them.

Head: magic ``rpcmqlog``, then

====  ====  ==========================================================================================
u16   8     version: 4
u16   10    bytes of the head
u32   12    router_id
u32   16    number of this file in the router's life, from 1
u64   20    boot: wall-clock milliseconds at the router's start; names that life of the router
u64   28    records of that life that were dropped (no room on the disk, ...) before this file
f64   36    a reading of the router's monotonic clock (seconds)
i64   44    the wall clock at that moment (microseconds since 1970, UTC)
text  52    router_name
u32   -4    CRC-32 of all that stands before it
====  ====  ==========================================================================================

Block: u8 kind, 3 zero bytes, u32 number of entries, u32 bytes of the body, u32 CRC-32 of the body, u32
CRC-32 of these 16 bytes; then the body. So a file that was cut off is told from a damaged one.

* 1 NAMES: for each name u32 number (1, 2, ... in each file), u8 :class:`NameKind`, u8 number of texts,
  and each text as u16 length and its bytes.
* 2 RECORDS: messages that have ended, as ``RECORD`` packs them: ``LAYOUT``.
* 3 IN_FLIGHT: calls that are older than a second and have not ended, in the same form; ``ended_at`` is
  the moment of the look, ``outcome`` means nothing. Of a call at most one such entry is ever written.
* 4 MARK: f64 monotonic clock, u64 the last ``seq`` given, u64 calls in flight. One begins each write.
* 5 SEAL: u64 each: records, in-flight entries, names in this file, records of this life dropped so far;
  u8: 1 if the router ended here in good order, so that every ``seq`` has its record or was dropped.
  It is the last block. A file without it was cut off, or is still being written.

A router numbers each call and cast, and each copy of one, as it receives it: ``seq`` is 1, 2, ..., and
each gets exactly one record. So a number that is missing in all files of a (router, boot) is a message
that was under way when the router died (an IN_FLIGHT entry may name it), or whose record was dropped.

Files stand in one directory, ``DIR/spool``, and are named ``<router_id>-<boot>-<segment>`` (decimal, the
segment with at least 8 digits): ``.part`` while the router writes, ``.spool`` once it is sealed. The router
holds a lock (``flock``, exclusive) on a ``.part``; one that can be locked has no writer any more, and what
stands in it up to its last good block is all that there is of it.

A reader refuses a file of a version that it does not know; a new kind of block or name or another ``RECORD`` raises
the version. Files of version 3 are read, too: their records lack the last field.

A file with one record in it:

.. code-block:: rpcmq-spool

    72 70 63 6d 71 6c 6f 67                         | magic = "rpcmqlog"
    00 04                                           | version = 4
    00 3a                                           | length = 58
    00 00 00 07                                     | router_id = 7
    00 00 00 01                                     | segment = 1
    00 00 01 8b cf e5 68 00                         | boot = 1700000000000
    00 00 00 00 00 00 00 00                         | dropped = 0
    40 8f 40 00 00 00 00 00                         | monotonic = 1000.0
    00 06 0a 24 1b b1 c7 00                         | wall_us = 1700000060000000
    72 31                                           | router_name = "r1"
    94 bd 6b e3                                     | crc
    04 00 00 00                                     | -- MARK
    00 00 00 01                                     | count = 1
    00 00 00 18                                     | bytes = 24
    50 6e 4e 8a                                     | crc of the body
    95 b2 2e ef                                     | crc of the frame
    40 90 92 00 00 00 00 00                         | monotonic = 1060.5
    00 00 00 00 00 00 00 2a                         | last_seq = 42
    00 00 00 00 00 00 00 00                         | in_flight = 0
    01 00 00 00                                     | -- NAMES
    00 00 00 04                                     | count = 4
    00 00 00 54                                     | bytes = 84
    de 9b 8a 86                                     | crc of the body
    20 d6 2d ac                                     | crc of the frame
    00 00 00 01                                     | number = 1
    01 05                                           | TARGET, 5 texts
    00 00                                           | ""
    00 07 63 6f 6d 70 75 74 65                      | "compute"
    00 00                                           | ""
    00 00                                           | ""
    00 06 72 65 62 6f 6f 74                         | "reboot"
    00 00 00 02                                     | number = 2
    02 01                                           | CALLER, 1 texts
    00 05 61 70 69 2d 31                            | "api-1"
    00 00 00 03                                     | number = 3
    03 02                                           | SERVER, 2 texts
    00 06 6e 6f 64 65 2d 37                         | "node-7"
    00 08 77 6f 72 6b 65 72 2d 31                   | "worker-1"
    00 00 00 04                                     | number = 4
    04 01                                           | ERROR, 1 texts
    00 0a 56 61 6c 75 65 45 72 72 6f 72             | "ValueError"
    02 00 00 00                                     | -- RECORDS
    00 00 00 01                                     | count = 1
    00 00 00 7c                                     | bytes = 124
    e3 7f 68 06                                     | crc of the body
    9f 62 f2 9a                                     | crc of the frame
    00 00 00 71                                     | length = 113
    01                                              | version = 1
    10                                              | kind = 0x10
    00 00                                           | flags = 0
    00                                              | hops = 0
    00                                              | zero = 0
    01                                              | format = 1
    00                                              | tag = 0
    00 00 75 30                                     | ttl_ms = 30000
    00 00 00 07                                     | origin_router = 7
    00 00 00 00 00 00 00 09                         | handle = 9
    00 00 00 00 00 00 00 05                         | sequence = 5
    00 00 00 00 00 00 00 2a                         | seq = 42
    40 90 91 00 00 00 00 00                         | received_at = 1060.25
    40 90 91 80 00 00 00 00                         | dispatched_at = 1060.375
    40 90 92 00 00 00 00 00                         | ended_at = 1060.5
    00 00 00 01                                     | target = 1
    00 00 00 02                                     | caller = 2
    00 00 00 03                                     | server = 3
    00 00 00 71                                     | request_bytes = 113
    00 00 00 8c                                     | reply_bytes = 140
    00 01 d4 c0                                     | handler_us = 120000
    01                                              | outcome = 1
    00                                              | attempt = 0
    00 04                                           | error = 4
    4b f9 2f 35 77 b3 4d a6 a3 ce 92 9d 0e 0e 47 36 | trace_id
    00 00 00 01 2a 05 f2 00                         | sent_us = 5000000000
    00 00 00 00                                     | home_us = 0
    05 00 00 00                                     | -- SEAL
    00 00 00 01                                     | count = 1
    00 00 00 21                                     | bytes = 33
    e3 8d 0c f6                                     | crc of the body
    a8 74 fa 94                                     | crc of the frame
    00 00 00 00 00 00 00 01                         | records = 1
    00 00 00 00 00 00 00 00                         | in_flight = 0
    00 00 00 00 00 00 00 04                         | names = 4
    00 00 00 00 00 00 00 00                         | dropped = 0
    01                                              | final = 1
"""

from rpcmq.log_format.entries import Block, Head, Mark, Name, Problem, Record, Seal, SpoolError
from rpcmq.log_format.framing import file_name, framed, name_entry, pack_head
from rpcmq.log_format.layout import (
    DIFFERS,
    LAYOUT,
    LOG_MODE,
    MAGIC,
    MARK,
    MAX_ERROR,
    NOT_REPORTED,
    PART,
    RECORD,
    RECORD_BYTES,
    SEAL,
    SEALED,
    SHORT_RECORD,
    VERSION,
    BlockKind,
    Field,
    MessageKind,
    NameKind,
)
from rpcmq.log_format.reading import Spool, blocks, names_in, read_head, read_spool

__all__ = [
    "DIFFERS",
    "LAYOUT",
    "LOG_MODE",
    "MAGIC",
    "MARK",
    "MAX_ERROR",
    "NOT_REPORTED",
    "PART",
    "RECORD",
    "RECORD_BYTES",
    "SEAL",
    "SEALED",
    "SHORT_RECORD",
    "VERSION",
    "Block",
    "BlockKind",
    "Field",
    "Head",
    "Mark",
    "MessageKind",
    "Name",
    "NameKind",
    "Problem",
    "Record",
    "Seal",
    "Spool",
    "SpoolError",
    "blocks",
    "file_name",
    "framed",
    "name_entry",
    "names_in",
    "pack_head",
    "read_head",
    "read_spool",
]
