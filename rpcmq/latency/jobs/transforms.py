"""From records of the dispatch log to latencies that can be merged: DataFrame in, DataFrame out.

A *cell* is what the records of one time window with the same dimensions add up to. Cells are what is stored; whatever
is coarser, in time or in what it groups by, is a rollup of them, which again has the columns of cells:

=====================  =====================================================================================
window                 when the window begins, seconds since 1970; not there when windows were given up
the dimensions         of ``series.DIMENSIONS``, those that were kept; always the outcome
records                how many there are
total, queue, service  a histogram of these durations (microseconds), with the same buckets as
                       ``core.histogram``: ``zeros``, ``sum``, ``min``, ``max`` (null: no durations), and ``buckets``,
                       an array of ``b`` (index) and ``c`` (count), sorted by index
handler_us, handlers   sum of the handlers' times, and of how many records that is
network_us, reply_us   sums over the records whose handler's time and way back are known: the way there with the
                       wait in the service, and the way back. With the handlers' they are all of the time at the server
request_bytes          sums
reply_bytes
between_us             sum of the ways to other routers and back: they are in no histogram but ``total``
=====================  =====================================================================================

Records of unknown outcome have no durations: they count in ``records`` only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from rpcmq.latency.analysis.series import DIMENSIONS, METHOD
from rpcmq.latency.jobs.bounds import LAST_OF_BUCKET, NEAR_IS_EXACT, PER_OCTAVE
from rpcmq.latency.jobs.cells import DISTRIBUTIONS, SUMS
from rpcmq.latency.jobs.engine import Level, Only
from rpcmq.latency.schema import IDENTITY, UNKNOWN
from rpcmq.latency.selection import columns_of_trace

__all__ = [
    "bucket",
    "cells",
    "error_counts",
    "measured",
    "of_trace",
    "rollup",
    "rollups",
    "selected",
    "slowest",
    "unknown",
    "window_of",
]


def bucket(microseconds: Column) -> Column:
    """Index of the bucket in which ``core.histogram`` counts an integer above zero; null for zero, below, and null.

    A logarithm finds it. Large integers that are next to a bound may be on the wrong side of it by a rounding error,
    and are compared with the bound itself.
    """
    near = F.greatest(F.ceil(F.log2(microseconds) * PER_OCTAVE) - 1, F.lit(-1))
    # As one text, which is an array before the first row is read: two thousand literals took Spark half a second.
    last = F.split(F.lit(",".join(map(str, LAST_OF_BUCKET))), ",").cast("array<bigint>")
    is_above = microseconds > F.get(last, (near + 1).cast("int"))
    is_below = microseconds <= F.get(last, near.cast("int"))
    exact = near + is_above.cast("int") - is_below.cast("int")
    index = F.when(microseconds < NEAR_IS_EXACT, near).otherwise(exact)
    return F.when(microseconds > 0, index.cast("smallint"))


def cells(records: DataFrame, window_seconds: int = 60) -> DataFrame:
    """The cells of ``records``, which have the columns of ``schema.COLUMNS``.

    Args:
        records: at least their dimensions, receive time, durations and sizes.
        window_seconds: length of the windows, which begin at multiples of it.
    """
    keys = ("window", *DIMENSIONS)
    # Cells may be almost as many as records. So each record is moved once, to where its cell is made; and the number
    # that stands for its key is compared before the key is.
    rows = measured(records, window_seconds).select(F.xxhash64(*keys).alias("hash"), "*").repartition("hash")
    grouped = rows.groupBy("hash", *keys).agg(
        *(F.sum(name).alias(name) for name in SUMS), *(each for name in DISTRIBUTIONS for each in _collected(name))
    )
    different = {f"{name}_different": F.array_distinct(f"{name}_all") for name in DISTRIBUTIONS}
    return grouped.withColumns(different).select(*keys, *SUMS, *map(_counted, DISTRIBUTIONS))


def measured(records: DataFrame, window_seconds: int) -> DataFrame:
    """Each of ``records`` by itself: window, dimensions, ``SUMS``, and its durations (null: it has none).

    Args: as those of ``cells``.
    """
    is_known = F.col("outcome") != UNKNOWN

    def duration(name: str) -> Column:
        # greatest() passes over nulls.
        return F.when(is_known & F.col(name).isNotNull(), F.greatest(F.col(name), F.lit(0)))

    are_known = F.col("between_us").isNotNull() & F.col("service_us").isNotNull()
    between = _or_0(F.when(are_known, F.least(duration("between_us"), duration("service_us"))))
    rows = records.select(
        window_of(window_seconds).alias("window"),
        *DIMENSIONS,
        *((duration(f"{name}_us") - (between if name == "service" else 0)).alias(name) for name in DISTRIBUTIONS),
        between.alias("between"),
        F.when(is_known, F.col("handler_us")).alias("handler"),
        F.when(is_known, _reply()).alias("reply"),
        "req_bytes",
        "rep_bytes",
    )
    network = F.when(F.col("reply").isNotNull(), _spare("service", "handler") - F.col("reply"))
    return rows.select(
        "window",
        *DIMENSIONS,
        F.lit(1).cast("bigint").alias("records"),
        _or_0(F.col("handler")).alias("handler_us"),
        F.col("handler").isNotNull().cast("bigint").alias("handlers"),
        _or_0(network).alias("network_us"),
        _or_0(F.col("reply")).alias("reply_us"),
        F.col("req_bytes").alias("request_bytes"),
        F.col("rep_bytes").alias("reply_bytes"),
        F.col("between").alias("between_us"),
        *DISTRIBUTIONS,
    )


def window_of(seconds: int) -> Column:
    """The begin of the window in which a record came, seconds since 1970."""
    return (F.floor(F.unix_micros("recv_at") / (seconds * 1_000_000)) * seconds).cast("bigint")


def _spare(service: str, handler: str) -> Column:
    """Time at the server but not in the method; two clocks tell them, so the latter may seem to be the longer one."""
    return F.greatest(F.col(service) - F.col(handler), F.lit(0))


def _reply() -> Column:
    """The reply time of one record, clamped; null if unknown."""
    # greatest() and least() pass over nulls.
    are_known = F.col("reply_us").isNotNull() & F.col("handler_us").isNotNull() & F.col("service_us").isNotNull()
    return F.when(are_known, F.least(F.greatest(F.col("reply_us"), F.lit(0)), _spare("service_us", "handler_us")))


def _collected(name: str) -> list[Column]:
    """Return the columns a cell needs of one duration: all buckets that occur, in order."""
    return [
        F.count_if(F.col(name) == 0).alias(f"{name}_zeros"),
        _or_0(F.sum(name)).alias(f"{name}_sum"),
        F.min(name).alias(f"{name}_min"),
        F.max(name).alias(f"{name}_max"),
        F.sort_array(F.collect_list(bucket(F.col(name)))).alias(f"{name}_all"),
    ]


def _counted(name: str) -> Column:
    all_, different = F.col(f"{name}_all"), F.col(f"{name}_different")

    def count(index: Column, place: Column) -> Column:
        # They are in order: a bucket's end where the next one begins.
        end = F.coalesce(F.array_position(all_, F.get(different, place + 1)), F.size(all_) + 1)
        return F.struct(index.alias("b"), (end - F.array_position(all_, index)).cast("bigint").alias("c"))

    return F.struct(
        F.col(f"{name}_zeros").alias("zeros"),
        F.col(f"{name}_sum").alias("sum"),
        F.col(f"{name}_min").alias("min"),
        F.col(f"{name}_max").alias("max"),
        F.transform(different, count).alias("buckets"),
    ).alias(name)


def rollup(cells: DataFrame, by: Sequence[str], window_seconds: int | None = None) -> DataFrame:
    """Coarser cells: those with the same ``by``, outcome and window become one.

    Args:
        cells: of ``cells`` or of a rollup; several of them may have the same key.
        by: the dimensions to keep; the outcome is kept always.
        window_seconds: length of the windows, a multiple of what it was; None: no windows.
    """
    names = list(dict.fromkeys((*by, "outcome")))
    keys = list(map(F.col, names))
    if window_seconds is not None:
        keys.insert(0, _window(window_seconds).alias("window"))
        names.insert(0, "window")
    rows = _parts(cells.select(*keys, *SUMS, *DISTRIBUTIONS), names)
    return _gathered(rows.groupBy(*names, "n", "b").agg(*_sums()), names)


def rollups(cells: DataFrame, levels: Mapping[str, Level], *, are_measured: bool = False) -> DataFrame:
    """Several rollups of ``cells`` at once, which costs less than one after the other.

    Args:
        are_measured: these are records, of ``measured``. To make cells of them first would cost more.

    Returns:
        Cells with a column ``level``, the rollup's name; where a level has no window or dimension, it is null.
    """
    made = [_Set(number, name, level) for number, (name, level) in enumerate(levels.items())]
    columns = {name: column for each in made for name, column in each.columns.items()}
    marked = cells.select(*(column.alias(name) for name, column in columns.items()), "outcome", *SUMS, *DISTRIBUTIONS)
    always = ("outcome", "n", "b")
    parted = _parts_of_measured if are_measured else _parts
    rows = parted(marked, [*columns, "outcome"])
    rows = rows.select(*(column for each in made for column in each.of_measures()), *rows.columns[len(columns) :])
    parts = (
        rows.groupingSets([[*each.columns, *always] for each in made], *columns, *always)
        .agg(*_sums())
        .where(reduce(Column.__or__, (F.col(each.flag) for each in made)))
    )
    dimensions = [name for name in DIMENSIONS if name != "outcome" and any(name in each.kept for each in made)]
    names = ["level", "window", *dimensions]
    level = F.coalesce(*(F.when(F.col(each.flag), each.name) for each in made)).alias("level")
    kept = [_kept(made, name).alias(name) for name in names[1:]]
    rest = [name for name in parts.columns if name not in columns]
    return _gathered(parts.select(level, *kept, *rest), [*names, "outcome"])


class _Set:
    """A level as one of several grouping sets: its columns are its own, and null in cells that it is not of."""

    def __init__(self, number: int, name: str, level: Level) -> None:
        self.name = name
        self.kept: dict[str, str] = {each: f"{each}_{number}" for each in level.by if each != "outcome"}
        of = {self.kept[each]: F.col(each) for each in self.kept}
        if level.window_seconds is not None:
            self.kept["window"] = f"window_{number}"
            of[self.kept["window"]] = _window(level.window_seconds)
        #: True in the level's own rows, null in those of all other levels.
        self.flag = f"level_{number}"
        where = F.lit(True) if level.only is None else _is_one_of(level.only)
        self.columns = {column: F.when(where, value) for column, value in of.items()}
        self.columns[self.flag] = F.when(where, F.lit(True))
        self._measures = [n for n, each in enumerate(DISTRIBUTIONS) if each in level.measures]

    def of_measures(self) -> list[Column]:
        """The columns in ``_parts``: null in those of durations that the level is not of, as in cells."""
        if len(self._measures) == len(DISTRIBUTIONS):
            return [F.col(name) for name in self.columns]
        return [F.when(F.col("n").isin(self._measures), F.col(name)).alias(name) for name in self.columns]


def _is_one_of(only: Only) -> Column:
    if not only.values:
        return F.lit(False)
    if len(only.columns) == 1:
        return F.col(only.columns[0]).isin([value for (value,) in only.values])
    # Spark finds a number in a list at once, and several texts one after the other. One too many would do no harm.
    return F.xxhash64(*only.columns).isin([F.xxhash64(*map(F.lit, value)) for value in only.values])


def _kept(sets: Sequence[_Set], name: str) -> Column:
    """Return the value of ``name`` in the row's own level."""
    kind = "bigint" if name == "window" else "string"
    columns = [F.col(each.kept[name]) for each in sets if name in each.kept]
    return F.coalesce(*columns, F.lit(None)).cast(kind)


