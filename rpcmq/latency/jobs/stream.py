"""The stream: cells of the dispatch log, seconds after the records were shipped, each record once.

Spark's Structured Streaming reads the segments that were admitted (``admission`` says which, and why from a directory
of its own), makes of each batch the same cells as the batch job does, and writes them to a directory named by run and
batch, ``OUT/cells/run=<query id>/batch=<n>/``. There is no watermark and no state: cells add up, so late segments count
like all others, and what is kept does not grow with time.

A batch goes these steps, and after a kill the next start goes on where it was:

1. Spark notes in its checkpoint which segments the batch has.
2. Its cells are written, synced and renamed: all there or not at all. Done again, they are replaced.
3. One line of the journal: now they count. Whoever reads goes by the journal. Done again, this step finds the batch
   there and does nothing.
4. Spark notes in its checkpoint that the batch is done.

So the checkpoint only spares work; what counts is the journal's. It is made anew when it has seen many segments, for
it never forgets one, or when Spark fails with it.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from rpcmq.errors import RpcError
from rpcmq.latency.analysis.series import DIMENSIONS, MEASURES
from rpcmq.latency.change_log import LogEvent, silent
from rpcmq.latency.jobs.admission import SegmentIntake
from rpcmq.latency.jobs.housekeeping import Housekeeping, first_line
from rpcmq.latency.jobs.journal import Dataset, Journal, State
from rpcmq.latency.jobs.source import SCHEMA
from rpcmq.latency.jobs.store import WINDOW, as_spark, remove_strays, write_dataset
from rpcmq.latency.jobs.transforms import cells

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Stream", "StreamFailed"]

#: Columns needed to make cells; the others are not read.
_NEEDED = (
    *DIMENSIONS,
    "recv_at",
    "handler_us",
    "reply_us",
    "between_us",
    "req_bytes",
    "rep_bytes",
    *(f"{name}_us" for name in MEASURES),
)
_SEGMENT = "_segment"
#: Interval between polls of the manifest (seconds); an idle poll costs one ``stat``.
_LOOK = 0.2
#: Records that wait, from which on a batch is worth more than one core's work.
_LARGE = 200_000
#: Segments after which the checkpoint is made anew: it rewrites the list of all that it has seen every tenth batch.
_OUTGROWN = 50_000
#: Time for a batch to end when the stream is told to end (seconds).
_PATIENCE = 60.0
#: Seconds between a failure and the next try, at most.
_LONGEST_DELAY = 60.0
#: Failures in a row after which ``run_once`` gives up; the checkpoint is made anew after the first but one.
_TRIES = 3
#: Seconds, and times of ``every``, that an idle query may leave a segment unread.
_STUCK = 30.0


class StreamFailed(RpcError):
    """Spark cannot continue, for a reason other than a bad segment."""


class _Halted(Exception):
    """Raised to prevent another batch: the stream must end."""


def _go_on(made: Dataset) -> None:
    """Do nothing: the default ``after_write``."""


class Stream:
    """One stream from a log to a directory of cells. No other may write to that directory meanwhile.

    Args:
        log: the log's directory.
        out: where the cells go, and what the stream needs to know.
        every: seconds from the begin of one batch to that of the next, if the first does not take longer.
        max_files: segments of a batch, at most.
        note: told what happens: level, event, sentence, fields.
        clock: seconds since 1970.
        after_write: called when the cells of a batch are written, and do not count yet.

    Raises:
        StreamInUse: another process writes there.
        JournalDamaged: the directory has a journal that is none.
        OSError: the directory cannot be used.
    """

    def __init__(
        self,
        log: Path,
        out: Path,
        *,
        every: float = 1.0,
        max_files: int = 100,
        note: LogEvent = silent,
        clock: Callable[[], float] = time,
        after_write: Callable[[Dataset], object] = _go_on,
    ) -> None:
        # Absolute: the JVM has a working directory of its own.
        self._out = out.resolve()
        self._every = every
        self._max_files = max_files
        self._note = note
        self._clock = clock
        self._after_write = after_write
        self._journal = Journal(self._out, clock)
        try:
            state = self.state
            remove_strays(self._out, state.live.keys() | state.superseded.keys())
            self._admission = SegmentIntake(log.resolve(), self._out, self._journal, clock)
        except BaseException:
            self._journal.close()
            raise
        self._checkpoint = self._out / "checkpoint"
        self._halt = Event()
        self._writing = Lock()
        self._run: Future[str] = Future()
        self._error: Exception | None = None
        self._partitions = 1
        self._moved = 0, monotonic()
        self._housekeeping = Housekeeping(self._out, self._journal, self._admission, note, clock)

    @property
    def state(self) -> State:
        """The state of the stream: the fate of each segment, and which cells count."""
        return self._journal.state

    def close(self) -> None:
        """Let another process have the directory."""
        self._journal.close()

    def run(self, spark: SparkSession, stop: Event) -> None:
        """Go on until ``stop`` is set, and then to the end of the batch that is being made.

        What fails is tried again, a minute later at most.
        """
        failures = 0
        with ThreadPoolExecutor(1, "fold") as executor:
            while not stop.is_set():
                before = self.state.segments
                error = self._go(spark, stop, executor)
                failures = failures + 1 if error and self.state.segments == before else int(error is not None)
                if error and not stop.is_set() and not self._mend(error, failures):
                    stop.wait(min(2.0**failures, _LONGEST_DELAY))

    def run_once(self, spark: SparkSession, stop: Event) -> None:
        """Process available segments, merge due batches, and return; earlier if ``stop`` is set.

        Raises:
            StreamFailed: it did not work, several times.
        """
        while self._housekeeping.admit():
            if stop.is_set():
                return
        failures = 0
        while not stop.is_set():
            error = self._go_once(spark, stop)
            if error is None:
                break
            failures += 1
            if not self._mend(error, failures) and failures >= _TRIES:
                raise StreamFailed(f"{self._out}: {first_line(error)}") from error
        self._housekeeping.merge(spark)

    # --- one query ---------------------------------------------------------------------------

    def _go(self, spark: SparkSession, stop: Event, executor: ThreadPoolExecutor) -> Exception | None:
        """Run a query to its end; return the error that ended it, if any."""
        folding: Future[None] | None = None
        try:
            query = self._start(spark, processingTime=f"{round(self._every * 1000)} milliseconds")
        except PySparkException as error:
            return StreamFailed(first_line(error))
        seen = self.state.segments
        try:
            while not stop.wait(_LOOK):
                if not query.isActive:
                    return self._why(query) or StreamFailed("the query has ended")
                self._housekeeping.admit()
                if folding is not None and folding.done():
                    folding = folding.result()
                if folding is None and self._housekeeping.is_due():
                    folding = executor.submit(self._housekeeping.merge, spark)
                if self.state.segments - seen > _OUTGROWN or self._is_stuck(query):
                    self._end(query)
                    self._discard_checkpoint()
                    return None
        finally:
            self._end(query)
        return None

    def _go_once(self, spark: SparkSession, stop: Event) -> Exception | None:
        try:
            query = self._start(spark, availableNow=True)
        except PySparkException as error:
            return StreamFailed(first_line(error))
        try:
            while query.isActive:
                if stop.wait(_LOOK):
                    return None
            ended = self._why(query)
        finally:
            self._end(query)
        if ended is None:
            self._admission.release()
            if self.state.waiting:
                self._discard_checkpoint()
                return StreamFailed(f"{len(self.state.waiting)} segments were not read")
        return ended

    def _start(self, spark: SparkSession, **trigger: Any) -> StreamingQuery:
        self._renew()
        self._halt.clear()
        self._error = None
        self._run = Future()
        self._partitions = spark.sparkContext.defaultParallelism
        source = (
            spark.readStream.schema(SCHEMA)
            .option("pathGlobFilter", "*.parquet")
            # One name is one segment, wherever the directory is mounted.
            .option("fileNameOnly", "true")
            # By default, what is seven days older than the newest is passed over, silently.
            .option("maxFileAge", "3650d")
            .option("maxFilesPerTrigger", self._max_files)
            .parquet(as_spark(self._admission.directory))
            .select(*_NEEDED, F.col("_metadata.file_name").alias(_SEGMENT))
        )
        writer = source.writeStream.foreachBatch(self._write).option("checkpointLocation", f"file:{self._checkpoint}")
        query = writer.trigger(**trigger).start()
        self._run.set_result(str(query.id))
        self._note(logging.INFO, "streaming", f"run {query.id}", {"run": str(query.id)})
        return query

    def _why(self, query: StreamingQuery) -> Exception | None:
        """Return why the query has ended; None if it finished."""
        error = query.exception()
        return self._error or (StreamFailed(first_line(error)) if error else None)

    def _end(self, query: StreamingQuery) -> None:
        """End the query between two batches."""
        self._halt.set()
        try:
            self._stop_between_batches(query)
        finally:
            # What had begun to write has ended, also where Java is no more.
            if self._writing.acquire(timeout=_PATIENCE):
                self._writing.release()

    def _stop_between_batches(self, query: StreamingQuery) -> None:
        deadline = monotonic() + _PATIENCE
        pause = Event()
        # A query that is stopped in the middle of a batch may bring Spark down with a stack overflow. One that goes on
        # to the next batch ends there.
        while query.isActive and query.status["isTriggerActive"] and monotonic() < deadline:
            pause.wait(0.02)
        try:
            query.stop()
        except (PySparkException, Py4JJavaError) as error:
            self._note(logging.DEBUG, "stop", f"while the query ended: {first_line(error)}", {})

    def _renew(self) -> None:
        """If there is no checkpoint, prepare the directory so that a new one reads exactly the waiting segments."""
        if (self._checkpoint / "metadata").exists():
            return
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        self._admission.release()
        found = self._admission.reconsider()
        if found.segments:
            text = f"{found.segments} segments that had been set aside are good now"
            self._note(logging.INFO, "admitted", text, {"segments": found.segments, "records": found.records})

    def _is_stuck(self, query: StreamingQuery) -> bool:
        """Return whether Spark passes over segments that it should read; it has no reason that we know of."""
        now, segments = monotonic(), self.state.segments
        if not self.state.waiting or segments != self._moved[0] or query.status["isTriggerActive"]:
            self._moved = segments, now
        if now - self._moved[1] < max(_STUCK, _STUCK * self._every):
            return False
        text = f"{len(self.state.waiting)} segments were not read; beginning with a new checkpoint"
        self._note(logging.ERROR, "failed", text, {"segments": len(self.state.waiting)})
        return True

    def _discard_checkpoint(self) -> None:
        """To be used when no query runs."""
        old = self._checkpoint.with_name(".checkpoint")
        shutil.rmtree(old, ignore_errors=True)
        if self._checkpoint.exists():
            self._checkpoint.rename(old)
            shutil.rmtree(old, ignore_errors=True)

    def _mend(self, error: Exception, failures: int) -> bool:
        """After the query failed: whether a segment was to blame, which is set aside then."""
        bad = self._admission.withdraw()
        if bad:
            self._housekeeping.tell(bad)
            return True
        self._note(logging.ERROR, "failed", f"{first_line(error)}; trying again", {"failures": failures})
        if failures == _TRIES - 1:
            self._discard_checkpoint()
        return False

    # --- one batch ---------------------------------------------------------------------------

    def _write(self, records: DataFrame, batch: int) -> None:
        """Write a batch; called by Spark, in a thread of its own."""
        try:
            self._make(records, batch)
        except Exception as error:
            # Spark makes a long text of it.
            self._error = error
            raise

    def _make(self, records: DataFrame, batch: int) -> None:
        if self._halt.is_set():
            raise _Halted
        with self._writing:
            run = self._run.result(_PATIENCE)
            if self._journal.state.has(run, batch):
                return
            began = monotonic()
            # That there is a new batch means that all before it are done, for Spark too.
            self._admission.release()
            # 200 by default, and in streams nothing adapts it. The session is this query's own.
            records.sparkSession.conf.set("spark.sql.shuffle.partitions", self._partitions)
            seen = Observation()
            newest = F.max(F.unix_micros("recv_at")).alias("newest")
            observed = records.observe(seen, F.collect_set(_SEGMENT).alias("segments"), newest)
            path = f"cells/run={run}/batch={batch}"
            is_large = sum(self.state.waiting.copy().values()) >= _LARGE
            made = write_dataset(
                self._out,
                path,
                cells(observed, WINDOW),
                self._clock(),
                is_batch=True,
                files=self._partitions if is_large else 1,
            )
            found: list[str] = seen.get["segments"]
            self._check(found, made)
            self._after_write(made)
            self._journal.add_batch(run, batch, found, made)
            fields: dict[str, Any] = {
                "run": run,
                "batch": batch,
                "segments": len(found),
                "records": made.records,
                "seconds": round(monotonic() - began, 3),
            }
            text = f"batch {batch}: {made.records} records of {len(found)} segments in {fields['seconds']} s"
            if found:
                fields["age"] = round(self._clock() - seen.get["newest"] / 1e6, 3)
                text += f", the newest {fields['age']} s old"
            self._note(logging.INFO, "batch", text, fields)

    def _check(self, segments: Sequence[str], made: Dataset) -> None:
        expected = sum(self.state.waiting[name] for name in segments)
        if made.records != expected:
            raise StreamFailed(f"{made.path}: {made.records} records, but its segments have {expected}")
