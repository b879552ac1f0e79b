"""A spool in a directory, and chunks for it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rpcmq.core.router.dispatch_log import Chunk
from rpcmq.log_format import MARK, RECORD, NameKind, Problem, SpoolError, name_entry, read_spool
from rpcmq.server.spool import Spool
from rpcmq.testing import eventually
from rpcmq.wire import Kind, pack

__all__ = ["BOOT", "NAMES", "REQUEST", "Chunks", "Disk", "failing", "is_locked", "seqs_of"]


BOOT = 1_700_000_000_000
NAMES = name_entry(1, NameKind.TARGET, "", "compute", "", "", "reboot")
REQUEST = pack(Kind.REQUEST)


class Chunks:
    """Makes chunks as the engine does."""

    def __init__(self) -> None:
        self.segment = 1
        self.seq = 0
        self._is_new = True

    def next(self, records: int = 10, is_last: bool = False, is_final: bool = False) -> Chunk:
        numbers = range(self.seq + 1, self.seq + records + 1)
        self.seq += records
        packed = b"".join(
            RECORD.pack(REQUEST, n, 1.0, 1.0, 2.0, 1, 0, 0, 40, 0, 0xFFFFFFFF, 0, 0, 0, b"", 0, 0) for n in numbers
        )
        is_new, self._is_new = self._is_new, is_last
        names = (1, NAMES) if is_new else (0, b"")
        chunk = Chunk(self.segment, MARK.pack(2.0, self.seq, 0), *names, b"", packed, is_last, is_final)
        if is_last:
            self.segment += 1
        return chunk

    def refused(self) -> None:
        """Act as the engine does after a refusal."""
        self.segment += 1
        self._is_new = True


class Disk:
    """A spool in a directory, the chunks for it, and what is found there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.chunks = Chunks()
        self.spool = Spool(str(directory), 7, "r1", BOOT)

    def write(self, records: int = 10, **options: bool) -> bool:
        """As the engine writes, and waits until that is done."""
        taken = self.spool.write(self.chunks.next(records, **options))
        if not taken:
            self.chunks.refused()
        self.settle()
        return taken

    def settle(self) -> None:
        """Wait for the thread: everything given was written or dropped."""

        def is_done() -> bool:
            state = self.spool.statistics()
            return bool(state["records"] + state["dropped"] == self.chunks.seq and not state["waiting"])

        eventually(is_done)

    def close(self) -> None:
        self.spool.close(5)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.directory / "spool"))

    def seqs(self) -> list[int]:
        """Of the records in all files, as far as these can be read."""
        return [seq for path in sorted((self.directory / "spool").iterdir()) for seq in seqs_of(path)]


def seqs_of(path: Path) -> list[int]:
    found: list[int] = []
    try:
        found.extend(record.seq for record in read_spool(path))
    except SpoolError as error:
        assert error.problem is Problem.TRUNCATED
    return found


def is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def failing(number: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail
