"""Parquet files of records: written with page checksums, read only if unchanged."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rpcmq.errors import RpcError
from rpcmq.latency import schema
from rpcmq.latency.columns import ARROW, completed
from rpcmq.latency.files import Unsuitable, open_regular, read_regular, write_whole
from rpcmq.latency.log_state import File
from rpcmq.log_format import LOG_MODE

__all__ = ["SOURCE", "Damaged", "entry", "identities", "is_segment", "metadata_of", "read", "write"]

#: Key of a segment's metadata that has its ``log_state.Source``.
SOURCE = b"rpcmq:source"
#: Of a file that is read whole: it has at most 5 million records, of 16 bytes in most logs.
_MAX_BYTES = 2 << 30
#: A query of one topic and method reads a group or two of a sorted file.
_ROWS_OF_A_GROUP = 1 << 18
_REPEATED = [each.name for each in schema.COLUMNS if each.coding == "dictionary"]
_TEXTS = [each.name for each in schema.COLUMNS if each.coding == "dictionary" and each.type == "string"]
_RISING = {each.name: "DELTA_BINARY_PACKED" for each in schema.COLUMNS if each.coding == "delta"}
#: Level 1: at 6 a file was no smaller, and took twice as long.
_FORMAT: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": _REPEATED,
    "column_encoding": _RISING,
    "write_page_checksum": True,
    "write_page_index": True,
    # The texts' dictionaries are Arrow's own affair.
    "store_schema": False,
}


class Damaged(RpcError):
    """A file does not match its manifest entry, or is not Parquet of this schema."""


def is_segment(file: File) -> bool:
    """Return whether ``file`` is a segment that can be compacted."""
    return file.path.startswith("ready/") and file.path.endswith(".parquet")


def write(directory: Path, path: str, table: pa.Table, metadata: Mapping[bytes, bytes], at: float) -> File:
    """Make the file ``path`` below ``directory``.

    Args:
        metadata: of the file, beside the version of the schema.
        at: when its newest records were shipped, seconds since 1970.

    Raises:
        OSError: it was not written.
        Damaged: what was written does not read as the table.
    """
    metadata = {schema.SCHEMA: str(schema.VERSION).encode(), **metadata}
    content = b""

    def fill(partial: Path) -> None:
        nonlocal content
        with pq.ParquetWriter(partial, table.schema, **_FORMAT) as writer:
            writer.write_table(table, _ROWS_OF_A_GROUP)
            writer.add_key_value_metadata(metadata)
        content = partial.read_bytes()
        _compare(content, table, path)

    write_whole(directory / path, fill, LOG_MODE)
    return _file(path, table, content, at)


def entry(directory: Path, path: str, at: float) -> File:
    """Return the manifest entry for the existing file ``path``.

    Raises:
        Damaged: it cannot be read as records.
        OSError: it cannot be read.
    """
    content = _content(directory, path)
    return _file(path, _parsed(content, path), content, at)


def _file(path: str, table: pa.Table, content: bytes, at: float) -> File:
    times = pc.min_max(table["recv_at"].cast(pa.int64()))
    first, last = times["min"].as_py() or 0, times["max"].as_py() or 0
    return File(path, table.num_rows, len(content), zlib.crc32(content), first, last, at)


def read(directory: Path, file: File) -> pa.Table:
    """The records of ``file``.

    Raises:
        Damaged: it is gone, or not what was written.
        OSError: it cannot be read.
    """
    try:
        content = _content(directory, file.path)
    except FileNotFoundError:
        raise Damaged(f"{file.path}: is gone") from None
    if zlib.crc32(content) != file.crc32:
        raise Damaged(f"{file.path}: checksum of the file")
    return _parsed(content, file.path)


def metadata_of(path: Path) -> dict[bytes, bytes]:
    """The metadata of the file ``path``.

    Raises:
        Damaged: it is no Parquet.
        OSError: it cannot be read.
    """
    try:
        with open_regular(path) as file:
            return dict(pq.read_metadata(file).metadata or {})
    except Unsuitable as error:
        raise Damaged(f"{path.name}: {error.strerror}") from None
    except (pa.ArrowException, OSError) as error:
        # What Arrow itself cannot read it calls an error of the system, too, but one without a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise Damaged(f"{path.name}: {error}") from None


def identities(directory: Path, path: str) -> pa.Table:
    """Return the identities of the records of the file ``path``: ``router_id``, ``boot`` and ``seq``.

    Raises:
        Damaged: it cannot be read as records.
        OSError: it cannot be read.
    """
    try:
        with open_regular(directory / path) as file:
            return pq.read_table(file, columns=list(schema.IDENTITY))
    except Unsuitable as error:
        raise Damaged(f"{path}: {error.strerror}") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise Damaged(f"{path}: {error}") from None


def _content(directory: Path, path: str) -> bytes:
    try:
        return read_regular(directory / path, _MAX_BYTES)
    except Unsuitable as error:
        raise Damaged(f"{path}: {error.strerror}") from None


def _compare(content: bytes, table: pa.Table, path: str) -> None:
    """Verify the written file by reading it back, a group at a time because it may be large."""
    place = 0
    for part in _groups(content, path):
        if not part.equals(table.slice(place, part.num_rows)):
            raise Damaged(f"{path}: does not read as it was written")
        place += part.num_rows
    if place != table.num_rows:
        raise Damaged(f"{path}: has {place} records of {table.num_rows}")


def _parsed(content: bytes, path: str) -> pa.Table:
    return pa.concat_tables(_groups(content, path)).unify_dictionaries()


def _groups(content: bytes, path: str) -> Iterator[pa.Table]:
    try:
        metadata = pq.read_metadata(pa.BufferReader(content))
        version = (metadata.metadata or {}).get(schema.SCHEMA)
        if version != str(schema.VERSION).encode():
            raise Damaged(f"{path}: schema version {version!r}")
        texts = [name for name in _TEXTS if name in metadata.schema.names]
        file = pq.ParquetFile(
            pa.BufferReader(content), metadata=metadata, page_checksum_verification=True, read_dictionary=texts
        )
        for number in range(file.num_row_groups):
            yield completed(file.read_row_group(number).replace_schema_metadata(None)).cast(ARROW)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Damaged(f"{path}: {error}") from None
