"""The pages of a SQLite file, each with a checksum: SQLite has none, and would take whatever the disk gives.

A file system for SQLite (VFS) over another one. It adds the checksum where a page is written into the file, in the
bytes that SQLite reserves at the end of each, and looks at it where one is read. A page in which one bit was flipped is
given as it was written; one of which more is wrong is an error, and nothing of it is used. Files that were made without
these bytes are read and written as they are. The write-ahead log has checksums of its own.
"""

from __future__ import annotations

import logging
from itertools import count

import apsw

from rpcmq.store.page_checksums import CHECKSUM_BYTES, is_sealed, mended, sealed

__all__ = ["PAGE_BYTES", "CheckedPages"]

log = logging.getLogger("rpcmq.queue")

PAGE_BYTES = 8192
#: The first page begins with it, and has the number of reserved bytes at this place.
_MAGIC, _RESERVED_AT = b"SQLite format 3\0", 20
_names = count(1)


class CheckedPages(apsw.VFS):
    """Files over those of the VFS ``base``; empty: over those of the system.

    Attributes:
        name: for SQLite. There is one for each connection, which keeps it.
    """

    def __init__(self, base: str) -> None:
        self.name = f"rpcmq-pages-{next(_names)}"
        self._base = base
        super().__init__(self.name, base)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        """Open the database, whose pages have checksums, or what stands beside it."""
        kind = _Database if flags[0] & apsw.SQLITE_OPEN_MAIN_DB else apsw.VFSFile
        return kind(self._base, name, flags)


class _Database(apsw.VFSFile):
    """The file of the database."""

    def __init__(self, base: str, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__(base, name, flags)
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else name
        #: Whether its pages have checksums; None: nobody has looked.
        self._is_checked: bool | None = None
        self._told: set[int] = set()

    def xRead(self, amount: int, offset: int) -> bytes:
        """Read a page, or a part of one: SQLite reads no more at a time."""
        if self._is_checked is None:
            self._is_checked = _has_checksums(super().xRead(PAGE_BYTES, 0))
        if not self._is_checked:
            return super().xRead(amount, offset)
        number, begin = offset // PAGE_BYTES + 1, offset % PAGE_BYTES
        page = super().xRead(PAGE_BYTES, offset - begin)
        if len(page) == PAGE_BYTES:
            right = self._right(page, number)
            # The head of the first one is read before the log is, which may have a whole page in its place.
            if not right and (number > 1 or amount == PAGE_BYTES):
                raise apsw.CorruptError(f"its page {number} is not what was written")
            page = right or page
        return page[begin : begin + amount]

    def xWrite(self, data: bytes, offset: int) -> None:
        """Write a page."""
        if offset == 0:
            self._is_checked = data[_RESERVED_AT] == CHECKSUM_BYTES
        super().xWrite(sealed(data, offset // PAGE_BYTES + 1) if self._is_checked else data, offset)

    def _right(self, page: bytes, number: int) -> bytes:
        """The page as it was written; empty: that is not known."""
        if is_sealed(page, number):
            return page
        right = mended(page, number)
        if right and number not in self._told:
            self._told.add(number)
            log.warning(
                "queue store %s: a bit of its page %d was flipped, and is put right: look at the disk and the memory",
                self._name, number,
            )  # fmt: skip
        return right


def _has_checksums(first: bytes) -> bool:
    """Return whether the file has checksums, of which this is the first page; one bit of it may be wrong."""
    if len(first) < PAGE_BYTES:
        return False
    right = first if is_sealed(first, 1) else mended(first, 1) or first
    return right.startswith(_MAGIC) and right[_RESERVED_AT] == CHECKSUM_BYTES
