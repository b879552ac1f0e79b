"""The pages of a damaged file, and those that its write-ahead log has in their place. Nothing is written to them."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct

from rpcmq.store.contract import StoreError
from rpcmq.store.log_checksums import FRAME_HEAD, HEAD, Frame, LogHead, Sums
from rpcmq.store.page_checksums import CHECKSUM_BYTES, is_sealed, mended
from rpcmq.store.sqlite_pages import PAGE_BYTES

__all__ = ["Pages", "not_in_use"]

#: SQLite's locks are on these bytes of a file: whoever reads has some of them, whoever writes, or holds it, all.
_SHARED_LOCKS, _SHARED_COUNT = 0x40000002, 510
_MAGIC, _RESERVED_AT, _VERSION_AT, _APPLICATION_AT = b"SQLite format 3\0", 20, 60, 68
_APPLICATION = b"rpmq"
#: The head of a log: its magic, which tells the order of bytes, and its salts.
_LOG_HEAD, _MAGIC_OF_LOG = Struct(">I12s8s8s"), 0x377F0682
#: Pages of which some must have a checksum, where the first one does not tell whether they have.
_SAMPLE = 64


@contextmanager
def not_in_use(path: Path) -> Iterator[int]:
    """Hold the file open for reading, so that no store opens it meanwhile; give its descriptor.

    Raises:
        StoreError: a store has it open.
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, _SHARED_COUNT, _SHARED_LOCKS)
        except BlockingIOError:
            raise StoreError(f"queue store {path}: another process has it open: stop its router first") from None
        yield descriptor
    finally:
        os.close(descriptor)


class Pages:
    """The pages as they were after the last commit that can be read.

    Args:
        descriptor: of the file.
        log_path: of its write-ahead log, which need not be there.

    Attributes:
        count: number of the last page.
        is_checked: whether they have checksums.
        unreadable: those of which more than a bit is wrong, or that the file has not.
        mended: those of which a bit was put right.
        lost_frames: pages of the log that are damaged, before a commit that is whole.
        is_last_commit_left_out: whether the last commit of the log is not whole.
        changed_since: pages that the log has from the first damaged commit on. Of the others that is known which was
            before it.
    """

    def __init__(self, descriptor: int, log_path: Path) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self.unreadable: set[int] = set()
        self.mended: set[int] = set()
        self.is_checked = True
        first = self._in_file(1)
        self.is_checked = first[_RESERVED_AT] == CHECKSUM_BYTES if first else self._has_checksums()
        if not self.is_checked:
            self.unreadable.clear()
        self.lost_frames = 0
        self.is_last_commit_left_out = False
        #: Page -> where it stands in the log: up to the first damaged commit, and after it.
        self._before: dict[int, int] = {}
        self.changed_since: dict[int, int] = {}
        self._log = -1
        try:
            self._log = os.open(log_path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            pass  # it was closed in order
        else:
            self._read_log()
        self.count = max(-(-self._size // PAGE_BYTES), *self._before, *self.changed_since, 1)

    def close(self) -> None:
        """Let go of the log."""
        if self._log >= 0:
            os.close(self._log)

    @property
    def usable(self) -> int:
        """Bytes of a page that SQLite uses."""
        return PAGE_BYTES - CHECKSUM_BYTES * self.is_checked

    @property
    def version(self) -> int:
        """The version of the store; 0: not known, because the first page is damaged.

        Raises:
            StoreError: it is no store.
        """
        first = self.read(1)
        if not first and self.is_checked:
            return 0
        if not first.startswith(_MAGIC) or first[_APPLICATION_AT : _APPLICATION_AT + 4] != _APPLICATION:
            raise StoreError("it is no store of queue items, or not enough of it is left")
        return int.from_bytes(first[_VERSION_AT : _VERSION_AT + 4])

    def read(self, number: int, *, is_before: bool = False) -> bytes:
        """A page; empty: it cannot be read.

        Args:
            is_before: as it was before the first damaged commit of the log.
        """
        at = None if is_before else self.changed_since.get(number)
        at = self._before.get(number) if at is None else at
        return self._in_file(number) if at is None else os.pread(self._log, PAGE_BYTES, at + FRAME_HEAD)

    def _in_file(self, number: int) -> bytes:
        page = os.pread(self._descriptor, PAGE_BYTES, (number - 1) * PAGE_BYTES)
        if len(page) == PAGE_BYTES:
            if not self.is_checked or is_sealed(page, number):
                return page
            # A disk's hole is all zeros, and need not be searched for one bit.
            right = mended(page, number) if any(page) else b""
            if right:
                self.mended.add(number)
                return right
        self.unreadable.add(number)
        return b""

    def _has_checksums(self) -> bool:
        pages = range(2, _SAMPLE)
        raw = (os.pread(self._descriptor, PAGE_BYTES, (number - 1) * PAGE_BYTES) for number in pages)
        return any(len(page) == PAGE_BYTES and is_sealed(page, number) for number, page in zip(pages, raw, strict=True))

    # --- the log -----------------------------------------------------------------------------

    def _read_log(self) -> None:
        frame_bytes = FRAME_HEAD + PAGE_BYTES
        size = max(os.fstat(self._log).st_size - HEAD, 0)
        count = size // frame_bytes
        if not count:
            return
        head = self._log_head()
        right: dict[int, Frame] = {}
        wrong: list[int] = []
        last_of_log = -1
        before: Sums | None = head.sums if head.is_right else None
        for at in range(count):
            frame = Frame(head, os.pread(self._log, frame_bytes, HEAD + at * frame_bytes))
            if before is not None and frame.is_right(before):
                right[at] = frame
            else:
                wrong.append(at)
            before = frame.sums if frame.is_of_log else None
            last_of_log = at if frame.is_of_log else last_of_log
        commits = [at for at, frame in right.items() if frame.ends_commit]
        # What follows the last one was never committed, or is from before the log was begun anew.
        ends = commits[-1] if commits else -1
        self.is_last_commit_left_out = last_of_log > ends or bool(size % frame_bytes)
        wrong = [at for at in wrong if at < ends]
        if wrong and wrong[0] > max(commits[:-1], default=-1):
            # It may never have been synced, and then it was not confirmed: the store leaves it out, too.
            self.is_last_commit_left_out = True
            commits.pop()
            wrong.clear()
        self.lost_frames = len(wrong)
        cut = max((at for at in commits if not wrong or at < wrong[0]), default=-1)
        for at, frame in right.items():
            if commits and at <= commits[-1]:
                pages = self._before if at <= cut else self.changed_since
                pages[frame.number] = HEAD + at * frame_bytes

    def _log_head(self) -> LogHead:
        """The head of the log; where it is damaged, with the salts of the first frames, if these are the same."""
        raw = os.pread(self._log, HEAD, 0)
        head = LogHead(raw)
        if not head.is_right:
            frame_bytes = FRAME_HEAD + PAGE_BYTES
            salts = [os.pread(self._log, 8, HEAD + at * frame_bytes + 8) for at in range(2)]
            if salts[0] == salts[1]:
                head = LogHead(_LOG_HEAD.pack(_MAGIC_OF_LOG | (sys.byteorder == "big"), b"", salts[0], b""))
        return head