def selected(
    cells: DataFrame, since: float | None = None, until: float | None = None, where: Mapping[str, str] | None = None
) -> DataFrame:
    """Some of ``cells``.

    Args:
        cells: cells.
        since, until: those whose windows begin in this range, seconds since 1970, the latter not in it.
        where: dimension -> value.
    """
    if since is not None:
        cells = cells.where(F.col("window") >= since)
    if until is not None:
        cells = cells.where(F.col("window") < until)
    for name, value in (where or {}).items():
        cells = cells.where(F.col(name) == value)
    return cells


def error_counts(cells: DataFrame, most: int) -> DataFrame:
    """``names`` (exchange, topic, method, outcome, class) and ``weight`` (records) of what methods raised.

    Args:
        most: how many kinds; those with the most records.
    """
    names = (*METHOD, "outcome", "error_class")
    counted = cells.where(F.col("error_class").isNotNull()).groupBy(*names).agg(F.sum("records").alias("weight"))
    return counted.orderBy(F.desc("weight"), *names).limit(most).select(F.array(*names).alias("names"), "weight")


def _window(seconds: int) -> Column:
    return (F.floor(F.col("window") / seconds) * seconds).cast("bigint")


def _parts(cells: DataFrame, names: Sequence[str]) -> DataFrame:
    """Cells as rows: one for each bucket ``b`` of each distribution ``n``, with its count ``c``.

    The first of a distribution has its other numbers as well, the first of a cell the cell's; in others they are zero.
    """
    each = F.posexplode(F.array(*map(F.col, DISTRIBUTIONS))).alias("n", "d")
    rows = cells.select(*names, *SUMS, each)
    # Taken out before, so that a row does not carry all of its distribution's buckets.
    rest = [F.col(f"d.{name}").alias(name) for name in ("zeros", "sum", "min", "max")]
    rows = rows.select(*names, *SUMS, "n", *rest, F.posexplode_outer("d.buckets").alias("place", "bucket"))
    is_first = _or_0(F.col("place")) == 0
    return rows.select(
        *names,
        *(_once(is_first & (F.col("n") == 0), F.col(name), name) for name in SUMS),
        "n",
        "bucket.b",
        _or_0(F.col("bucket.c")).alias("c"),
        _once(is_first, F.col("zeros"), "zeros"),
        _once(is_first, F.col("sum"), "sum"),
        "min",
        "max",
    )


