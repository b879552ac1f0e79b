"""Files of a store that something else has changed, and not the disk: their pages have the right checksums."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw

from rpcmq.store.sqlite_pages import CheckedPages

__all__ = ["altered"]


@contextmanager
def altered(path: Path) -> Iterator[apsw.Connection]:
    """A connection to the file ``path``, which nobody has open."""
    pages = CheckedPages("")
    with closing(apsw.Connection(str(path), vfs=pages.name)) as connection:
        connection.pragma("locking_mode", "exclusive")
        yield connection
