"""The file of a store, which somebody may remove, or replace by another one, while it is in use."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import gevent

from rpcmq.server.log import log_event

__all__ = ["FileWatch"]

log = logging.getLogger("rpcmq.queue")

#: Seconds between two looks.
_LOOK = 1.0
#: In place of what a file is, where that cannot be told: its folder may not be entered, or the disk fails.
_UNKNOWN = (0, 0)


class FileWatch:
    """Looks whether ``file`` is still the one that was opened, from :meth:`opened` to :meth:`close`.

    What is written into a file that has no name any more is gone when the last process closes it.

    Args:
        file: None: there is none to look at.

    Attributes:
        lost: the reason for which nothing more is to be put, for people to read; empty: nothing is the matter.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._known: tuple[int, int] | None = None
        self.lost = ""
        self._looking: gevent.Greenlet[..., None] | None = None

    def opened(self) -> None:
        """Take note of the file that has the name now: a process has just opened it."""
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
            found = gevent.get_hub().threadpool.apply(_identity, (file,))
            if found != _UNKNOWN:
                self._compare(found)
            gevent.sleep(_LOOK)

    def _compare(self, found: tuple[int, int] | None) -> None:
        if self._known is None:
            self._known = found
        lost = ""
        if found is None or found != self._known:
            how = "was removed" if found is None else "was replaced by another one"
            lost = (
                f"its file {self._file} {how} while it is in use, and what it has is lost when the queue server ends: "
                "nothing more is put; let workers end what is there, and then stop the router"
            )
        if lost and not self.lost:
            log_event(log, logging.ERROR, "store file lost", f"queue store: {lost}", file=str(self._file))
        self.lost = lost


def _identity(file: Path) -> tuple[int, int] | None:
    """Return what no other file has that is there at the same time; None: there is none of that name."""
    try:
        found = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return _UNKNOWN
    return found.st_dev, found.st_ino
