"""Progress of Spark jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["progress"]

#: Seconds that a last look may take.
_PATIENCE = 5.0


@contextmanager
def progress(spark: SparkSession, show: Callable[[int, int], None], seconds: float = 0.2) -> Iterator[None]:
    """Within, tell how many tasks Spark has done since the beginning of the block, and how many it knows of.

    Neither number ever falls. The second grows while Spark finds out what there is to do.

    Args:
        spark: the session.
        show: called with both, from a thread of its own, when one has changed.
        seconds: between two looks.
    """
    over = Event()
    watcher = Thread(target=_watch, args=(spark, show, seconds, over), name="rpcmq-spark-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(_PATIENCE)


def _watch(spark: SparkSession, show: Callable[[int, int], None], seconds: float, over: Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    stages: dict[int, tuple[int, int]] = {}
    active: set[int] = set()
    shown = (0, 0)
    while not over.wait(seconds):
        try:
            # One that has just ended is looked at once more.
            before, active = active, set(tracker.getActiveStageIds())
            for stage in before | active:
                if (info := tracker.getStageInfo(stage)) is not None:
                    stages[stage] = info.numCompletedTasks, info.numTasks
        except (Py4JError, OSError):
            # Spark is gone: the waiting caller gets an error.
            return
        done = sum(done for done, _ in stages.values())
        known = sum(known for _, known in stages.values())
        # A stage that is done again, because what it had made was lost, begins from nothing.
        now = max(done, shown[0]), max(known, shown[1])
        if now != shown:
            shown = now
            show(*shown)
