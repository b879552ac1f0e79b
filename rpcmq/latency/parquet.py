"""The sink that makes Parquet segments."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rpcmq.latency import segment
from rpcmq.latency.columns import from_rows, table_of, to_rows
from rpcmq.latency.compact import compact, fold
from rpcmq.latency.harvest import Harvest
from rpcmq.latency.log_state import File
from rpcmq.latency.manifest import Manifest
from rpcmq.latency.recovery import recover
from rpcmq.latency.schema import in_flight
from rpcmq.latency.sinks import Content, RecoveryResult

__all__ = ["Parquet"]


class Parquet:
    """Segments in Parquet; see ``Sink``."""

    suffix = ".parquet"

    def content(self, data: bytes, found: Harvest) -> Content:
        """See ``Sink``."""
        table = table_of(found.head, found.names, found.records)
        waiting = to_rows(table_of(found.head, found.names, found.in_flight)) if found.in_flight else []
        return Content(table, table["seq"].to_pylist(), [in_flight(row) for row in waiting])

    def of_rows(self, rows: Sequence[dict[str, Any]]) -> pa.Table:
        """See ``Sink``."""
        return from_rows(rows)

    def write(self, directory: Path, path: str, records: pa.Table, metadata: Mapping[bytes, bytes], at: float) -> File:
        """See ``Sink``."""
        return segment.write(directory, path, records, metadata, at)

    def recover(self, directory: Path, manifest: Manifest, spooled: Collection[str], now: float) -> RecoveryResult:
        """See ``Sink``."""
        return recover(directory, manifest, spooled, now)

    def compact(self, directory: Path, manifest: Manifest, now: float) -> tuple[int, list[str]]:
        """See ``Sink``."""
        done, damaged = compact(directory, manifest, now)
        if done:  # once an hour
            damaged += fold(directory, manifest, now)[1]
        return done, damaged
