"""The write-ahead log of a SQLite file, as a process that was killed has left it: looked at, and written again.

SQLite takes the log up to the first frame that is not whole, for there a power cut may have torn what was not synced
yet. It does the same where the disk has changed what was synced, and then all commits that follow are lost in silence.
"""

from __future__ import annotations

import logging

import apsw

from rpcmq.store.log_checksums import FRAME_HEAD, HEAD, Frame, LogHead
from rpcmq.store.page_checksums import CHECKSUM_BYTES

__all__ = ["Log"]

log = logging.getLogger("rpcmq.queue")

#: SQLite writes less than 128 KiB at a time.
_CHUNK_BYTES = 64 << 10


class Log:
    """The log of a connection to which nobody else writes, and which has just taken it.

    Args:
        vfs: of the file; empty: that of the system.
    """

    def __init__(self, connection: apsw.Connection, page_bytes: int, vfs: str) -> None:
        self._connection = connection
        self._page_bytes = page_bytes
        self._frame_bytes = FRAME_HEAD + page_bytes
        #: Frames that SQLite has taken.
        self._taken = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]
        # Of the file that a link leads to, the log stands beside that.
        flags = [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE, 0]
        self._file = apsw.VFSFile(vfs, connection.filename_wal, flags)
        self._count = max(self._file.xFileSize() - HEAD, 0) // self._frame_bytes
        self._head = LogHead(self._file.xRead(HEAD, 0) if self._count else bytes(HEAD))

    def close(self) -> None:
        """Let go of the file."""
        self._file.xClose()

    def damage(self) -> str:
        """The part of it that the disk has changed, so that commits are lost; empty: none is known to be.

        Of the last commit nobody can say whether the disk has changed it, or it was never synced. That is told.
        """
        if not self._count:
            return ""
        if not self._head.is_right:
            # Else the power went off when it was begun anew.
            return "head" if self._has_more_than_file() else ""
        if self._taken == self._count:
            return ""
        before = self._frame(self._taken - 1).sums if self._taken else self._head.sums
        # Of a commit that is not whole: the first frame that is wrong, and those that are right.
        wrong, right = 0, list[int]()
        is_over = False
        for at in range(self._taken, self._count):
            frame = self._frame(at)
            if frame.is_of_log and is_over:
                return f"frame {wrong}"  # another commit follows, which was begun once this one was synced
            if frame.is_right(before):
                right.append(at)
            else:
                wrong = wrong or at + 1
            if frame.is_of_log:
                before, is_over = frame.sums, frame.ends_commit
        if is_over and right and not any(self._is_news(self._frame(at)) for at in right):
            return f"frame {wrong}"  # it is in the file, where it came once it was synced
        if is_over:
            self._tell_of_last_commit()
        return ""

    def write_again(self) -> None:
        """Write what SQLite has taken where it is, cut off what it has not, and sync it.

        After a sync that failed, also one of an earlier process, Linux goes on to show what is not on the disk, and
        never writes it: it would be lost in a power cut, and with it all that is appended to it and was accepted.
        """
        size = self._file.xFileSize()
        if self._count:
            # Left over from a commit that failed, or from before a head that the power cut has torn, and whose salts
            # SQLite takes, it would look like a commit that was lost.
            size = min(size, HEAD + self._taken * self._frame_bytes) if self._head.is_right else 0
            self._file.xTruncate(size)
        for offset in range(0, size, _CHUNK_BYTES):
            self._file.xWrite(self._file.xRead(min(_CHUNK_BYTES, size - offset), offset), offset)
        self._file.xSync(apsw.SQLITE_SYNC_NORMAL)

    def _tell_of_last_commit(self) -> None:
        log.warning(
            "queue store %s: the last commit in its write-ahead log is not whole, and is left out: it was under way "
            "when the power went off or the process was killed, or the disk has changed it since",
            self._connection.filename,
        )

    def _frame(self, at: int) -> Frame:
        return Frame(self._head, self._file.xRead(self._frame_bytes, HEAD + at * self._frame_bytes))

    def _has_more_than_file(self) -> bool:
        """Return whether a page of a commit in the log is not in the file."""
        salts = self._frame(0).salts
        pages: dict[int, Frame] = {}
        commit: dict[int, Frame] = {}
        for frame in map(self._frame, range(self._count)):
            if frame.salts != salts:
                break
            commit[frame.number] = frame
            if frame.ends_commit:
                pages |= commit
                commit.clear()
        return any(map(self._is_news, pages.values()))

    def _is_news(self, frame: Frame) -> bool:
        """Return whether the file has another page in its place."""
        offset = (frame.number - 1) * self._page_bytes
        try:
            page = self._connection.read("main", 0, offset, self._page_bytes)[1]
        except apsw.CorruptError:
            return True  # the power went off when an earlier commit was copied there; the log still has that one
        return frame.page[:-CHECKSUM_BYTES] != page[:-CHECKSUM_BYTES]
