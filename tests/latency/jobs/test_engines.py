"""Spark and the local engine beside each other: the same of the same log, to the last bucket."""

from __future__ import annotations

import json
import shutil
import time
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rpcmq.latency.analysis.series import MEASURES, METHOD, Series
from rpcmq.latency.jobs.batch import CELLS, report, report_of_cells
from rpcmq.latency.jobs.bounds import LAST_OF_BUCKET
from rpcmq.latency.jobs.cells import files_of
from rpcmq.latency.jobs.engine import Engine, Level, of_methods
from rpcmq.latency.jobs.inputs import opened
from rpcmq.latency.jobs.local import Local
from rpcmq.latency.jobs.local_sql import bucket
from rpcmq.latency.manifest import read
from rpcmq.latency.report.model import Report
from rpcmq.latency.selection import Selection
from tests.latency.logs import ship
from tests.latency.spools import BOOT, Sent, many, spooled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = BOOT / 1000


@pytest.fixture(scope="module")
def engines(spark: SparkSession) -> tuple[Engine, Engine]:
    from rpcmq.latency.jobs.spark import Spark

    return Spark(spark), Local()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two routers, one of which was killed; durations from none to days; damage of each kind; a path with marks."""
    directory = tmp_path_factory.mktemp("log") / "it's [all] *?"
    bounds = [0.0, 1e-6, 2e-6, 60.0, 2**28 * 1e-6, 2**30 * 1e-6, 3e5]
    extremes = [Sent(2001 + n, 3.0, seconds, min(seconds, 4000.0)) for n, seconds in enumerate(bounds)]
    spooled(directory, [*many(1, 900), *extremes], segment=1)
    spooled(directory, many(3001, 300, at=130.0), [Sent(4001, 131.0), Sent(4002, 132.0)], segment=2, dropped=3)
    spooled(directory, boot=BOOT + 1)
    spooled(directory, many(1, 500, at=59.5), router="north's", router_id=8, final=True)
    for segment, records in ((3, 40), (4, 50), (5, 60)):
        spooled(directory, many(5001 + 100 * segment, records, at=20.0), segment=segment, boot=BOOT + 1)
    ship(directory)
    damaged, gone = (path for path in sorted(read(directory).live) if "00000003" in path or "00000004" in path)
    content = bytearray((directory / damaged).read_bytes())
    content[len(content) // 2] ^= 1
    (directory / damaged).write_bytes(content)
    (directory / gone).unlink()
    shutil.copy(directory / min(read(directory).live), directory / "ready" / "stray.parquet")
    (directory / "ready" / "what.txt").write_text("?")
    return directory


@pytest.fixture(autouse=True)
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Windows are those of UTC wherever one is."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


def cells_in(directory: Path) -> list[str]:
    """All cells, whole, in an order of their own."""
    tables = [pq.ParquetFile(path).read().to_pylist() for path in files_of(directory)]
    return sorted(str(sorted(row.items())) for table in tables for row in table)


def columns_of(directory: Path) -> list[tuple[str, str]]:
    """Names and types of the cells' columns; none is ever null, though only Spark says so."""
    [first, *_] = files_of(directory)
    return [(field.name, str(field.type).replace(" not null", "")) for field in pq.ParquetFile(first).schema_arrow]


