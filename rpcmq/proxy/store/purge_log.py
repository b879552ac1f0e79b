"""The purges of a folder, which each process that shares it reads as they come."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from rpcmq.proxy.caching.purge import MalformedPurge, Purge
from rpcmq.proxy.store.recent_purges import RecentPurges

__all__ = ["PurgeLog"]

#: Purges, at most: beyond that a sweep has to remove what they are about.
_MOST = 4096


class PurgeLog:
    """The file of the purges at ``path``.

    Its first line has the time up to which purges were forgotten. A process that finds another file there reads all of
    it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        #: The file that was read, and the bytes of it that were.
        self._seen: tuple[int, int] = (0, 0)
        self._purges = RecentPurges(max_purges=_MOST)
        #: Purges that the disk has not taken, the latest ones.
        self._unwritten: dict[Purge, None] = {}
        self._news: deque[Purge] = deque(maxlen=_MOST)

    @property
    def unwritten(self) -> Sequence[Purge]:
        """The purges that count in this process, and that the disk has not taken."""
        return tuple(self._unwritten)

    def current(self) -> RecentPurges:
        """Return the purges that count now.

        Raises:
            OSError: the disk does not give them.
        """
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return self._purges
        if (status.st_ino, status.st_size) != self._seen:
            self._read()
        return self._purges

    def news(self) -> list[Purge]:
        """Return the purges that have come into the file since the last call.

        Raises:
            OSError: the disk does not give them.
        """
        self.current()
        found = list(self._news)
        self._news.clear()
        return found

    def add(self, purge: Purge) -> bool:
        """Add ``purge`` for all processes; return whether there are now so many that a sweep is due.

        Raises:
            OSError: the disk does not take it.
        """
        while True:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if (status := os.fstat(descriptor)).st_nlink:
                    _append(descriptor, json.dumps(purge.to_dict()).encode() + b"\n", status.st_size)
                    self._unwritten.pop(purge, None)
                    break
            finally:
                os.close(descriptor)
        return len(self.current()) >= _MOST // 2

    def remember(self, purge: Purge) -> None:
        """Have ``purge``, which the disk does not take, count in this process at least."""
        self._purges.add(purge)
        self._unwritten[purge] = None
        if len(self._unwritten) > _MOST:
            del self._unwritten[next(iter(self._unwritten))]

    def forget(self, purges: Iterable[Purge], tmp: Path) -> None:
        """Forget ``purges``, whose responses are all gone from the folder; ``tmp`` is a file to be used for it.

        Raises:
            OSError: the disk does not take it.
        """
        gone = set(purges)
        self._unwritten = {purge: None for purge in self._unwritten if purge not in gone}
        if not gone or not self._path.exists():
            return
        with open(self._path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not os.fstat(file.fileno()).st_nlink:
                return
            kept = [purge for purge in self.current() if purge not in gone]
            forgotten_at = max(self._purges.forgotten_at, *(purge.at for purge in gone))
            lines = [{"forgotten_at": forgotten_at}, *(purge.to_dict() for purge in kept)]
            tmp.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            os.rename(tmp, self._path)
            self._unwritten.clear()

    def _read(self) -> None:
        with open(self._path, "rb") as file:
            number = os.fstat(file.fileno()).st_ino
            before, (seen, start) = self._purges, self._seen
            if number != seen:
                self._purges, start = RecentPurges(self._unwritten, max_purges=_MOST), 0
            file.seek(start)
            data = file.read()
        self._seen = number, start + len(data)
        for line in data.splitlines():
            try:
                value = json.loads(line)
                if isinstance(value, dict) and "forgotten_at" in value:
                    self._purges.forgotten_at = float(value["forgotten_at"])
                    continue
                purge = Purge.from_dict(value)
                if purge not in before:
                    self._news.append(purge)
                self._purges.add(purge)
            except (ValueError, TypeError, MalformedPurge):
                # A line that was not written to its end: its writer has died, and was told by nobody that it is there.
                continue


def _append(descriptor: int, line: bytes, size: int) -> None:
    """Write all of ``line``, or nothing, to the file of ``size`` bytes.

    Raises:
        OSError: the disk does not take it.
    """
    if os.write(descriptor, line) < len(line):
        # Half a line would take the next one with it.
        os.ftruncate(descriptor, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