def _parts_of_measured(records: DataFrame, names: Sequence[str]) -> DataFrame:
    """The same of records that were ``measured``: a row for each duration."""
    pairs = (column for n, name in enumerate(DISTRIBUTIONS) for column in (F.lit(n), F.col(name)))
    each = F.stack(F.lit(len(DISTRIBUTIONS)), *pairs)
    us = F.col("us")
    return records.select(*names, *SUMS, each.alias("n", "us")).select(
        *names,
        *(_once(F.col("n") == 0, F.col(name), name) for name in SUMS),
        "n",
        bucket(us).alias("b"),
        _or_0(us > 0).alias("c"),
        _or_0(us == 0).alias("zeros"),
        _or_0(us).alias("sum"),
        us.alias("min"),
        us.alias("max"),
    )


def _sums() -> list[Column]:
    """Return the aggregates that combine several rows of ``_parts`` for the same bucket."""
    sums = [F.sum(name).alias(name) for name in (*SUMS, "c", "zeros", "sum")]
    return [*sums, F.min("min").alias("min"), F.max("max").alias("max")]


def _gathered(parts: DataFrame, names: Sequence[str]) -> DataFrame:
    """Cells again; ``parts`` has each bucket once."""
    # Spark sorts by the key here. A number is compared sooner than its texts.
    grouped = parts.groupBy(F.xxhash64(*names).alias("hash"), *names).agg(
        *(F.sum(name).alias(name) for name in SUMS), *(_distribution(n, name) for n, name in enumerate(DISTRIBUTIONS))
    )
    return grouped.drop("hash")


