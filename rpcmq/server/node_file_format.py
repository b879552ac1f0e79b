"""The format of a plugged-in node's file.

Its first line is ``rpcmq-node-file``, the version of the format, the name of the node, and a digest of that and of the
rows; then comes one line for each row. A later version of the format has another number, and is left alone.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from hashlib import blake2b

from rpcmq.nodes.keeper import Keeper

__all__ = ["DamagedNodeFile", "RefusedNodeFile", "content_of", "load", "lock_of", "next_of"]

_MAGIC, _VERSION = b"rpcmq-node-file", 1
#: Bytes of the file beside its rows.
_MAX_HEADER = 1_000


class RefusedNodeFile(Exception):
    """A file that this router must leave as it is; the text names it."""


class DamagedNodeFile(Exception):
    """A file whose content makes no sense; the text says why."""


def lock_of(path: str) -> str:
    """The path of the lock beside the file ``path``."""
    return f"{path}.lock"


def next_of(path: str) -> str:
    """The path at which the next content of the file ``path`` is written, before it is put in its place."""
    return f"{path}.new"


def content_of(node: str, rows: Iterable[bytes]) -> bytes:
    """The content of the file of ``node`` with these rows."""
    name, body = node.encode(), b"".join(row + b"\n" for row in rows)
    return b" ".join((_MAGIC, b"%d" % _VERSION, name, _digest(name, body))) + b"\n" + body


def load(path: str, node: str, max_bytes: int, keeper: Keeper) -> None:
    """Give ``keeper`` the rows of the file ``path`` of ``node``, which may be missing. Nothing is written.

    Args:
        max_bytes: of the rows.

    Raises:
        RefusedNodeFile: it cannot be read, is too large, another node's, or of a later version.
        DamagedNodeFile: it is no such file, or not all of it; the keeper may have some rows.
    """
    try:
        data = _read(path, max_bytes)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise RefusedNodeFile(f"{path}: {error.strerror}") from None
    rows = _rows_of(path, node, data)
    try:
        keeper.restore(rows)
    except (RecursionError, ValueError) as error:
        raise DamagedNodeFile(str(error)) from None


def _read(path: str, max_bytes: int) -> bytes:
    # A named pipe must not be waited for.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(file, "rb") as opened:
        status, most = os.fstat(file), max_bytes + _MAX_HEADER
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no regular file")
        if status.st_size > 2 * most:  # beside the rows, their ends
            raise OSError(errno.EFBIG, f"has {status.st_size} bytes; max_bytes = {max_bytes}")
        return opened.read()


def _rows_of(path: str, node: str, data: bytes) -> list[bytes]:
    header, _, body = data.partition(b"\n")
    words = header.split(b" ")
    if words[0] != _MAGIC or len(words) < 2 or not words[1].isdigit():
        raise DamagedNodeFile("it does not begin as such a file does")
    if int(words[1]) != _VERSION:
        text = f"is of version {int(words[1])}, and this rpcmq knows {_VERSION}"
        raise RefusedNodeFile(f"{path}: {text}: use the one that has written it, or move it away")
    if len(words) != 4 or words[3] != _digest(words[2], body):
        raise DamagedNodeFile("its digest is another one")
    if words[2] != node.encode():
        raise RefusedNodeFile(f"{path}: is of the node {words[2].decode(errors='replace')}")
    return body.splitlines()


def _digest(node: bytes, body: bytes) -> bytes:
    return blake2b(node + b"\n" + body, digest_size=16).hexdigest().encode()
