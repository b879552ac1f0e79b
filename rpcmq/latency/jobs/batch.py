"""The batch job: a dispatch log, or cells that were stored, becomes a report.

The log is read twice: a few columns of it to count, then those that cells are made from. The cells are stored, and
all figures are rollups of them. Only the slowest calls, and those of which nobody knows the end, are looked for in
the log itself again. Each question to Spark takes some tenths of a second however little there is to read, so there
are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from rpcmq.latency.analysis.account import Account
from rpcmq.latency.analysis.errors import ErrorCount, attach
from rpcmq.latency.analysis.series import METHOD, Series, merged
from rpcmq.latency.analysis.slow import findings
from rpcmq.latency.jobs.collect import by_level
from rpcmq.latency.jobs.runs import joined
from rpcmq.latency.jobs.source import TRIES, Changed, Log, Reader
from rpcmq.latency.jobs.store import About, read_cells, write_cells
from rpcmq.latency.jobs.tasks import tasks
from rpcmq.latency.jobs.transforms import Level, cells, error_counts, rollups, selected, slowest, unknown
from rpcmq.latency.report.model import Report
from rpcmq.latency.selection import Selection

__all__ = ["CELLS", "ERROR_CLASSES", "METHODS", "coarser", "in_detail", "report", "report_of_cells", "window_for"]

#: Directory of the cells, in that of the report.
CELLS = "cells"
#: Lengths of windows (seconds) that people count in, and how many of a shorter one make a longer one.
_LENGTHS = (1, 2, 5, 10, 15, 30, 60)
_TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 240, 360, 720, 1440)
#: Windows that a report has, about; and at most, where their length was asked for.
_WINDOWS, _WINDOWS_ASKED_FOR = 120, 1000
#: Methods whose servers are looked at, those with the most total time; callers, those with the most records.
METHODS, _CALLERS = 200, 200
#: What methods raised: kinds that are counted, those with the most records.
ERROR_CLASSES = 1000
#: Windows of all methods together: as many methods as fit in have theirs looked at.
_METHOD_WINDOWS = 6000
#: Records of the traces of the slowest calls.
_TRACED = 2000
_IDENTITY = ("router_id", "boot", "seq")

#: Told the name of a step; what it returns is entered for as long as the step takes.
Step = Callable[[str], AbstractContextManager[object]]
Result = TypeVar("Result")


def report(
    spark: SparkSession,
    selection: Selection,
    out: Path,
    *,
    window_seconds: int | None = None,
    top: int = 20,
    step: Step = nullcontext,
) -> Report:
    """Read a dispatch log, store its cells in the directory ``CELLS`` of ``out``, and make the report.

    Args:
        spark: a session of ``session``.
        selection: of a log.
        out: the report's directory; it is made.
        window_seconds: length of the windows; None: one that suits the range of time, a minute at most.
        top: how many of the slowest calls are looked for, and of those whose end nobody knows.
        step: told what is being done; see ``Step``.

    Raises:
        UsageError: there is no such log.
        ManifestDamaged: its manifest is not one.
        Changed: its files go faster than they can be read.
        OSError: what was made cannot be written.
    """
    with tasks(spark) as fit:
        return _report_of_log(spark, selection, out, window_seconds, top, _Timed(step), fit)


def _report_of_log(
    spark: SparkSession,
    selection: Selection,
    out: Path,
    window_seconds: int | None,
    top: int,
    timed: _Timed,
    fit: Callable[[int], None],
) -> Report:
    reader = Reader(spark, selection.path, selection.since, selection.until, selection.where)
    with timed("count"):
        log = reader.open()
    since, until = _seconds(log.first_us), _seconds(log.last_us)
    fit(log.account.in_range)
    window = window_seconds or window_for((until or 0.0) - (since or 0.0))

    def store(log: Log) -> Log:
        made_from = About(
            window, str(selection.path.resolve()), selection.since, selection.until, selection.where, log.account
        )
        write_cells(cells(log.records, window), out / CELLS, made_from)
        return log

    with timed("cells"):
        log = _persistently(reader, log, store)
    account = log.account
    made = _report(timed, read_cells(spark, out / CELLS), window, window_seconds is not None, account)
    made.log, made.since, made.until = str(selection.path), since, until
    # What was counted in fact, should a file have changed after it was counted first.
    account.counted += made.whole.records - account.in_range
    account.in_range = made.whole.records
    if made.whole.records and top:
        with timed("slowest calls"):
            made.slowest, made.unknown = _persistently(reader, log, lambda log: _singled_out(log, top))
    made.findings = findings(made.whole, made.windows, made.methods, made.method_windows, made.servers, account)
    made.seconds = timed.seconds
    return made


def report_of_cells(
    spark: SparkSession,
    selection: Selection,
    *more: Path,
    window_seconds: int | None = None,
    step: Step = nullcontext,
) -> Report:
    """The report of cells that earlier runs, or a stream, have stored. Single calls are not in it.

    Args:
        spark: a session of ``session``.
        selection: of a directory of cells; a window belongs to a range of time if it begins in it.
        more: further directories.
        window_seconds: length of the windows, a multiple of that of the stored ones; None: one that suits the range.
        step: see ``report``.

    Raises:
        UsageError: there are no cells; or records would count twice; or the windows do not fit.
        CellsDamaged: the cells are of a version that is not known.
    """
    timed = _Timed(step)
    directories = (selection.path, *more)
    run = joined(directories, window_seconds)
    chosen = selected(read_cells(spark, *directories), selection.since, selection.until, selection.where)
    account = run.account
    with tasks(spark) as fit:
        fit(account.counted)
        made = _report(timed, chosen, run.window_seconds, window_seconds is not None, account)
    made.log = ", ".join(map(str, directories))
    account.in_range, account.unknown = made.whole.records, made.whole.outcomes.get("unknown", 0)
    made.findings = findings(made.whole, made.windows, made.methods, made.method_windows, made.servers, account)
    made.seconds = timed.seconds
    return made


def window_for(seconds: float) -> int:
    """The length of windows that suits a range of time: about 120 of them, but no longer than a minute."""
    return next((length for length in _LENGTHS if seconds <= length * _WINDOWS), _LENGTHS[-1])


class _Timed:
    """Steps, and how long they took."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        begin = monotonic()
        with self._step(name):
            yield
        self.seconds[name] = round(monotonic() - begin, 3)


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6