def _once(condition: Column, value: Column, name: str) -> Column:
    return _or_0(F.when(condition, value.cast("bigint"))).alias(name)


def _or_0(value: Column) -> Column:
    return F.coalesce(value.cast("bigint"), F.lit(0).cast("bigint"))


def _distribution(n: int, name: str) -> Column:
    def mine(column: str) -> Column:
        return F.when(F.col("n") == n, F.col(column))

    filled = F.when((F.col("n") == n) & F.col("b").isNotNull(), F.struct("b", "c"))
    return F.struct(
        _or_0(F.sum(mine("zeros"))).alias("zeros"),
        _or_0(F.sum(mine("sum"))).alias("sum"),
        F.min(mine("min")).alias("min"),
        F.max(mine("max")).alias("max"),
        F.sort_array(F.collect_list(filled)).alias("buckets"),
    ).alias(name)


def slowest(records: DataFrame, count: int) -> DataFrame:
    """The ``count`` records that took longest, the longest first."""
    return records.where(F.col("total_us").isNotNull()).orderBy(F.desc("total_us"), *IDENTITY).limit(count)


def of_trace(records: DataFrame, id: str) -> DataFrame:
    """All records of one trace, in the order in which they were received.

    Args:
        id: 32 hexadecimal digits; or a correlation id: the caller's router, link and sequence, with colons between.

    Raises:
        UsageError: ``id`` is neither.
    """
    for name, value in columns_of_trace(id).items():
        records = records.where(F.col(name) == value)
    return records.orderBy("recv_at", *IDENTITY)


def unknown(records: DataFrame, count: int) -> DataFrame:
    """Return at most ``count`` records of calls with unknown outcome, the newest first."""
    return records.where(F.col("outcome") == UNKNOWN).orderBy(F.desc("recv_at"), *IDENTITY).limit(count)
