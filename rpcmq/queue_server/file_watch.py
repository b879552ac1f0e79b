"""The files of a store, which somebody may remove, or replace by others, while they are in use."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import gevent

from rpcmq.server.log import log_event

__all__ = ["FileWatch"]

log = logging.getLogger("rpcmq.queue")

#: Seconds between two looks.
_LOOK = 1.0
#: Bytes that a disk has left for whatever else is written while a log is copied into the file.
_SPARE = 16 << 20


class _Found(NamedTuple):
    """The files as one look has found them: device and inode of each; None: nobody finds it under its name."""

    file: tuple[int, int] | None
    log: tuple[int, int] | None
    #: Bytes of the log, and those that are free on its disk.
    log_bytes: int
    free_bytes: int


class FileWatch:
    """Looks whether a store's files are still those that were opened, from :meth:`opened` to :meth:`close`.

    What is written into a file that has no name any more is gone when the last process closes it. Of the write-ahead
    log a process that closes the store in order copies it into the file before.

    Args:
        file: None: there is none to look at. The log is beside it.
        renew: closes the store in order, and opens it again: called where the log alone has gone.

    Attributes:
        lost: the reason for which nothing more is to be put, for people to read; empty: nothing is the matter.
    """

    def __init__(self, file: Path | None, renew: Callable[[], object]) -> None:
        self._file = file
        self._renew = renew
        self._known: _Found | None = None
        self.lost = ""
        self._looking: gevent.Greenlet[..., None] | None = None

    def opened(self) -> None:
        """Take note of the files that have the names now: a process has just opened them."""
        self.close()
        self._known, self.lost = None, ""
        if self._file is not None:
            self._looking = gevent.spawn(self._run, self._file)

    def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.kill()

    def _run(self, file: Path) -> None:
        while True:
            # A disk that does not answer keeps a thread, and not the loop.
            found = gevent.get_hub().threadpool.apply(_look, (file,))
            if found is not None and self._compare(found):
                self._renew()
                return
            gevent.sleep(_LOOK)

    def _compare(self, found: _Found) -> bool:
        """Take note of ``found``; return whether the store is to be opened anew."""
        known = self._known
        if known is None:
            known = found
        lost, is_renewed = "", False
        if found.file is None or found.file != known.file:
            lost = (
                f"its file {self._file} {_how(found.file)} while it is in use, and what it has is lost when the queue "
                "server ends: nothing more is put; let workers end what is there, and then stop the router"
            )
        elif found.log != known.log:
            is_renewed = found.free_bytes >= known.log_bytes + _SPARE
            lost = f"the write-ahead log {self._file}-wal {_how(found.log)} while it is in use: " + (
                "the store is closed, which copies what the log has into the file, and opened again"
                if is_renewed
                else "nothing more is put until the disk has room to copy what it has into the file, "
                f"{known.log_bytes + _SPARE} bytes; it is lost if the queue server ends before"
            )
        else:
            known = found  # the log has grown
        self._known = known
        if lost and not self.lost:
            log_event(log, logging.ERROR, "store file lost", f"queue store: {lost}", file=str(self._file))
        # Whoever puts waits for a store that is opened again, as for any that fails for a moment.
        self.lost = "" if is_renewed else lost
        return is_renewed


def _how(found: tuple[int, int] | None) -> str:
    return "was removed" if found is None else "was replaced by another one"


def _look(file: Path) -> _Found | None:
    """The files as they are; None: that cannot be found out now."""
    try:
        place, _ = _identity(file)
        # SQLite has it beside the file itself, where the name is a link to that.
        log_place, log_bytes = _identity(Path(f"{os.path.realpath(file)}-wal"))
    except OSError:
        return None
    return _Found(place, log_place, log_bytes, _free_bytes(file.parent))


def _free_bytes(folder: Path) -> int:
    try:
        room = os.statvfs(folder)
    except OSError:
        return 0  # it may have gone with its files
    return room.f_bavail * room.f_frsize


def _identity(file: Path) -> tuple[tuple[int, int] | None, int]:
    """Device and inode of ``file``, or None if nobody finds it under its name; and its bytes."""
    try:
        found = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None, 0
    return (found.st_dev, found.st_ino), found.st_size
