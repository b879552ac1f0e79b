"""From records to cells to series: small frames with known answers, and percentiles beside the exact ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations
from math import ceil, isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from rpcmq.errors import UsageError
from rpcmq.histogram import Histogram
from rpcmq.latency.analysis.series import DIMENSIONS, MEASURES, METHOD, Series
from rpcmq.latency.columns import ARROW
from rpcmq.latency.jobs.cells import DISTRIBUTIONS, SUMS, CellsDamaged
from rpcmq.latency.jobs.collect import by_level, series_of
from rpcmq.latency.jobs.engine import Level, Only
from rpcmq.latency.jobs.store import CELLS, read_cells, write_cells
from rpcmq.latency.jobs.transforms import (
    bucket,
    cells,
    of_trace,
    rollup,
    rollups,
    selected,
    slowest,
    unknown,
)
from rpcmq.latency.report.numbers import stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECOND = 1_000_000
QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
#: The log's columns, texts as texts.
PLAIN = pa.schema([(each.name, pa.string() if pa.types.is_dictionary(each.type) else each.type) for each in ARROW])
NOTHING: dict[str, Any] = {"zeros": 0, "sum": 0, "min": None, "max": None, "buckets": []}


def made_of(rolled: DataFrame, by: Sequence[str]) -> list[Series]:
    return series_of(rolled.toArrow(), by)


def record(seq: int, at: float = 0.0, **changed: Any) -> dict[str, Any]:
    """A record received ``at`` seconds since 1970; of everything else a little."""
    row: dict[str, Any] = {field.name: "" if field.type == pa.string() else 0 for field in PLAIN}
    durations = {"total_us": 64, "queue_us": 32, "service_us": 32, "handler_us": 20, "reply_us": 5}
    row |= {"seq": seq, "recv_at": int(at * SECOND), "kind": "call", "outcome": "ok", "server": "node-1"} | durations
    return row | {"method": "boot", "req_bytes": 100, "rep_bytes": 10, "trace_id": None} | changed


def lost(seq: int, at: float = 0.0, **changed: Any) -> dict[str, Any]:
    """A record of a call whose end nobody knows."""
    durations = dict.fromkeys(("total_us", "queue_us", "service_us", "handler_us", "reply_us", "between_us"))
    return record(seq, at, outcome="unknown", rep_bytes=0, **durations, **changed)


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(rows, PLAIN))


def some_records(count: int = 400) -> list[dict[str, Any]]:
    """Records of three minutes that differ in everything, the same ones each time."""
    chance = random.Random(4)
    found = []
    for seq in range(count):
        queue, served = int(chance.expovariate(1e-3)), int(chance.lognormvariate(8, 2))
        nobody = seq % 9 == 0
        row = record(
            seq,
            chance.uniform(0, 180),
            method=chance.choice("abc"),
            server=None if nobody else chance.choice(("node-1", "node-2")),
            client=chance.choice(("api-1", "api-2")),
            outcome=chance.choice(("ok", "ok", "timeout")),
            queue_us=queue,
            service_us=None if nobody else served,
            total_us=queue + (0 if nobody else served),
            handler_us=None if nobody or seq % 4 == 0 else served // 2,
            reply_us=None if nobody or seq % 5 == 0 else served // (1 + seq % 7),
            between_us=None,
        )
        if seq % 6 == 1 and not nobody:
            # At another router, which a service's clock is not heard from.
            row |= {"reply_us": None, "server_router": "r2", "between_us": served // (2 + seq % 3)}
        found.append(lost(seq, row["recv_at"] / SECOND, method="a") if seq % 13 == 0 else row)
    return found


def plain(found: list[Series]) -> dict[tuple[Any, ...], Any]:
    """Series as values that can be compared, by window and key."""
    made = {}
    for each in found:
        histograms = [getattr(each, name).to_dict() for name in MEASURES]
        sums = [getattr(each, name) for name in SUMS if name != "records"]
        made[each.window, *each.key.items()] = [each.outcomes, sums, *histograms]
    assert len(made) == len(found)
    return made


# --- buckets ------------------------------------------------------------------------------------


def exact_index(value: int) -> int:
    """Bucket i has the values in (base**i, base**(i + 1)], base**32 = 2: in integers only."""
    return (value**32 - 1).bit_length() - 1


@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_integer_is_in_the_bucket_of_the_live_histogram(spark: SparkSession) -> None:
    chance = random.Random(1)
    bounds = [1 << power for power in range(41 * 32)]
    for _ in range(5):
        bounds = [isqrt(bound) for bound in bounds]
    powers = [1 << power for power in range(63)]
    values = {near for each in bounds + powers for near in range(each - 2, each + 3)}
    values |= {chance.randrange(1, 1 << chance.randrange(1, 63)) for _ in range(10_000)}
    values = {value for value in values if 0 < value < 1 << 63}
    table = pa.table({"value": pa.array(sorted(values), pa.int64())})

    found = spark.createDataFrame(table).select("value", bucket(F.col("value")).alias("index")).toArrow().to_pylist()

    assert [row for row in found if row["index"] != exact_index(row["value"])] == []
    live = Histogram()
    small = [row for row in found if row["value"] <= 1 << 40]
    for row in small:
        live.record(row["value"])
    indexes = [row["index"] for row in small]
    assert live.to_dict()["buckets"] == [[index, indexes.count(index)] for index in sorted(set(indexes))]


def test_what_is_not_above_zero_is_in_none(spark: SparkSession) -> None:
    table = pa.table({"value": pa.array([None, 0, -1], pa.int64())})
    rows = spark.createDataFrame(table).select(bucket(F.col("value")).alias("index")).collect()
    assert [row["index"] for row in rows] == [None] * 3


# --- cells --------------------------------------------------------------------------------------


def cell(window: int, **columns: Any) -> dict[str, Any]:
    names = record(0)
    return {"window": window, **{name: names[name] for name in DIMENSIONS}} | columns


def test_cells_of_a_few_records(spark: SparkSession) -> None:
    records = [
        record(1, 60.0),
        record(2, 119.999999, total_us=65, queue_us=0, service_us=65, handler_us=None),
        # Of clocks' jitter.
        record(3, 61.0, total_us=-3, queue_us=-3, service_us=0, handler_us=0, reply_us=-4),
        record(4, 120.0, outcome="no_consumer", server=None, total_us=1, queue_us=1, service_us=None, handler_us=None),
        lost(5, 60.0),
        lost(6, 61.0),
    ]
    sums = {"records": 3, "handler_us": 20, "handlers": 2, "network_us": 7, "reply_us": 5, "between_us": 0}
    none = dict.fromkeys(("handler_us", "handlers", "network_us", "reply_us", "reply_bytes", "between_us"), 0)
    expected = [
        cell(
            60,
            **sums,
            request_bytes=300,
            reply_bytes=30,
            # 64 is the last of its bucket: 2 ** (192 / 32).
            total={"zeros": 1, "sum": 129, "min": 0, "max": 65, "buckets": [{"b": 191, "c": 1}, {"b": 192, "c": 1}]},
            queue={"zeros": 2, "sum": 32, "min": 0, "max": 32, "buckets": [{"b": 159, "c": 1}]},
            service={"zeros": 1, "sum": 97, "min": 0, "max": 65, "buckets": [{"b": 159, "c": 1}, {"b": 192, "c": 1}]},
        ),
        cell(
            120,
            **none | {"reply_bytes": 10},
            outcome="no_consumer",
            server=None,
            records=1,
            request_bytes=100,
            total={"zeros": 0, "sum": 1, "min": 1, "max": 1, "buckets": [{"b": -1, "c": 1}]},
            queue={"zeros": 0, "sum": 1, "min": 1, "max": 1, "buckets": [{"b": -1, "c": 1}]},
            service=NOTHING,
        ),
        cell(60, **none, outcome="unknown", records=2, request_bytes=200, **dict.fromkeys(DISTRIBUTIONS, NOTHING)),
    ]

    found = cells(frame(spark, records), 60)

    assertDataFrameEqual(found, spark.createDataFrame(expected, CELLS))


def test_records_of_unknown_outcome_count_as_outcomes_only(spark: SparkSession) -> None:
    # Should a writer give them durations, these are no durations.
    records = [record(1), lost(2), record(3, outcome="unknown")]
    (found,) = made_of(rollup(cells(frame(spark, records)), METHOD), METHOD)
    assert found.outcomes == {"ok": 1, "unknown": 2}
    assert (found.records, found.handlers, found.handler_us) == (3, 1, 20)
    assert (found.network_us, found.reply_us) == (7, 5)
    assert [getattr(found, name).count for name in MEASURES] == [1, 1, 1]


def test_the_way_there_and_the_way_back_are_of_records_that_tell_both(spark: SparkSession) -> None:
    known = {"service_us": 1000, "handler_us": 600}
    records: dict[str, tuple[dict[str, Any], int, int]] = {
        # The way back, and what is left for the way there.
        "all known": (known | {"reply_us": 100}, 300, 100),
        "at once": (known | {"reply_us": 0}, 400, 0),
        # An estimate may be out of its range.
        "below": (known | {"reply_us": -50}, 400, 0),
        "above": (known | {"reply_us": 5000}, 0, 400),
        # Two clocks.
        "long handler": (known | {"handler_us": 1200, "reply_us": 100}, 0, 0),
        "no reply": (known | {"reply_us": None}, 0, 0),
        "no handler": (known | {"handler_us": None, "reply_us": 100}, 0, 0),
        "nobody": ({"service_us": None, "handler_us": None, "reply_us": 100}, 0, 0),
        "no end": (known | {"reply_us": 100, "outcome": "unknown"}, 0, 0),
    }
    rows = [record(n, method=name, **changes) for n, (name, (changes, *_)) in enumerate(records.items())]

    found = {each.key["method"]: each for each in made_of(rollup(cells(frame(spark, rows)), METHOD), METHOD)}

    assert {name: (each.network_us, each.reply_us) for name, each in found.items()} == {
        name: (there, back) for name, (_, there, back) in records.items()
    }


def test_the_time_between_routers_is_apart_from_that_at_the_server(spark: SparkSession) -> None:
    far = {"service_us": 1000, "handler_us": 600, "reply_us": None}
    # What is between routers, and what is left at the server.
    records: dict[str, tuple[dict[str, Any], int, int]] = {
        "far": (far | {"between_us": 300}, 300, 700),
        "here": (far | {"between_us": None}, 0, 1000),
        "not told": (far | {"between_us": None, "server_router": "r2"}, 0, 1000),
        "above": (far | {"between_us": 5000}, 1000, 0),
        "below": (far | {"between_us": -5}, 0, 1000),
        "nobody": (far | {"service_us": None, "handler_us": None, "between_us": 300}, 0, 0),
        "no end": (far | {"between_us": 300, "outcome": "unknown"}, 0, 0),
    }
    rows = [record(n, method=name, **changes) for n, (name, (changes, *_)) in enumerate(records.items())]

    found = {each.key["method"]: each for each in made_of(rollup(cells(frame(spark, rows)), METHOD), METHOD)}

    assert {name: (each.between_us, each.service.sum) for name, each in found.items()} == {
        name: (between, left) for name, (_, between, left) in records.items()
    }
    assert stages(found["far"])["between"] == 300 and stages(found["here"])["between"] == 0


def test_stages_of_cells_add_up_to_the_whole(spark: SparkSession) -> None:
    records = some_records()
    made = made_of(rollup(cells(frame(spark, records)), METHOD), METHOD)
    for each in made:
        found = stages(each)
        assert sum(found.values()) == each.total.sum
        assert min(found.values()) > 0
    told = [
        (row["service_us"] - row["handler_us"], row["reply_us"])
        for row in records
        if row["handler_us"] is not None and row["reply_us"] is not None
    ]
    assert sum(each.network_us + each.reply_us for each in made) == sum(spare for spare, _ in told)
    assert sum(each.reply_us for each in made) == sum(min(told) for told in told)


def test_of_no_records_there_are_no_cells(spark: SparkSession) -> None:
    found = cells(frame(spark, []))
    assert found.columns == ["window", *DIMENSIONS, *SUMS, *DISTRIBUTIONS]
    assert made_of(rollup(found, METHOD, 60), METHOD) == []


# --- percentiles --------------------------------------------------------------------------------


def test_percentiles_are_within_1_1_percent_of_the_nearest_rank(spark: SparkSession) -> None:
    chance = np.random.default_rng(7)
    distributions = {
        "log-normal": chance.lognormal(9, 1.5, 10_000),
        "Pareto": 300 * (1 + chance.pareto(1.1, 10_000)),
        "bimodal": np.where(chance.random(5000) < 0.93, chance.normal(900, 30, 5000), chance.normal(2e6, 1e5, 5000)),
        "constant": np.full(1000, 12_345),
        "mostly zero": chance.integers(0, 2, 999) * chance.integers(0, 9, 999),
        "single": np.array([777]),
    }
    values = {name: np.sort(np.maximum(0, each).astype(np.int64)) for name, each in distributions.items()}
    parts = []
    for name, each in values.items():
        one = pa.Table.from_pylist([record(0, method=name)], PLAIN)
        some = one.take(pa.array(np.zeros(len(each), np.int64)))
        for column in ("total_us", "queue_us", "service_us"):
            some = some.set_column(PLAIN.get_field_index(column), column, pa.array(each))
        parts.append(some)
    records = spark.createDataFrame(pa.concat_tables(parts))

    found = {each.key["method"]: each for each in made_of(rollup(cells(records, 60), METHOD), METHOD)}

    assert set(found) == set(values)
    for name, each in values.items():
        for measure in MEASURES:
            histogram = getattr(found[name], measure)
            assert (histogram.count, histogram.sum) == (len(each), each.sum())
            assert (histogram.min, histogram.max) == (each[0], each[-1])
            for q in QUANTILES:
                exact = each[ceil(q * len(each)) - 1]
                assert histogram.quantile(q) == pytest.approx(exact, rel=0.011, abs=0), (name, measure, q)
    assert {found["constant"].total.quantile(q) for q in QUANTILES} == {12_345}
    assert {found["single"].total.quantile(q) for q in QUANTILES} == {777}


# --- rollups ------------------------------------------------------------------------------------


def test_parts_rolled_up_in_any_order_are_the_cells_of_all(spark: SparkSession) -> None:
    records = some_records()
    whole = cells(frame(spark, records), 120)
    parts = [cells(frame(spark, records[n::3]), 20) for n in range(3)]

    for first, second, third in list(permutations(parts))[::2]:
        two = rollup(first.union(second), DIMENSIONS, 60)
        assertDataFrameEqual(rollup(two.union(third), DIMENSIONS, 120), whole)


def test_a_coarser_grouping_is_a_rollup_of_a_finer_one(spark: SparkSession) -> None:
    made = cells(frame(spark, some_records()), 60)
    by_method = plain(made_of(rollup(made, METHOD), METHOD))
    # By way of something finer; and here, from what was finer in Spark.
    again = rollup(rollup(made, (*METHOD, "server"), 60), METHOD)
    assert plain(made_of(again, METHOD)) == by_method
    assert plain(made_of(rollup(made, (*METHOD, "client")), METHOD)) == by_method
    assert sum(sum(outcomes.values()) for outcomes, *_ in by_method.values()) == 400


def test_several_rollups_at_once_are_those_one_by_one(spark: SparkSession) -> None:
    made = cells(frame(spark, some_records()), 20)
    topic = some_records()[0]["topic"]
    levels = {
        "windows": Level((), 60),
        "methods": Level(METHOD),
        "some": Level((*METHOD, "server"), 20, Only(("topic", "method"), [(topic, "a")])),
        "none": Level(("client",), None, Only(("client",), [("nobody",)])),
        "all": Level(()),
    }

    found = by_level(rollups(made, levels).toArrow(), levels)

    for name, level in levels.items():
        chosen = made
        for column, value in zip(level.only.columns, level.only.values[0], strict=True) if level.only else ():
            chosen = chosen.where(F.col(column) == value)
        assert plain(found[name]) == plain(made_of(rollup(chosen, level.by, level.window_seconds), level.by)), name
    assert {name: len(each) for name, each in found.items()} == {
        "windows": 3,
        "methods": 3,
        # Nine windows of two servers and of none, but for what chance left out.
        "some": len({(w, *key) for w, *key in plain(found["some"])}),
        "none": 0,
        "all": 1,
    }
    assert {each.key["server"] for each in found["some"]} == {None, "node-1", "node-2"}


def test_cells_are_selected_by_the_begin_of_their_windows_and_by_values(spark: SparkSession) -> None:
    made = cells(frame(spark, [record(n, n * 30.0, client=f"api-{n % 2}") for n in range(6)]), 60)
    found = selected(made, since=60, until=120, where={"client": "api-1"}).collect()
    assert [(row["window"], row["client"], row["records"]) for row in found] == [(60, "api-1", 1)]


# --- on disk ------------------------------------------------------------------------------------


def test_cells_of_a_version_to_come_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_cells(cells(frame(spark, [record(1)]), 60), tmp_path / "cells")
    about = tmp_path / "cells" / "_cells.json"
    about.write_text(about.read_text().replace('"version": 2', '"version": 3'))
    with pytest.raises(CellsDamaged, match="cells of version 3; this rpcmq reads 2"):
        read_cells(spark, tmp_path / "cells")


# --- single calls -------------------------------------------------------------------------------


def test_single_calls_are_found(spark: SparkSession) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    records = frame(
        spark,
        [
            record(1, 3.0, total_us=500, trace_id=trace),
            record(2, 2.0, total_us=900),
            record(3, 1.0, total_us=900, origin_router=7, origin_link=-2, origin_seq=9),
            lost(4, 2.0, trace_id=trace),
            lost(5, 9.0),
            record(6, 0.0, total_us=1),
        ],
    )

    def seqs(found: DataFrame) -> list[int]:
        return [row["seq"] for row in found.select("seq").collect()]

    assert seqs(slowest(records, 3)) == [2, 3, 1]
    assert seqs(unknown(records, 1)) == [5]
    assert seqs(of_trace(records, trace.upper())) == [4, 1]
    assert seqs(of_trace(records, "7:-2:9")) == [3]
    with pytest.raises(UsageError, match="expected a trace id of 32 hexadecimal digits"):
        of_trace(records, "7:9")
