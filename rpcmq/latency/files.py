"""Atomic writes of files, and safe reads of files that others may have put there."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from rpcmq.log_format import LOG_MODE

__all__ = [
    "LOG_MODE",
    "Unsuitable",
    "move",
    "open_log_file",
    "open_regular",
    "read_regular",
    "remove",
    "size_of",
    "sync",
    "write_whole",
]

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Unsuitable(OSError):
    """The name is not that of a regular file, or the file is larger than it may be."""


def open_log_file(path: Path | str, flags: int) -> int:
    """Open a file of a dispatch log; one that this makes has ``LOG_MODE``.

    Raises:
        OSError: it cannot be opened.
    """
    is_new = not os.path.lexists(path)
    fd = os.open(path, flags | os.O_CLOEXEC, LOG_MODE)
    if is_new:
        os.fchmod(fd, LOG_MODE)  # whatever the umask is
    return fd


def open_regular(path: Path, *, follow: bool = False) -> BinaryIO:
    """Open the file ``path`` for reading, without waiting for anybody: a pipe or a device is never read.

    Args:
        follow: whether it may be a symbolic link to a file.

    Raises:
        Unsuitable: it is no regular file.
        OSError: it cannot be opened.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    try:
        fd = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise Unsuitable(errno.ELOOP, "is a symbolic link, not a regular file", str(path)) from None
        if error.errno == errno.ENXIO:  # a socket; a device that is not there
            raise Unsuitable(errno.ENXIO, "is a socket or a device, not a regular file", str(path)) from None
        raise
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise Unsuitable(errno.EINVAL, f"is {kind}, not a regular file", str(path))
    return open(fd, "rb")


def read_regular(path: Path, most: int, *, follow: bool = False) -> bytes:
    """Return the content of the file ``path``, which has at most ``most`` bytes.

    Raises:
        Unsuitable: it is no regular file, or has more.
        OSError: it cannot be read.
    """
    with open_regular(path, follow=follow) as file:
        size = os.fstat(file.fileno()).st_size
        # Too large files are not read at all. To ask for ``most`` would allocate as much, however small the file is.
        content = file.read(size + 1) if size <= most else b""
        if len(content) > size:  # it grows while being read
            content += file.read(most + 1 - len(content))
    if max(size, len(content)) > most:
        raise Unsuitable(errno.EFBIG, f"has {max(size, len(content))} bytes, more than {most}", str(path))
    return content


def write_whole(path: Path, fill: Callable[[Path], object] | bytes, mode: int | None = None) -> None:
    """Make or replace the file ``path`` atomically.

    It is written under another name, one with a dot in front, which readers of a directory pass over.

    Args:
        fill: the content, or what writes it to the path that it is given.
        mode: of the file from its beginning, whatever the umask is; None: as the umask has it.

    Raises:
        OSError: it was not written; nothing is left of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}")
    try:
        if mode is not None:
            fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
            try:
                os.fchmod(fd, mode)  # whatever the umask is
            finally:
                os.close(fd)
        if isinstance(fill, bytes):
            partial.write_bytes(fill)
        else:
            fill(partial)
        sync(partial)
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Sync the file or directory ``path`` to disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def move(path: Path, into: Path) -> Path:
    """Move a file to the directory ``into``, replacing one of the same name; return its new path."""
    into.mkdir(parents=True, exist_ok=True)
    target = into / path.name
    path.replace(target)
    sync(into)
    return target


def remove(path: Path) -> None:
    """Remove a file, which may be gone already."""
    path.unlink(missing_ok=True)


def size_of(path: Path) -> int:
    """Bytes of a file; 0 if it is gone."""
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0
