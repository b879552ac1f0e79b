"""A body on its way into a file store."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

from rpcmq.proxy.caching.entry import StoredResponse
from rpcmq.proxy.store.contract import STEP_BYTES
from rpcmq.proxy.store.disk import Disk
from rpcmq.proxy.store.file_format import Layout, new_layout, whole_file, write_all, write_head
from rpcmq.proxy.store.folder import room_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FileWriter", "Owner"]

#: Attempts to write a block on a disk that others fill as fast as room is made.
_ATTEMPTS = 8


class Owner(Protocol):
    """The part of a file store that its writers call."""

    def reserve(self, size: int) -> bool:
        """Take ``size`` bytes of room, making some if need be; return whether there is so much."""

    def publish(self, entry: StoredResponse, tmp: Path) -> bool:
        """Put the whole file at ``tmp`` in its place; return whether it is there.

        Raises:
            OSError: the disk does not let it.
        """


class FileWriter:
    """Writes a body block by block into a file that nobody else knows.

    Args:
        owner: the store.
        disk: of the store.
        entry: the head.
        tmp: the path of the file.
        descriptor: of the file, which is empty.
    """

    def __init__(self, owner: Owner, disk: Disk, entry: StoredResponse, tmp: Path, descriptor: int) -> None:
        self._owner = owner
        self._disk = disk
        self._entry = entry
        self._tmp = tmp
        self._layout: Layout | None = None
        self._waiting: list[bytes] = []
        self._waiting_size = 0
        self._body = 0
        self._table = bytearray()
        self._room = 0
        self._descriptor = descriptor

    def write(self, chunk: bytes) -> bool:
        """Append ``chunk``."""
        return self._guarded(lambda: self._append(chunk))

    def commit(self) -> StoredResponse | None:
        """Make the body visible."""
        entry = self._entry.with_body_size(self._body + self._waiting_size)
        is_whole = self._entry.body_size in (-1, entry.body_size)
        if not is_whole or not self._guarded(lambda: self._finish(entry)):
            self.abort()
            return None
        return entry

    def abort(self) -> None:
        """Forget the body."""
        if self._descriptor < 0:
            return
        os.close(self._descriptor)
        self._descriptor = -1
        self._waiting.clear()
        try:
            os.unlink(self._tmp)
        except OSError as error:
            # The folder is gone, or another process has cleared it away.
            self._disk.failed(error)
        self._release()

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self.abort()

    def _guarded(self, step: Callable[[], bool]) -> bool:
        if self._descriptor < 0:
            return False
        try:
            if step():
                return True
        except OSError as error:
            # A disk that is full or fails: the body goes to the client only.
            self._disk.refused(error)
        self.abort()
        return False

    def _append(self, chunk: bytes) -> bool:
        self._waiting.append(chunk)
        self._waiting_size += len(chunk)
        if self._waiting_size < STEP_BYTES:
            return True
        data = b"".join(self._waiting)
        whole = len(data) - len(data) % STEP_BYTES
        for start in range(0, whole, STEP_BYTES):
            if not self._write_block(data[start : start + STEP_BYTES]):
                return False
        self._waiting = [data[whole:]] if whole < len(data) else []
        self._waiting_size = len(data) - whole
        return True

    def _write_block(self, block: bytes) -> bool:
        if self._layout is None:
            self._layout = new_layout(self._entry)
        position = self._layout.body_at + self._body
        if not self._reserve(position + len(block)):
            return False
        self._write(block, position)
        self._table += crc32(block).to_bytes(4)
        self._body += len(block)
        return True

    def _finish(self, entry: StoredResponse) -> bool:
        last = b"".join(self._waiting)
        self._waiting, self._waiting_size = [], 0
        is_written = (
            self._write_small(entry, last) if self._layout is None else self._write_end(self._layout, entry, last)
        )
        if not is_written or not self._owner.publish(entry, self._tmp):
            return False
        os.close(self._descriptor)
        self._descriptor = -1
        return True

    def _write_small(self, entry: StoredResponse, body: bytes) -> bool:
        data = whole_file(entry, body)
        if not self._reserve(len(data)):
            return False
        self._write(data, 0)
        return True

    def _write_end(self, layout: Layout, entry: StoredResponse, last: bytes) -> bool:
        if last and not self._write_block(last):
            return False
        layout = Layout(layout.slot, self._body, crc32(self._table))
        if not self._reserve(layout.size):
            return False
        self._write(bytes(self._table), layout.table_at)
        write_head(self._descriptor, layout, entry)
        return True

    def _write(self, data: bytes, position: int) -> None:
        for _ in range(_ATTEMPTS):
            try:
                write_all(self._descriptor, data, position)
                return
            except OSError as error:
                if not self._disk.push_out(error, len(data), self._room):
                    raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _reserve(self, size: int) -> bool:
        more = room_of(size) - self._room
        if more > 0:
            # It counts before it is there, and is given back where there is none.
            self._room += more
            return self._owner.reserve(more)
        return True

    def _release(self) -> None:
        room, self._room = self._room, 0
        if room:
            self._owner.reserve(-room)
