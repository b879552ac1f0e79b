"""The file of one stored response.

::

    prologue  magic, bytes of a slot, bytes of the body, checksum of the table, checksum of these
    slot      sequence number, bytes of the head, checksum of both and the head; the head as JSON; space up to its size
    slot      the same: of the two the one with the higher number counts, so that a head is replaced without moving the
        body
    body
    table     the checksum of each block of the body

Numbers are big-endian, checksums CRC-32. A block is STEP_BYTES, the last one less. Any change of this is a new magic.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from zlib import crc32

from rpcmq.proxy.caching.entry import MalformedEntry, StoredResponse
from rpcmq.proxy.store.contract import STEP_BYTES

__all__ = [
    "DamagedFile",
    "FileBody",
    "Layout",
    "new_layout",
    "read_file",
    "replace_head",
    "whole_file",
    "write_all",
    "write_head",
]

_MAGIC = b"rpcmqhc1"
_PROLOGUE = struct.Struct(">8sIQII")
_SLOT = struct.Struct(">III")
_FIRST_READ = 8 << 10
_MOST_SLOT = 1 << 20


class DamagedFile(Exception):
    """A file that is not as it was written."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Places within the file, in bytes."""

    slot: int
    body: int
    table_crc: int

    @property
    def body_at(self) -> int:
        """The place of the body."""
        return _PROLOGUE.size + 2 * self.slot

    @property
    def table_at(self) -> int:
        """The place of the table of checksums."""
        return self.body_at + self.body

    @property
    def blocks(self) -> int:
        """The number of blocks of the body."""
        return -(-self.body // STEP_BYTES)

    @property
    def size(self) -> int:
        """The size of the file."""
        return self.table_at + 4 * self.blocks


def new_layout(entry: StoredResponse) -> Layout:
    """Return the layout of a file in which the head of ``entry`` can grow by half; its body is not known yet."""
    return Layout(_slot_size(len(_head(entry))), 0, 0)


def write_head(descriptor: int, layout: Layout, entry: StoredResponse) -> None:
    """Write prologue and head of a file whose body and table are there.

    Raises:
        OSError: the disk does not take it.
    """
    write_all(descriptor, _start(layout, _head(entry)), 0)


def whole_file(entry: StoredResponse, body: bytes) -> bytes:
    """Return the file of a response whose body is one block, or empty."""
    head = _head(entry)
    table = crc32(body).to_bytes(4) if body else b""
    return _start(Layout(_slot_size(len(head)), len(body), crc32(table)), head) + body + table


def replace_head(descriptor: int, entry: StoredResponse) -> bool:
    """Write another head into the slot that does not count; False: it has no room there.

    Raises:
        DamagedFile: the file is not as it was written.
        OSError: the disk does not take it.
    """
    layout, heads = _read_heads(descriptor)
    sequence, number, _ = max(heads)
    slot = _slot(sequence + 1, _head(entry))
    if len(slot) > layout.slot:
        return False
    write_all(descriptor, slot, _PROLOGUE.size + (1 - number) * layout.slot)
    return True


def read_file(descriptor: int) -> tuple[Layout, StoredResponse]:
    """Return the layout of a file, and the head that counts.

    Raises:
        DamagedFile: the file is not as it was written, or not all of it is there.
        OSError: the disk does not give it.
    """
    layout, heads = _read_heads(descriptor)
    _, _, text = max(heads)
    try:
        return layout, StoredResponse.from_dict(json.loads(text)).with_body_size(layout.body)
    except (ValueError, MalformedEntry) as error:
        raise DamagedFile(f"its head is none: {error}") from error


def write_all(descriptor: int, data: bytes, position: int) -> None:
    """Write all of ``data`` at ``position``.

    Raises:
        OSError: the disk does not take it.
    """
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written


class FileBody:
    """The body of an open file; each block is checked before a byte of it is given out.

    ``on_damage`` is called where one is not as it was written.
    """

    def __init__(self, descriptor: int, layout: Layout, on_damage: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._layout = layout
        self._on_damage = on_damage
        self._table: bytes | None = None

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes from ``start`` to ``stop``.

        Raises:
            OSError: the disk does not give them, or they are damaged.
        """
        stop = min(stop, self._layout.body)
        while start < stop:
            number = start // STEP_BYTES
            first = number * STEP_BYTES
            last = min(first + STEP_BYTES, self._layout.body)
            block = self._block(number, first, last)
            end = min(stop, last)
            yield block if start == first and end == last else block[start - first : end - first]
            start = end

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()

    def _block(self, number: int, first: int, last: int) -> bytes:
        if self._table is None:
            self._table = _read_all(self._descriptor, 4 * self._layout.blocks, self._layout.table_at)
            if crc32(self._table) != self._layout.table_crc:
                self._on_damage()
                raise OSError("the checksums of a stored body are damaged")
        block = _read_all(self._descriptor, last - first, self._layout.body_at + first)
        if crc32(block) != int.from_bytes(self._table[4 * number : 4 * number + 4]):
            self._on_damage()
            raise OSError(f"a stored body is damaged between its bytes {first} and {last}")
        return block


def _head(entry: StoredResponse) -> bytes:
    return json.dumps(entry.to_dict(), separators=(",", ":")).encode()


def _start(layout: Layout, head: bytes) -> bytes:
    prologue = struct.pack(">8sIQI", _MAGIC, layout.slot, layout.body, layout.table_crc)
    slots = _slot(1, head).ljust(layout.slot, b"\0") + bytes(layout.slot)
    return prologue + crc32(prologue).to_bytes(4) + slots


def _slot_size(head: int) -> int:
    return -(-(head * 3 // 2 + _SLOT.size) // 512) * 512


def _slot(sequence: int, head: bytes) -> bytes:
    return _SLOT.pack(sequence, len(head), crc32(head, sequence)) + head


def _layout(prologue: bytes, size: int) -> Layout:
    if len(prologue) < _PROLOGUE.size:
        raise DamagedFile("it ends within its prologue")
    magic, slot, body, table_crc, crc = _PROLOGUE.unpack(prologue[: _PROLOGUE.size])
    if magic != _MAGIC or crc != crc32(prologue[: _PROLOGUE.size - 4]) or slot > _MOST_SLOT:
        raise DamagedFile("its prologue is none")
    layout = Layout(slot, body, table_crc)
    if layout.size != size:
        raise DamagedFile(f"it has {size} bytes in place of {layout.size}")
    return layout


def _read_heads(descriptor: int) -> tuple[Layout, list[tuple[int, int, bytes]]]:
    start = os.pread(descriptor, _FIRST_READ, 0)
    layout = _layout(start, os.fstat(descriptor).st_size)
    if layout.body_at > len(start):
        start += _read_all(descriptor, layout.body_at - len(start), len(start))
    heads = []
    for number in (0, 1):
        position = _PROLOGUE.size + number * layout.slot
        sequence, length, crc = _SLOT.unpack_from(start, position)
        head = start[position + _SLOT.size : position + _SLOT.size + length]
        if sequence and len(head) == length <= layout.slot and crc32(head, sequence) == crc:
            heads.append((sequence, number, head))
    if not heads:
        raise DamagedFile("neither of its heads is whole")
    return layout, heads


def _read_all(descriptor: int, count: int, position: int) -> bytes:
    data = os.pread(descriptor, count, position)
    if len(data) != count:
        raise OSError(f"a stored file ends at byte {position + len(data)}, before byte {position + count}")
    return data
