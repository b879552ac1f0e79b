"""The folder of a file store: places of its files, and the room that they take, for all processes that share it.

::

    FOLDER/ab/cd/0123...-VARIANT    a stored response; abcd0123... is the digest of its key
    FOLDER/ab/cd/.NAME              a body that is still being written, beside its place: a file system keeps the files
    that are
                                    made in one folder together, and is slow where they are many
    FOLDER/usage                    bytes and number of all files, changed under a lock
    FOLDER/purges                   purges, a line of JSON each
    FOLDER/maintenance              locked by the process that maintains the folder; its time is that of the last sweep
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

__all__ = ["PAGE", "PLAIN", "Folder", "files_in", "is_branch", "is_stored", "is_unfinished", "room_of"]

PAGE = 4096
"""Bytes in which a disk gives room."""

PLAIN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags to open a stored response: no link is followed, and nobody waits for the other end of a pipe."""

#: Attempts to make a file in a folder that others remove.
_ATTEMPTS = 10
_USAGE = struct.Struct(">qq")
_BRANCH = re.compile(r"[0-9a-f]{2}")
_STORED = re.compile(r"[0-9a-f]{36}-[0-9A-Za-z]+")
_UNFINISHED = re.compile(r"\.[0-9]+-[0-9a-f]+-[0-9]+")


def room_of(size: int) -> int:
    """Return the bytes of the disk that a file of ``size`` bytes takes."""
    return -(-size // PAGE) * PAGE


def is_branch(name: str) -> bool:
    """Return whether a folder of that name is one for stored responses: whatever else is there is left alone."""
    return _BRANCH.fullmatch(name) is not None


def is_stored(name: str) -> bool:
    """Return whether a file of that name is a stored response."""
    return _STORED.fullmatch(name) is not None


def is_unfinished(name: str) -> bool:
    """Return whether a file of that name is a body that is still being written."""
    return _UNFINISHED.fullmatch(name) is not None


class Folder:
    """The folder at ``path``, which is made where it is missing.

    Raises:
        OSError: it cannot be made, or written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.purges = self.path / "purges"
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.stat(self.path).st_mode & stat.S_IWOTH:
            # Anybody could have responses of their own served, or have links followed.
            raise OSError(errno.EPERM, "everybody may write there; have it written by its owner only (chmod 700)")
        self._usage = os.open(self.path / "usage", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._maintenance = os.open(self.path / "maintenance", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._numbers = 0

    def place(self, key: str, variant: str) -> Path:
        """Return the path of a stored response."""
        folder, digest = self._place(key)
        return Path(f"{folder}/{digest}-{variant}")

    def places(self, key: str) -> list[Path]:
        """Return the paths of all stored responses of ``key``, in no order.

        Raises:
            OSError: the disk does not give them.
        """
        folder, digest = self._place(key)
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return []
        return [Path(f"{folder}/{name}") for name in names if name.startswith(digest)]

    def create(self, place: Path) -> tuple[Path, int]:
        """Create a file beside ``place`` that no other process uses; return its path, and its descriptor for writing.

        Raises:
            OSError: the disk does not let it.
        """
        path = self.beside(place)
        for _ in range(_ATTEMPTS):
            try:
                return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                # It is the first one there, or another process has just removed the folder, which was empty.
                os.makedirs(place.parent, mode=0o700, exist_ok=True)
        raise OSError(f"{place.parent} is removed again and again")

    def beside(self, place: Path) -> Path:
        """Return a path beside ``place`` that no other process uses."""
        self._numbers += 1
        return place.parent / f".{os.getpid()}-{id(self):x}-{self._numbers}"

    def unlink(self, path: str | Path) -> int | None:
        """Remove a stored response, and its folder where that is empty then; return the bytes that all take now.

        None: it was not there.

        Raises:
            OSError: the disk does not let it.
        """
        try:
            size = os.stat(path).st_size
            os.unlink(path)
        except FileNotFoundError:
            return None
        used = self.account(-room_of(size), -1)
        try:
            # Who makes room looks for files in some folders only: those without any are to be few.
            os.rmdir(os.path.dirname(path))
        except OSError:
            # It is not empty, or has just been removed.
            return used
        return used

    def leaves(self) -> Iterator[Path]:
        """Yield the folders that may have stored responses."""
        for outer in _folders(self.path):
            yield from _folders(outer)

    def usage(self) -> tuple[int, int]:
        """Return the bytes that all files take, those being written included, and the number of stored responses."""
        data = os.pread(self._usage, _USAGE.size, 0)
        size, entries = _USAGE.unpack(data) if len(data) == _USAGE.size else (0, 0)
        return max(0, size), max(0, entries)

    def account(self, size: int, entries: int = 0) -> int:
        """Add to the bytes and the number of files, both of which may be less than 0; return the bytes that all
        take.
        """
        with _locked(self._usage):
            old_size, old_entries = self.usage()
            new = max(0, old_size + size), max(0, old_entries + entries)
            os.pwrite(self._usage, _USAGE.pack(*new), 0)
        return new[0]

    @contextmanager
    def maintained(self) -> Iterator[bool]:
        """Hold the maintenance of the folder, if no other process does; give whether it is held."""
        try:
            fcntl.flock(self._maintenance, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(self._maintenance, fcntl.LOCK_UN)

    @property
    def swept_at(self) -> float:
        """Time of the last sweep, of the wall clock; 0: none."""
        status = os.fstat(self._maintenance)
        return status.st_mtime if status.st_size else 0.0

    @swept_at.setter
    def swept_at(self, now: float) -> None:
        os.pwrite(self._maintenance, b"swept\n", 0)
        os.utime(self._maintenance, (now, now))

    def close(self) -> None:
        """Let go of the folder. May be called again."""
        for descriptor in (self._usage, self._maintenance):
            if descriptor >= 0:
                os.close(descriptor)
        self._usage = self._maintenance = -1

    def _place(self, key: str) -> tuple[str, str]:
        digest = blake2b(key.encode(errors="surrogatepass"), digest_size=20).hexdigest()
        return f"{self.path}/{digest[:2]}/{digest[2:4]}", digest[4:]


@contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def files_in(path: Path) -> list[Path]:
    """Return all that is in the folder at ``path``; nothing where it has just been removed."""
    try:
        with os.scandir(path) as entries:
            return [Path(entry.path) for entry in entries]
    except FileNotFoundError:
        return []


def _folders(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return [Path(e.path) for e in entries if is_branch(e.name) and e.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
