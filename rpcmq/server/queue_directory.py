"""The directory of a queue server: whose it is, whether a server lives, and the pipe that its status comes by.

| file | what |
|---|---|
| ``router.lock`` | locked by the router for its life: nobody else starts a queue server here |
| ``server.lock`` | locked for the queue server's life, which can be longer than its router's |
| ``status`` | a named pipe, which the router's next life reads from, too |

Locks are those of ``flock``, which end with the last process that has the file open.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

__all__ = ["DirectoryInUse", "QueueDirectory"]


class DirectoryInUse(Exception):
    """Another router has the directory."""


class QueueDirectory:
    """The directory ``path``, which is made if it is not there.

    Raises:
        DirectoryInUse: another router has it; the text says which.
        OSError: it cannot be used.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, "queue.dir must be a directory, and this is none", path) from None
        file = self._open("router.lock", os.O_CREAT)
        if not _lock(file):
            pid = os.read(file, 20).decode(errors="replace").strip()
            os.close(file)
            raise DirectoryInUse(f"{path} is in use by another router (pid {pid or 'unknown'})")
        try:
            os.truncate(file, 0)
            os.write(file, b"%d\n" % os.getpid())
        except OSError:
            os.close(file)  # and with it the lock, which would keep the next attempt out
            raise
        self._claim = file

    def reserve(self) -> int | None:
        """Take the place of the queue server.

        Returns:
            A file for it to inherit, which is locked for as long as somebody has it open; None: one lives already.

        Raises:
            OSError: the directory cannot be used.
        """
        file = self._open("server.lock", os.O_CREAT)
        if _lock(file):
            return file
        os.close(file)
        return None

    def new_status(self) -> tuple[int, int]:
        """Make the pipe of a new queue server, whose writer never waits and never fails for want of a reader.

        Returns:
            The ends to read and to write.

        Raises:
            OSError: it cannot be made.
        """
        path = self.path / "status"
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        return self.open_status(), self.open_status()

    def open_status(self) -> int:
        """Open the pipe of the queue server that lives.

        Raises:
            OSError: there is none.
        """
        # Linux has a named pipe open both ways, so that it does not end with the other side.
        file = self._open("status", 0)
        if not stat.S_ISFIFO(os.fstat(file).st_mode):
            os.close(file)
            raise FileExistsError(errno.EEXIST, "is no pipe", str(self.path / "status"))
        return file

    def _open(self, name: str, flags: int) -> int:
        return os.open(self.path / name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)

    def close(self) -> None:
        """Leave the directory to other routers."""
        os.close(self._claim)


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
