"""Output formats of segments: Parquet, or JSON Lines for viewing single records."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rpcmq.latency.files import write_whole
from rpcmq.latency.harvest import Harvest
from rpcmq.latency.log_state import File
from rpcmq.latency.manifest import Manifest
from rpcmq.latency.schema import as_json, rows_of
from rpcmq.latency.spooled import QuarantineReason
from rpcmq.log_format import LOG_MODE, Record, Spool, SpoolError

__all__ = ["Content", "JsonLines", "RecoveryResult", "Sink"]


class Content(NamedTuple):
    """The records of a spool file.

    Attributes:
        records: in the sink's own form.
        seqs: their numbers.
        in_flight: rows (``schema.rows_of``) of calls that had not ended.
    """

    records: Any
    seqs: list[int]
    in_flight: list[dict[str, Any]]


@dataclass
class RecoveryResult:
    """The disposition of files that the manifest did not name, by path.

    Attributes:
        taken: they count now.
        aside: they are no part of the log, and why.
    """

    taken: list[str] = field(default_factory=list)
    aside: dict[str, QuarantineReason] = field(default_factory=dict)


class Sink(Protocol):
    """Makes segments of one kind."""

    #: Of its files' names.
    suffix: str

    def content(self, data: bytes, found: Harvest) -> Content:
        """The records of the spool file ``data``, in which ``found`` was found.

        Raises:
            SpoolError: a record is not as it should be.
        """

    def of_rows(self, rows: Sequence[dict[str, Any]]) -> Any:
        """Rows of ``schema.rows_of`` in the sink's own form."""

    def write(self, directory: Path, path: str, records: Any, metadata: Mapping[bytes, bytes], at: float) -> File:
        """Make the file ``path`` below ``directory``; arguments and errors as those of ``segment.write``."""

    def recover(self, directory: Path, manifest: Manifest, spooled: Collection[str], now: float) -> RecoveryResult:
        """See ``recovery.recover``."""

    def compact(self, directory: Path, manifest: Manifest, now: float) -> tuple[int, list[str]]:
        """See ``compact.compact``."""


class JsonLines:
    """JSON Lines: one object a record, times as text. For inspection: files are large and never compacted."""

    suffix = ".jsonl"

    def content(self, data: bytes, found: Harvest) -> Content:
        """See ``Sink``."""
        ended: list[Record] = []
        in_flight: list[Record] = []
        for record in _records(data, found):
            (ended if record.outcome is not None else in_flight).append(record)
        return Content(rows_of(found.head, ended), [record.seq for record in ended], rows_of(found.head, in_flight))

    def of_rows(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """See ``Sink``."""
        return list(rows)

    def write(
        self, directory: Path, path: str, records: list[dict[str, Any]], metadata: Mapping[bytes, bytes], at: float
    ) -> File:
        """See ``Sink``; there is no place for metadata."""
        text = "".join(json.dumps(as_json(row)) + "\n" for row in records).encode()
        write_whole(directory / path, text, LOG_MODE)
        times = [row["recv_at"] for row in records]
        return File(path, len(records), len(text), zlib.crc32(text), min(times), max(times), at)

    def recover(self, directory: Path, manifest: Manifest, spooled: Collection[str], now: float) -> RecoveryResult:
        """Recover nothing: these files are not an archive."""
        return RecoveryResult()

    def compact(self, directory: Path, manifest: Manifest, now: float) -> tuple[int, list[str]]:
        """Do nothing: JSON Lines are never compacted."""
        return 0, []


def _records(data: bytes, found: Harvest) -> Iterator[Record]:
    try:
        yield from Spool(data)
    except SpoolError:
        if not found.torn_bytes:
            raise
