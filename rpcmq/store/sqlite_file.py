"""A SQLite file of queue items: opened so that a commit is durable, and refused with the reason where it is none."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct, pack
from struct import error as StructError
from typing import Any
from zlib import crc32

import apsw

from rpcmq.store.contract import StoreError, StoreFailed
from rpcmq.store.page_checksums import CHECKSUM_BYTES
from rpcmq.store.sqlite_log import Log
from rpcmq.store.sqlite_pages import PAGE_BYTES, CheckedPages

__all__ = [
    "SCHEMA_VERSION",
    "abandon",
    "is_whole",
    "item_checksum",
    "open_file",
    "reason_of",
    "row_checksum",
    "rows_of",
]

log = logging.getLogger("rpcmq.queue")

#: Grows with each change of the tables.
SCHEMA_VERSION = 5
#: Stands in the file's header: "rpmq".
_APPLICATION = 0x72706D71
#: Mode of the file.
_MODE = 0o600
_CACHE_KIB = 16 * 1024
#: Formats of so many integers.
_NUMBERS = [f">{count}q" for count in range(8)]
#: The row of an item without an id and a digest, as far as its body, and what stands behind that.
_NAMELESS, _NO_DIGEST = Struct(">qqqqqII"), bytes(4)
_TABLES = """
CREATE TABLE segments (
    segment INTEGER PRIMARY KEY, queue TEXT NOT NULL, priority INTEGER NOT NULL, first INTEGER NOT NULL, bytes INTEGER
);
CREATE TABLE periods (period INTEGER PRIMARY KEY, begins INTEGER NOT NULL);
CREATE TABLE postponed (
    segment INTEGER NOT NULL, number INTEGER NOT NULL, due INTEGER NOT NULL, state BLOB NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (segment, number)
) WITHOUT ROWID;
CREATE INDEX postponed_in_segment ON postponed (segment, due, number);
CREATE TABLE dead (
    place INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, priority INTEGER NOT NULL, number INTEGER NOT NULL,
    died INTEGER NOT NULL, at INTEGER NOT NULL, id BLOB NOT NULL, producer INTEGER NOT NULL, counter INTEGER NOT NULL,
    body BLOB NOT NULL, digest BLOB NOT NULL, state BLOB NOT NULL, crc INTEGER NOT NULL
);
CREATE UNIQUE INDEX dead_item ON dead (queue, priority, number);
CREATE INDEX dead_in_order ON dead (queue, place);
CREATE TABLE results (
    queue TEXT NOT NULL, priority INTEGER NOT NULL, number INTEGER NOT NULL, until INTEGER NOT NULL,
    value BLOB NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (queue, priority, number)
) WITHOUT ROWID;
CREATE INDEX results_until ON results (queue, until);
CREATE TABLE uniques (
    queue TEXT NOT NULL, name BLOB NOT NULL, priority INTEGER NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (queue, name)
) WITHOUT ROWID;
CREATE TABLE notes (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""

#: By the version that each makes, of the one before. Files that began with version 5 have checksums of pages, those of
#: earlier ones have none for good.
_STEPS = {4: "CREATE INDEX dead_in_order ON dead (queue, place)", 5: ""}


def open_file(path: Path, vfs: str | None = None) -> apsw.Connection:
    """Open the store in ``path``, which is made if it is not there.

    Raises:
        StoreError: it cannot be used: no store, one of a later version, damaged.
        StoreFailed: the disk failed, is full or read-only, or another process has the file: it may be had later.
    """
    if vfs is None:
        _keep_private(path)
    pages = CheckedPages(vfs or "")
    try:
        connection = apsw.Connection(os.path.realpath(path), vfs=pages.name)
    except apsw.Error as error:
        raise _problem(path, error) from None
    try:
        _prepare(connection, path, vfs)
    except apsw.Error as error:
        abandon(connection)
        raise _problem(path, error) from None
    except StoreError:
        abandon(connection)
        raise
    return connection


def _keep_private(path: Path) -> None:
    """Have nobody but the owner of the file read it, whatever the umask is: it has all that was put.

    Others may be let into its directory. What SQLite makes beside it gets the same mode.
    """
    # Where this fails, SQLite says why the file cannot be had; whoever may write to a file of another one may go on.
    with suppress(OSError):
        # A file that is there is not opened: to close it would end the locks of whoever has it open in this process.
        os.close(os.open(path.resolve(), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE))
    for name in (path, path.with_name(f"{path.name}-wal")):
        with suppress(OSError):
            # A link may lead to anything that is there.
            if stat.S_ISREG(name.lstat().st_mode):
                name.chmod(_MODE)


def abandon(connection: apsw.Connection) -> None:
    """Close a connection that has failed.

    After a sync that failed nobody knows which pages are on the disk. So what it holds is not copied into the file: the
    next connection reads the write-ahead log, and what of it is whole.
    """
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close(True)
    except apsw.Error as error:
        log.warning("queue store %s: closed with %s", connection.filename, reason_of(error))


def _prepare(connection: apsw.Connection, path: Path, vfs: str | None) -> None:
    # Before the journal's mode: with it, SQLite needs no memory that is shared with other processes.
    connection.pragma("locking_mode", "exclusive")
    connection.pragma("page_size", PAGE_BYTES)
    connection.pragma("schema_version")  # says at once where it is no database
    connection.reserve_bytes("main", CHECKSUM_BYTES)
    if connection.pragma("journal_mode", "wal") != "wal":
        raise StoreError(f"queue store {path}: its journal cannot be a write-ahead log; is the directory writable?")
    connection.pragma("synchronous", "full")
    connection.pragma("cache_size", -_CACHE_KIB)
    connection.pragma("temp_store", "memory")
    application, version = connection.pragma("application_id"), connection.pragma("user_version")
    if application in (0, _APPLICATION):
        _take_log(connection, path, vfs or "")
    connection.execute("BEGIN IMMEDIATE")
    if application == version == 0 and not connection.execute("SELECT count(*) FROM sqlite_schema").get:
        connection.execute(_TABLES)
        connection.pragma("application_id", _APPLICATION)
        connection.pragma("user_version", SCHEMA_VERSION)
    elif application != _APPLICATION:
        raise StoreError(f"queue store {path}: it is a SQLite database of another program: give another directory")
    elif version > SCHEMA_VERSION:
        text = f"it has version {version}, and this rpcmq knows {SCHEMA_VERSION}: start the later one that has used it"
        raise StoreError(f"queue store {path}: {text}")
    elif version + 1 < min(_STEPS):
        text = f"it has version {version}, which no release has written: move it away"
        raise StoreError(f"queue store {path}: {text}")
    elif version < SCHEMA_VERSION:
        for step in range(version + 1, SCHEMA_VERSION + 1):
            connection.execute(_STEPS[step])
        connection.pragma("user_version", SCHEMA_VERSION)
        log.info("queue store %s: of version %d, is of version %d now", path, version, SCHEMA_VERSION)
    connection.execute("COMMIT")


def _take_log(connection: apsw.Connection, path: Path, vfs: str) -> None:
    """Refuse a log that the disk has changed, and have the rest of it on the disk before anything is appended."""
    log_file = Log(connection, PAGE_BYTES, vfs)
    try:
        damage = log_file.damage()
        if damage:
            text = f"the {damage} of its write-ahead log is damaged, and what was put and done since would be lost"
            raise StoreError(f"queue store {path}: {text}: restore it and {path.name}-wal from a copy")
        log_file.write_again()
    finally:
        log_file.close()


def _problem(path: Path, error: apsw.Error) -> StoreError | StoreFailed:
    kind: type[StoreError | StoreFailed] = StoreFailed
    match error:
        case apsw.BusyError() | apsw.LockedError():
            # It may be the process of an earlier life, which is still closing it.
            text = "another process has it open"
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
            # A system whose disk has failed makes it read-only, and whoever mends that need not start anything again.
            text = f"it cannot be written ({error}): check the rights of file and directory, and the disk"
        case apsw.FullError() | apsw.IOError():
            text = reason_of(error)
        case apsw.NotADBError():
            kind, text = StoreError, "it is no SQLite database: restore it from a copy, or move it away"
        case _:
            kind, text = StoreError, reason_of(error)
    return kind(f"queue store {path}: {text}")


def rows_of(connection: apsw.Connection, query: str, *values: object) -> list[tuple[Any, ...]]:
    """All rows of ``query``: what is read may be changed meanwhile."""
    return list(connection.execute(query, values))


def reason_of(error: apsw.Error | UnicodeDecodeError) -> str:
    """An error of SQLite in words, or that of text which is none, because it was damaged."""
    if isinstance(error, apsw.CorruptError | UnicodeDecodeError):
        return f"it is damaged ({error}): restore it from a copy"
    return f"{type(error).__name__}: {error}"


def row_checksum(numbers: Sequence[int], *values: bytes) -> int:
    """The checksum of a row: its integers, and its blobs in their order."""
    parts = [pack(_NUMBERS[len(numbers)], *numbers)]
    for value in values:
        parts += (len(value).to_bytes(4), value)
    return crc32(b"".join(parts))


def item_checksum(
    number: int, at: int, due: int, producer: int, counter: int, id: bytes, body: bytes, digest: bytes
) -> int:
    """The checksum of the row of an item: that of :func:`row_checksum`, in fewer steps for most of them."""
    if id or digest:
        return row_checksum((number, at, due, producer, counter), id, body, digest)
    return crc32(_NAMELESS.pack(number, at, due, producer, counter, 0, len(body)) + body + _NO_DIGEST)


def is_whole(crc: object, numbers: Sequence[int], *values: bytes) -> bool:
    """Return whether a row is as it was written. Where it is not, its values may have any type."""
    try:
        return crc == row_checksum(numbers, *values)
    except (StructError, TypeError):
        return False