def _persistently(reader: Reader, log: Log, do: Callable[[Log], Result]) -> Result:
    """``do(log)``; and once more with the log as it is then, if its files have changed."""
    for attempt in Retrying(retry=retry_if_exception_type(Changed), stop=stop_after_attempt(TRIES), reraise=True):
        with attempt:
            if attempt.retry_state.attempt_number > 1:
                log = reader.open()
            with reader.watch():
                return do(log)
    raise AssertionError("tenacity raises what was raised")


# --- figures ------------------------------------------------------------------------------------


class _Outline(NamedTuple):
    """What decides which figures are asked for.

    Attributes:
        methods: by exchange, topic and method, those with the most total time first.
        callers: those with the most records.
        first, last: windows; None: there are no cells.
        raised: what methods raised, the most frequent.
    """

    methods: list[tuple[str, ...]]
    has_more_methods: bool
    callers: list[str]
    has_more_callers: bool
    routers: list[str]
    first: int | None
    last: int | None
    raised: list[ErrorCount]


def _report(timed: _Timed, stored: DataFrame, window: int, is_asked_for: bool, account: Account) -> Report:
    """The report but for single calls and findings; its range is that of the windows."""
    with timed("outline"):
        outline = _outlined(stored)
    if outline.first is None or outline.last is None:
        return Report("", None, None, window, account, Series({}))
    length = outline.last - outline.first + window
    window = coarser(window, length, _WINDOWS_ASKED_FOR if is_asked_for else _WINDOWS)
    levels = _levels(outline, window, length)
    with timed("figures"):
        rolled = rollups(stored, levels).toArrow()
    with timed("histograms"):
        found = by_level(rolled, levels)
        whole = _completed(found, outline)
    return Report(
        log="",
        since=float(outline.first),
        until=float(outline.first + length),
        window_seconds=window,
        account=account,
        whole=whole,
        windows=sorted(found["windows"], key=_begin),
        methods=sorted(found["methods"], key=_time, reverse=True),
        method_windows=sorted(found["method windows"], key=_begin),
        servers=sorted(found["servers"], key=_time, reverse=True),
        callers=sorted(found["callers"], key=_time, reverse=True),
        routers=sorted(found["routers"], key=_time, reverse=True),
    )


def _begin(series: Series) -> int:
    return series.window or 0


def _time(series: Series) -> float:
    return series.total.sum


