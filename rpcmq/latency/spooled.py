"""The files in the spool: whose they are, and whether their router is still writing them.

Anything may lie there. Only regular files are opened, and never waited for: a named pipe, a device or a symbolic link
is a foreign file like any other.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, NamedTuple

from rpcmq.latency.files import Unsuitable, open_regular, read_regular
from rpcmq.log_format import PART, Head, Problem, SpoolError, file_name, read_head

__all__ = ["MAX_BYTES", "QuarantineReason", "Reason", "SpoolFile", "quarantine_reason", "spooled_files"]

#: Of a spool file: more than 5 million records, the greatest ``dispatch_log.segment_records``, with their names.
MAX_BYTES = 2 << 30
#: Size of the prefix that must contain the head of a spool file.
_HEAD_BYTES = 1 << 16
#: Of what is no spool file: enough to know it again, however large it is.
_FOREIGN_BYTES = 16 << 20
_PIECE = 1 << 20


class Reason(StrEnum):
    """Reasons for quarantine, beside those of ``record.Problem``."""

    #: The system does not let us read it.
    UNREADABLE = "unreadable"
    #: Its records were shipped before.
    DUPLICATE = "duplicate"
    #: A segment has changed since it was written.
    DAMAGED = "damaged"


class QuarantineReason(NamedTuple):
    """The reason for setting a file aside: a word and a sentence."""

    reason: str
    text: str


@dataclass(frozen=True)
class SpoolFile:
    """A spool file with its head, or the reason why that cannot be read."""

    path: Path
    head: Head | None
    trouble: QuarantineReason | None = None
    #: The router that writes it is alive.
    is_open: bool = False

    @property
    def name(self) -> str:
        """The name of its segment."""
        return file_name(self.head.router_id, self.head.boot, self.head.segment) if self.head else self.path.name

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key: lives of a router in order, and the files of each in order."""
        return (self.head.router_id, self.head.boot, self.head.segment) if self.head else (0, 0, 0)

    @property
    def life(self) -> tuple[int, int] | str:
        """The unit within which files must be settled in order: a life of a router, or the file alone."""
        return self.order[:2] if self.head else self.path.name

    def content(self) -> tuple[bytes, int]:
        """Its bytes and their checksum. Of what is no spool file there are no bytes, and the checksum of its beginning.

        Raises:
            OSError: it cannot be read.
        """
        if self.head is not None:
            data = read_regular(self.path, MAX_BYTES)
            return data, zlib.crc32(data)
        crc32 = left = 0
        with open_regular(self.path) as file:
            left = min(os.fstat(file.fileno()).st_size, _FOREIGN_BYTES)
            while left > 0 and (piece := file.read(min(left, _PIECE))):
                crc32 = zlib.crc32(piece, crc32)
                left -= len(piece)
        return b"", crc32


def spooled_files(directory: Path) -> Iterator[SpoolFile]:
    """Iterate over the files in the spool ``directory``, except those a running router has only begun."""
    for path in sorted(directory.glob("[!.]*")):
        try:
            with open_regular(path) as file:
                is_open = path.suffix == PART and _has_writer(file, path)
                data = file.read(_HEAD_BYTES)
        except FileNotFoundError:
            continue  # just sealed, and so renamed
        except OSError as error:
            # Whether a router is still writing what cannot be opened cannot be known.
            is_open = path.suffix == PART and not isinstance(error, Unsuitable)
            yield SpoolFile(path, None, quarantine_reason(error), is_open)
            continue
        try:
            yield SpoolFile(path, read_head(data), is_open=is_open)
        except SpoolError as error:
            if not is_open:
                yield SpoolFile(path, None, QuarantineReason(error.problem, str(error)))


def quarantine_reason(error: OSError) -> QuarantineReason:
    """Return the reason for setting aside a file that could not be read."""
    if isinstance(error, Unsuitable):
        return QuarantineReason(Problem.FOREIGN, str(error.strerror))
    return QuarantineReason(Reason.UNREADABLE, f"cannot be read: {error.strerror}")


def _has_writer(file: BinaryIO, path: Path) -> bool:
    """Return whether the router that made this file is alive.

    Raises:
        FileNotFoundError: it is gone, or was renamed.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    # It may have been sealed, and renamed, since it was opened.
    os.stat(path)
    return False
