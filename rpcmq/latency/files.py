"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

__all__ = ["move", "remove", "size_of", "sync", "write_whole"]


def write_whole(path: Path, fill: Callable[[Path], object] | bytes) -> None:
    """Make or replace the file ``path``: whoever looks sees all of it or what was there before.

    It is written under another name, one with a dot in front, which readers of a directory pass over.

    Args:
        fill: the content, or what writes it to the path that it is given.

    Raises:
        OSError: it was not written; nothing is left of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}")
    try:
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
    """Have what is in the file or directory ``path`` on the disk before this returns."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def move(path: Path, into: Path) -> Path:
    """Move a file to the directory ``into``; what has its name there is replaced. Returns where it is."""
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
        return path.stat().st_size
    except FileNotFoundError:
        return 0