def _outlined(stored: DataFrame) -> _Outline:
    methods = stored.groupBy(*METHOD).agg(F.sum("total.sum").alias("weight"))
    callers = stored.groupBy("client").agg(F.sum("records").alias("weight"))
    ends = (F.min("window"), F.max("window"), F.array_distinct(F.array(F.min("router"), F.max("router"))))
    found = (
        methods.orderBy(F.desc("weight"), *METHOD)
        .limit(METHODS + 1)
        .select(F.array(*METHOD).alias("names"), "weight")
        .unionByName(
            callers.orderBy(F.desc("weight"), "client")
            .limit(_CALLERS + 1)
            .select(F.array("client").alias("names"), "weight")
        )
        .unionByName(error_counts(stored, ERROR_CLASSES))
        .unionByName(
            stored.agg(*(each.alias(name) for each, name in zip(ends, ("first", "last", "routers"), strict=True))),
            allowMissingColumns=True,
        )
        .collect()
    )
    named = [(tuple(row["names"]), row["weight"]) for row in found if row["names"] is not None]
    named.sort(key=lambda each: -each[1])
    [row] = [row for row in found if row["names"] is None]
    names = [names for names, _ in named if len(names) == len(METHOD)]
    clients = [names[0] for names, _ in named if len(names) == 1]
    raised = [
        ErrorCount(names[:3], names[3], names[4], records) for names, records in named if len(names) > len(METHOD)
    ]
    return _Outline(
        names[:METHODS],
        len(names) > METHODS,
        clients[:_CALLERS],
        len(clients) > _CALLERS,
        row["routers"],
        row["first"],
        row["last"],
        raised,
    )


def _levels(outline: _Outline, window: int, length: int) -> dict[str, Level]:
    """What Spark is to add up; what ``_completed`` can add up of that is left out."""
    detailed = outline.methods[: in_detail(window, length)]
    has_rest = outline.has_more_methods or len(detailed) < len(outline.methods)
    # Looking for a cell's names in a list takes as long as adding it up: not where all are wanted.
    methods = _is_one_of(METHOD, outline.methods) if outline.has_more_methods else None
    callers = F.col("client").isin(outline.callers) if outline.has_more_callers else None
    levels = {
        "method windows": Level(METHOD, window, _is_one_of(METHOD, detailed) if has_rest else None),
        "servers": Level((*METHOD, "server"), None, methods),
        "callers": Level(("client",), None, callers),
    }
    if has_rest:
        levels["windows"] = Level((), window)
    if outline.has_more_methods:
        levels["methods"] = Level(METHOD)
    if len(outline.routers) > 1:
        levels["routers"] = Level(("router",))
    return levels


def _completed(found: dict[str, list[Series]], outline: _Outline) -> Series:
    """Put into ``found`` the levels that it does not have; what all of it adds up to."""
    found.setdefault("windows", merged(found["method windows"], (), windows=True))
    found.setdefault("methods", merged(found["servers"], METHOD))
    [whole] = merged(found["windows"], ())
    if "routers" not in found:
        only = Series({"router": outline.routers[0]})
        only.add(whole)
        found["routers"] = [only]
    attach(outline.raised, found["methods"], whole)
    return whole


def in_detail(window: int, length: int) -> int:
    """How many methods are looked at in windows of ``window`` in a range of ``length`` seconds."""
    return max(1, _METHOD_WINDOWS * window // length)


def coarser(window: int, length: int, most: int = _WINDOWS) -> int:
    """A multiple of ``window`` of which there are at most so many in ``length``, about."""
    return window * next((times for times in _TIMES if length <= times * window * most), length // (window * most) + 1)


def _is_one_of(columns: Sequence[str], values: Sequence[tuple[str, ...]]) -> Column:
    # Spark finds a number in a list at once, and several texts one after the other. One too many would do no harm.
    return F.xxhash64(*columns).isin([F.xxhash64(*map(F.lit, value)) for value in values])


# --- single calls -------------------------------------------------------------------------------


def _singled_out(log: Log, count: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of the slowest calls with all others of their traces, and of those whose end nobody knows."""
    # First by few columns: all of them would have to be read of each record.
    few = slowest(log.records.select(*_IDENTITY, "trace_id", "total_us"), count).collect()
    traces = [row["trace_id"] for row in few if row["trace_id"] is not None]
    alone = [tuple(row[name] for name in _IDENTITY) for row in few if row["trace_id"] is None]
    wanted = F.lit(False)
    if traces:
        wanted |= F.col("trace_id").isin(traces)
    if alone:
        # The first condition is one that Parquet's statistics help with.
        names = [F.struct(*(F.lit(value).cast("bigint") for value in each)) for each in alone]
        wanted |= F.col("seq").isin([seq for *_, seq in alone]) & F.struct(*_IDENTITY).isin(names)
    found = log.records.where(wanted).orderBy(F.desc("total_us"), *_IDENTITY).limit(_TRACED)
    rows = found.withColumn("is_slow", F.lit(True))
    if log.account.unknown:
        rows = rows.unionByName(unknown(log.records, count).withColumn("is_slow", F.lit(False)))
    both = [row.asDict() for row in rows.withColumn("recv_at", F.unix_micros("recv_at")).collect()]
    slow = [row for row in both if row.pop("is_slow")]
    lost = [row for row in both if row not in slow]
    return slow, lost
