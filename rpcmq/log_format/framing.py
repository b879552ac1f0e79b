"""Packing: the head of a file, the frame of a block, the entries of names."""

from __future__ import annotations

from zlib import crc32

from rpcmq.log_format.entries import Head
from rpcmq.log_format.layout import CRC, FRAME, HEAD, LENGTH, MAGIC, NAME, VERSION, BlockKind, NameKind

__all__ = ["file_name", "framed", "name_entry", "pack_head"]


def file_name(router_id: int, boot: int, segment: int) -> str:
    """The name of a spool file, without its ending."""
    return f"{router_id}-{boot}-{segment:08}"


def pack_head(head: Head) -> bytes:
    """Pack ``head``, ignoring its ``version`` and ``length``."""
    name = head.router_name.encode()
    length = HEAD.size + len(name) + CRC.size
    fixed = HEAD.pack(
        MAGIC, VERSION, length, head.router_id, head.segment, head.boot, head.dropped, head.monotonic, head.wall_us
    )
    return fixed + name + CRC.pack(crc32(name, crc32(fixed)))


def framed(kind: BlockKind, count: int, body: bytes) -> list[bytes]:
    """A block, in pieces to be written together."""
    frame = FRAME.pack(kind, count, len(body), crc32(body))
    return [frame + CRC.pack(crc32(frame)), body]


def name_entry(number: int, kind: NameKind, *texts: str) -> bytes:
    """An entry of a NAMES block.

    Raises:
        UnicodeEncodeError, struct.error: a text cannot be encoded, or is longer than 65,535 bytes.
    """
    entry = NAME.pack(number, kind, len(texts))
    for text in texts:
        raw = text.encode()
        entry += LENGTH.pack(len(raw)) + raw
    return entry