@pytest.mark.parametrize(
    ("selected", "window"),
    [
        pytest.param({}, None, marks=pytest.mark.long),
        ({"since": START + 1.25, "until": START + 61.000001}, 7),
        pytest.param({"where": {"topic": "topic-1", "kind": "call"}}, 60, marks=pytest.mark.long),
        ({"where": {"router": "north's", "error_class": "Error1"}, "since": START + 60}, None),
        ({"where": {"server": "nobody"}}, None),
    ],
    ids=["all", "a range", "values", "one router", "nothing"],
)
def test_both_engines_make_the_same_report_and_the_same_cells(
    engines: tuple[Engine, Engine], log: Path, tmp_path: Path, selected: dict[str, Any], window: int | None
) -> None:
    selection = Selection(log, **selected)
    outs = tmp_path / "spark", tmp_path / "local"

    one, other = (report(e, selection, out, window_seconds=window, top=9) for e, out in zip(engines, outs, strict=True))

    assert everything(one) == everything(other)
    assert cells_in(outs[0] / CELLS) == cells_in(outs[1] / CELLS)
    assert columns_of(outs[0]) == columns_of(outs[1])
    abouts = [json.loads((out / CELLS / "_cells.json").read_bytes()) for out in outs]
    assert abouts[0] == abouts[1]
    # And either reads what the other stored.
    again = report_of_cells(engines[0], Selection(outs[1])), report_of_cells(engines[1], Selection(outs[0]))
    same = [everything(each) | {"log": None} for each in again]
    assert same[0] == same[1]
    if not selected:
        # So it is no comparison of nothing with nothing.
        assert one.whole.records == len(rows_of_good_files(log)) > 1700
        assert {each.reason for each in one.account.set_aside} == {"corrupt", "missing", "foreign", "unlisted"}
        assert one.unknown and one.slowest and one.findings and one.whole.errors_by_class
        assert (len(one.routers), len(one.account.unsealed)) == (2, 1)


def everything(made: Report) -> dict[str, Any]:
    """All that a report has, but how long it took; histograms as values."""
    content = asdict(made) | {"seconds": None}
    levels = ("windows", "methods", "method_windows", "servers", "callers", "routers")
    return content | {name: plain(getattr(made, name)) for name in levels} | {"whole": plain([made.whole])}


def plain(found: list[Series]) -> list[Any]:
    return [
        {slot: getattr(each, slot) for slot in Series.__slots__}
        | {name: getattr(each, name).to_dict() for name in MEASURES}
        for each in found
    ]


def rows_of_good_files(log: Path) -> list[Any]:
    tables = []
    for path, file in read(log).live.items():
        if (log / path).exists() and zlib.crc32((log / path).read_bytes()) == file.crc32:
            tables.append(pq.ParquetFile(log / path).read())
    return list(pa.concat_tables(tables).to_pylist())


@pytest.mark.long
def test_both_engines_answer_the_same_questions(engines: tuple[Engine, Engine], log: Path) -> None:
    answers = []
    for engine in engines:
        with opened(engine, Selection(log)) as found:
            wanted = {
                "some": Level((*METHOD, "outcome"), 60, of_methods(found.methods[:3])),
                "none": Level(METHOD, only=of_methods([])),
                "windows": Level(("router", "error_class"), found.coarse_window),
            }
            series = {name: plain(each) for name, each in found.cells.series(found.for_findings() | wanted).items()}
            calls, newest = found.answered_calls()
            span = (found.methods, found.begin, found.end, found.coarse_window)
            answers.append((series, plain(calls), newest, span, found.raised(), found.unknown(3), found.account([])))
    assert answers[0] == answers[1]
    assert len(answers[0][5]) == 2 and answers[0][0]["some"] and not answers[0][0]["none"]
    trace = next(row["trace_id"] for row in rows_of_good_files(log) if row["trace_id"])
    one, other = (engine.trace(Selection(log), trace, 10) for engine in engines)
    assert one == other
    assert [row["trace_id"] for row in one[0]] == [trace] * 2, "both routers have one"


def test_the_local_engine_finds_the_bucket_of_every_bound() -> None:
    numbers = sorted({n for last in LAST_OF_BUCKET for n in (last - 1, last, last + 1) if 0 <= n < 1 << 63})
    table = pa.table({"us": pa.array(numbers, pa.int64())})
    with duckdb.connect() as connection:
        connection.register("numbers", table)
        found = connection.execute(f"SELECT us, {bucket('us')} FROM numbers ORDER BY us").fetchall()
    ends = LAST_OF_BUCKET[:-1]
    assert found == [(us, bisect_left(ends, us) - 1 if us else None) for us in numbers]
