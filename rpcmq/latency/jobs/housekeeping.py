"""The stream's work beside its batches: segments are admitted, batches merged, obsolete files removed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from rpcmq.errors import RpcError
from rpcmq.latency.analysis.account import SetAside
from rpcmq.latency.change_log import LogEvent
from rpcmq.latency.jobs.admission import SegmentIntake
from rpcmq.latency.jobs.fold import GRACE, due, fold, sweep
from rpcmq.latency.jobs.journal import Journal
from rpcmq.latency.manifest import ManifestDamaged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Housekeeping", "first_line"]

#: Most segments admitted between two checks of the query: a second's work.
_AT_A_TIME = 500
#: Interval between checks for something to merge or remove (seconds).
_HOUSEKEEPING = 5.0
#: Seconds between two warnings of one kind.
_SILENCE = 60.0
#: Files set aside of which one look writes a line each.
_LINES = 10


def first_line(error: Exception) -> str:
    """The first line of the text of ``error``, which Spark makes long."""
    return next(iter(str(error).splitlines()), type(error).__name__)


class Housekeeping:
    """Admits segments to a stream, merges its batches and removes what nobody needs any more.

    Args:
        out: the stream's directory.
        note: as of :class:`rpcmq.latency.jobs.stream.Stream`.
        clock: seconds since 1970.
    """

    def __init__(
        self, out: Path, journal: Journal, admission: SegmentIntake, note: LogEvent, clock: Callable[[], float]
    ) -> None:
        self._out = out
        self._journal = journal
        self._admission = admission
        self._note = note
        self._clock = clock
        self._due = 0.0
        self._warned: dict[str, float] = {}

    def admit(self) -> bool:
        """Admit segments; return whether there is more to be admitted at once."""
        try:
            looked = self._admission.look(_AT_A_TIME)
        except (ManifestDamaged, OSError) as error:
            self._warn("not admitted", error)
            return False
        if looked.segments:
            text = f"{looked.segments} segments with {looked.records} records"
            self._note(logging.DEBUG, "admitted", text, {"segments": looked.segments, "records": looked.records})
        self.tell(looked.aside)
        return looked.more

    def tell(self, aside: Sequence[SetAside]) -> None:
        """Log which segments were set aside."""
        for each in aside[:_LINES]:
            fields = {"path": each.path, "reason": each.reason, "records": each.rows}
            self._note(logging.WARNING, "set aside", f"{each.path}: {each.reason}: {each.text}", fields)
        if more := aside[_LINES:]:
            rows = sum(each.rows or 0 for each in more)
            text = f"{len(more)} more segments with {rows} records; the journal names them"
            self._note(logging.WARNING, "set aside", text, {"segments": len(more), "records": rows})

    def is_due(self) -> bool:
        """Return whether it is time for :meth:`merge` again."""
        now = monotonic()
        if now < self._due:
            return False
        self._due = now + _HOUSEKEEPING
        return True

    def merge(self, spark: SparkSession) -> None:
        """Merge due batches, remove obsolete files. Failures are left for the next time."""
        try:
            now = self._clock()
            batches = due(self._journal.state, now)
            if batches:
                began = monotonic()
                made = fold(spark, self._out, self._journal, batches, now)
                fields = {"batches": len(batches), "hours": len(made), "seconds": round(monotonic() - began, 3)}
                text = f"merged {len(batches)} batches into {len(made)} hours in {fields['seconds']} s"
                self._note(logging.INFO, "fold", text, fields)
            sweep(self._out, self._journal, now - GRACE)
            self._admission.report()
            self._journal.tidy(self._admission.known)
        except (PySparkException, Py4JJavaError, RpcError, OSError) as error:
            self._warn("not merged", error)

    def _warn(self, event: str, error: Exception) -> None:
        now = monotonic()
        if now - self._warned.get(event, -_SILENCE) >= _SILENCE:
            self._warned[event] = now
            self._note(logging.WARNING, event, f"{first_line(error)}; trying again", {})
