"""Records for Spark, and what it makes of them, as plain values."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any

from rpcmq.core.histogram import Histogram
from rpcmq.latency.jobs.source import SCHEMA
from rpcmq.latency.jobs.transforms import DISTRIBUTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Begin of a minute, and of an hour (seconds since 1970).
START = 1_699_999_200

_USUAL: dict[str, Any] = {
    "router": "r1", "router_id": 7, "boot": START * 1000, "seq": 1, "trace_id": None,
    "origin_router": 7, "origin_link": 99, "origin_seq": 1, "hops": 1, "kind": "call",
    "exchange": "cloud", "topic": "compute", "group": "", "target_server": "", "method": "run",
    "client": "api-1", "server": "node-1", "server_process": "node-1:nova:4711:abcd",
    "outcome": "ok", "format": "json", "req_bytes": 100, "rep_bytes": 200, "attempt": 0, "ttl_ms": None,
    "recv_at": 0.0, "queue_us": 10, "service_us": 90, "handler_us": 60, "total_us": 100, "error_class": None,
}  # fmt: skip


def record(**changes: Any) -> dict[str, Any]:
    """A record of a usual call but for ``changes``; ``recv_at`` is seconds after ``START``."""
    assert changes.keys() <= _USUAL.keys()
    made = _USUAL | changes
    return made | {"recv_at": datetime.fromtimestamp(START, UTC) + timedelta(seconds=made["recv_at"])}


def frame(spark: SparkSession, records: Iterable[dict[str, Any]]) -> DataFrame:
    """The records as Spark reads them from a log."""
    return spark.createDataFrame([tuple(each[name] for name in SCHEMA.names) for each in records], SCHEMA)


def histogram(*values: int) -> dict[str, Any]:
    """Of values, as a column of cells has it."""
    made = Histogram()
    for value in values:
        made.record(value)
    what = made.to_dict()
    return {
        "zeros": what["zero_count"],
        "sum": what["sum"],
        "min": what["min"],
        "max": what["max"],
        "buckets": [{"b": index, "c": count} for index, count in what["buckets"]],
    }


def plain(cells: DataFrame) -> list[dict[str, Any]]:
    """The rows of ``cells``, in an order of their own."""
    rows = [row.asDict(recursive=True) for row in cells.collect()]
    numbers = [name for name in rows[0] if isinstance(rows[0][name], dict | int) and name != "window"] if rows else []
    assert {*DISTRIBUTIONS} <= {*numbers} or not rows
    return sorted(rows, key=lambda row: str([row[name] for name in row if name not in numbers]))


def nearest_rank(values: list[int], q: float) -> int:
    """The quantile, exactly."""
    return sorted(values)[max(1, ceil(q * len(values))) - 1]
