"""From cells as Arrow has them to series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rpcmq.histogram import Histogram
from rpcmq.latency.analysis.series import Series
from rpcmq.latency.jobs.cells import DISTRIBUTIONS, SUMS
from rpcmq.latency.jobs.engine import Level

__all__ = ["by_level", "in_order", "series_of"]


def series_of(rolled: pa.Table, by: Sequence[str]) -> list[Series]:
    """The series of ``rolled``: one for each value of ``by``, and for each window if it has windows.

    Args:
        rolled: cells, of a rollup.
        by: dimensions; outcomes become part of the series, unless they are among these.
    """
    found: dict[tuple[object, ...], Series] = {}
    for each in _each(rolled, by):
        # They differ in the outcome. The first takes in the others: it is nobody else's.
        into = found.setdefault((each.window, *each.key.values()), each)
        if into is not each:
            into.add(each)
    return list(found.values())


def by_level(rolled: pa.Table, levels: Mapping[str, Level]) -> dict[str, list[Series]]:
    """The series of each level of an engine, by its name."""
    found = {}
    for name, level in levels.items():
        rows = rolled.filter(pc.equal(rolled["level"], name))
        made = series_of(rows if level.window_seconds is not None else rows.drop_columns(["window"]), level.by)
        found[name] = in_order(made)
    return found


def in_order(found: list[Series]) -> list[Series]:
    """``found`` by window and names, so that the same log makes the same report each time."""
    return sorted(found, key=lambda each: (each.window or 0, [value or "" for value in each.key.values()]))


def _each(rolled: pa.Table, by: Sequence[str]) -> Iterator[Series]:
    columns = {name: rolled[name].to_pylist() for name in ("outcome", *SUMS)}
    keys = zip(*(rolled[name].to_pylist() for name in by), strict=True) if by else repeat((), rolled.num_rows)
    windows = rolled["window"].to_pylist() if "window" in rolled.column_names else repeat(None)
    histograms = [_histograms(rolled[name].combine_chunks()) for name in DISTRIBUTIONS]
    for place, (key, window, total, queue, service) in enumerate(zip(keys, windows, *histograms, strict=False)):
        sums = {name: columns[name][place] for name in SUMS if name != "records"}
        outcomes = {columns["outcome"][place]: columns["records"][place]}
        yield Series(dict(zip(by, key, strict=True)), window, outcomes, total, queue, service, **sums)


def _histograms(column: Any) -> Iterator[Histogram]:
    """Each row's histogram; indices and counts are taken out of Arrow all at once, for there are many of them."""
    lists = column.field("buckets")
    content = lists.flatten()
    indexes, counts = content.field("b").to_pylist(), content.field("c").to_pylist()
    place = 0
    sizes = lists.value_lengths().to_pylist()
    rest = (column.field(name).to_pylist() for name in ("zeros", "sum", "min", "max"))
    for size, zeros, total, least, most in zip(sizes, *rest, strict=True):
        end = place + size
        yield Histogram.of_counts(
            dict(zip(indexes[place:end], counts[place:end], strict=True)), zeros, total, least, most
        )
        place = end
