"""The engine contract: read logs and cells and aggregate them. Implemented with Spark and locally.

Both give the same figures, to the last bucket. Reports and answers are made of what they give, and know neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rpcmq.errors import RpcError
from rpcmq.latency.analysis.account import Account
from rpcmq.latency.analysis.errors import ErrorCount
from rpcmq.latency.analysis.hedging import HedgedCalls
from rpcmq.latency.analysis.series import MEASURES, METHOD, Key, Series
from rpcmq.latency.selection import Selection

__all__ = ["CALLS", "TRIES", "Cells", "Changed", "Engine", "Level", "Only", "Outline", "Records", "of_methods"]

#: Times that a log is read from the beginning because files changed under it.
TRIES = 5


class Changed(RpcError):
    """Files of the log were removed or damaged while being read: read it again."""


class Only(NamedTuple):
    """Of all cells those whose ``columns`` have one of ``values``."""

    columns: Sequence[str]
    values: Sequence[tuple[str | None, ...]]


def of_methods(methods: Iterable[Key]) -> Only:
    """Only these methods."""
    return Only(METHOD, [tuple(key[name] for name in METHOD) for key in methods])


class Level(NamedTuple):
    """A rollup: cells with the same ``by``, outcome and window become one.

    Attributes:
        by: the dimensions to keep; the outcome is kept always.
        window_seconds: length of the windows, a multiple of what it was; None: no windows.
        only: the cells that it is of; None: all.
        measures: the durations whose histograms are wanted, the total at least. Others are empty.
    """

    by: Sequence[str]
    window_seconds: int | None = None
    only: Only | None = None
    measures: Sequence[str] = MEASURES


#: Calls by method.
CALLS = Level(METHOD, None, Only(("kind",), [("call",)]), ("total",))


class Outline(NamedTuple):
    """The extent of the data, from which the figures to compute are chosen.

    Attributes:
        methods: by exchange, topic and method, those with the most total time first.
        callers: those with the most records first.
        raised: what methods raised, the most frequent first.
        routers: one, or the first and the last by name.
        first, last: windows, seconds since 1970; None: there are no cells.
    """

    methods: list[tuple[str, ...]]
    callers: list[str]
    raised: list[ErrorCount]
    routers: list[str]
    first: int | None
    last: int | None


class Cells(Protocol):
    """Cells that can be asked. Each question takes some tenths of a second with Spark, so there are to be few."""

    def outline(self, methods: int | None = 0, callers: int = 0, raised: int = 0) -> Outline:
        """Return the extent of the data, at most so many of each; None: all."""

    def series(self, levels: Mapping[str, Level]) -> dict[str, list[Series]]:
        """The series of each level, by its name, in the order of window and names."""

    def calls(self) -> dict[tuple[str, ...], int]:
        """The number of calls of each method, by exchange, topic and method."""

    def answered_calls(self) -> tuple[list[Series], dict[tuple[str, ...], int]]:
        """Calls that ended ok, by method; and the last window with one, by exchange, topic and method."""


class Records(Cells, Protocol):
    """Records of a log. After ``make_cells`` they can be asked as cells.

    Attributes:
        account: of the log; it is brought up to date if the log changes while it is read.
        first_us, last_us: least and greatest receive time when it was opened, microseconds since 1970; None: there are
            no records.
    """

    account: Account
    first_us: int | None
    last_us: int | None

    def make_cells(self, window_seconds: int, directory: Path | None = None) -> None:
        """Make cells with such windows, and store them in ``directory`` if there is one.

        They are there at the end of the block of ``Engine.log``, which may raise what this does.

        Raises:
            OSError: they could not be written.
        """

    def slowest(self, count: int, most: int) -> list[dict[str, Any]]:
        """The ``count`` records that took longest with all others of their traces, the longest first, at most ``most``.

        They are rows of the log (``schema.COLUMNS``), with ``recv_at`` in microseconds since 1970.
        """

    def unknown(self, count: int) -> list[dict[str, Any]]:
        """Return at most ``count`` such rows of calls with unknown outcome, the newest first."""

    def hedged(self) -> list[HedgedCalls]:
        """Return the methods of which several servers had calls, those with the most extra deliveries first.

        Where a server is selected, a call is one that it ended, and an extra delivery one that it had. None where that
        cannot be told: see ``Selection.without_whole_calls``.
        """


class Engine(Protocol):
    """Opens logs and cells.

    All methods, and what they return, may raise:
        Changed: files of the log go faster than they can be read.
        ManifestDamaged, CellsDamaged: what is there is none.
    """

    def log(self, selection: Selection) -> AbstractContextManager[Records]:
        """The records that were selected, open until the end of the block.

        Raises:
            UsageError: there is no such log.
        """

    def cells(self, selection: Selection, *more: Path) -> AbstractContextManager[Cells]:
        """The stored cells of the selected directories.

        Raises:
            UsageError: there are none.
        """

    def trace(self, selection: Selection, id: str, count: int) -> tuple[list[dict[str, Any]], Account]:
        """The first ``count`` records of a trace or of a correlation id, as rows, in the order of their receipt.

        Raises:
            UsageError: ``id`` is neither.
        """
