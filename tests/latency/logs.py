"""A dispatch log as its readers see it, and a shipper that is killed wherever one likes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rpcmq.latency import segment
from rpcmq.latency.columns import to_rows
from rpcmq.latency.manifest import read
from rpcmq.latency.parquet import Parquet
from rpcmq.latency.retention import Limits
from rpcmq.latency.ship import Shipper
from rpcmq.latency.sinks import Sink

NOW = 1_700_000_000.0


def ship(
    directory: Path,
    now: float = NOW,
    limits: Limits | None = None,
    sink: Sink | None = None,
    note: Callable[[int, str, str, dict[str, Any]], object] = lambda *_: None,
) -> Shipper:
    """One run of a shipper; what it knows at the end."""
    shipper = Shipper(directory, sink or Parquet(), limits or Limits(), note, clock=lambda: now)
    try:
        shipper.run_once()
    finally:
        shipper.close()
    return shipper


def rows(directory: Path) -> list[dict[str, Any]]:
    """All records, as a reader of the manifest finds them."""
    tables = [segment.read(directory, file) for file in read(directory).live.values()]
    return to_rows(pa.concat_tables(tables)) if tables else []


def times_seen(directory: Path) -> Counter[tuple[str, int, int]]:
    """The number of times that each record is in the log, by its identity."""
    return Counter((row["router"], row["boot"], row["seq"]) for row in rows(directory))


def names(directory: Path, place: str) -> list[str]:
    """Names of the files in ``place``, those that nobody is to see too."""
    return sorted(path.name for path in (directory / place).rglob("*") if path.is_file())


class Killed(BaseException):
    """The process is no more."""


class Executioner:
    """Lets so many changes of files come about, then none.

    Args:
        after: how many.
        error: what the next change raises. The process is dead after ``Killed``: it does nothing more, not even
            what it does about an exception. Anything else happens once.
    """

    def __init__(self, after: int, error: BaseException) -> None:
        self._left = after
        self._error = error
        self.struck = False

    def step(self) -> None:
        if self._left == 0 and not (self.struck and isinstance(self._error, Exception)):
            self.struck = True
            raise self._error
        self._left = max(0, self._left - 1)


@contextmanager
def struck_after(changes: int, error: BaseException) -> Iterator[Executioner]:
    """Within, only so many changes of files come about before one raises ``error``, which ends the block."""
    executioner = Executioner(changes, error)

    def dying(name: str, of: Any) -> None:
        real = getattr(of, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            executioner.step()
            return real(*arguments, **keywords)

        patch.setattr(of, name, call)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("write", "ftruncate", "fsync"):
            dying(name, os)
        for name in ("rename", "replace", "unlink", "rmdir", "write_bytes"):
            dying(name, Path)
        try:
            yield executioner
        except type(error) as raised:
            assert raised is error
