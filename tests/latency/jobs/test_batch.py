"""The report job: from a log, or from cells that were stored, to the figures that people see."""

from __future__ import annotations

import json
import signal
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gevent
import numpy as np
import pyarrow.parquet as pq
import pytest
from gevent.event import Event
from gevent.pool import Pool

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.latency_report import report_command
from rpcmq.cli.options import State
from rpcmq.client import Client, Service
from rpcmq.errors import CallTimeout, UsageError
from rpcmq.histogram import Histogram
from rpcmq.latency.analysis.errors import attach
from rpcmq.latency.analysis.series import MEASURES, METHOD, Key, Series, merged
from rpcmq.latency.analysis.slow import findings
from rpcmq.latency.jobs import batch
from rpcmq.latency.jobs.batch import CELLS, report, report_of_cells, window_for
from rpcmq.latency.jobs.cells import VERSION, CellsDamaged
from rpcmq.latency.jobs.collect import series_of
from rpcmq.latency.jobs.engine import Engine
from rpcmq.latency.jobs.inputs import opened
from rpcmq.latency.jobs.store import read_cells
from rpcmq.latency.jobs.transforms import rollup
from rpcmq.latency.manifest import read
from rpcmq.latency.report.model import Report
from rpcmq.latency.selection import Selection
from tests.latency.logs import rows, ship
from tests.latency.spools import BOOT, Sent, many, spooled
from tests.server.daemons import SECONDS, eventually, router, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = BOOT // 1000
COUNT = 3000


def plain(found: list[Series]) -> list[Any]:
    """Series as values that can be compared, in their order."""
    sums = ("handler_us", "handlers", "network_us", "reply_us", "request_bytes", "reply_bytes")
    return [
        (
            dict(each.key),
            each.window,
            each.outcomes,
            *(getattr(each, name) for name in sums),
            *(getattr(each, name).to_dict() for name in MEASURES),
        )
        for each in found
    ]


def by_name(found: list[Series]) -> list[Any]:
    return sorted(plain(found), key=str)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few thousand records of three minutes; of the last two nobody knows the end."""
    directory = tmp_path_factory.mktemp("log")
    third = COUNT // 3
    for segment in range(3):
        spooled(directory, many(1 + segment * third, third, at=60.0 * segment), segment=1 + segment)
    spooled(directory, many(9001, 1), [Sent(9002, 170.0), Sent(9003, 171.0)], segment=4)
    # Its next life: what was in flight in this one is unknown.
    spooled(directory, boot=BOOT + 1)
    ship(directory)
    return directory


class Made(NamedTuple):
    """A report, the directory that it is in, and the steps that were told."""

    report: Report
    out: Path
    steps: list[str]


@pytest.fixture(scope="module")
def made_of_log(engine: Engine, log: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    out = tmp_path_factory.mktemp("out")
    steps: list[str] = []

    def step(name: str) -> AbstractContextManager[None]:
        steps.append(name)
        return nullcontext()

    return Made(report(engine, Selection(log), out, top=5, step=step), out, steps)


def test_of_an_empty_log_there_is_a_report(engine: Engine, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    made = report(engine, Selection(tmp_path / "log"), tmp_path / "out")
    assert (made.whole.records, made.since, made.until, made.methods, made.slowest) == (0, None, None, [], [])
    assert made.account.balances
    assert read_cells(spark, tmp_path / "out").isEmpty()


def test_of_one_record_there_is_a_report(engine: Engine, tmp_path: Path) -> None:
    spooled(tmp_path / "log", [Sent(1, 5.0, queued=0.001, served=0.010)])
    ship(tmp_path / "log")
    (row,) = rows(tmp_path / "log")

    made = report(engine, Selection(tmp_path / "log"), tmp_path / "out")

    assert (made.account.shipped, made.account.counted, made.whole.outcomes) == (1, 1, {row["outcome"]: 1})
    assert (made.since, made.until) == (START + 5, START + 5)
    whole = made.whole
    assert [whole.total.quantile(q) for q in (0.5, 0.999)] == [row["total_us"]] * 2
    assert (whole.queue.sum, whole.service.sum) == (row["queue_us"], row["service_us"])
    assert (whole.handlers, whole.handler_us) == (1, row["handler_us"])
    assert [each.window for each in made.windows] == [START + 5]
    assert made.slowest == [row]
    assert made.unknown == []


def test_a_report_has_what_the_records_say(log: Path, made_of_log: Made) -> None:
    made = made_of_log.report
    expected = rows(log)
    assert made.account.in_range == made.account.counted == made.whole.records == len(expected) == COUNT + 3
    assert made.whole.outcomes == Counter(row["outcome"] for row in expected)
    assert made.window_seconds == 2
    for found, names in (
        (made.methods, METHOD),
        (made.servers, (*METHOD, "server")),
        (made.callers, ("client",)),
        (made.routers, ("router",)),
    ):
        counts = {tuple(each.key[name] for name in names): each.records for each in found}
        assert counts == Counter(tuple(row[name] for name in names) for row in expected)
    windows = Counter(row["recv_at"] // 2_000_000 * 2 for row in expected)
    assert [(each.window, each.records) for each in made.windows] == sorted(windows.items())
    # Coarser figures are the finer ones together.
    whole = plain([made.whole])
    for finer in (made.windows, made.methods, made.servers, made.callers):
        assert plain(merged(finer, ())) == whole
    # Of these the total is enough.
    of_methods, empty = merged(made.method_windows, ()), Histogram()
    assert plain(of_methods) == plain([replace(made.whole, queue=empty, service=empty)])
    assert [each.total.sum for each in made.methods] == sorted((each.total.sum for each in made.methods), reverse=True)
    check_single_calls(made, expected)
    raised = Counter((row["outcome"], row["error_class"]) for row in expected if row["error_class"])
    assert made.whole.errors_by_class == raised and len(raised) > 2
    for method in made.methods[:3]:
        mine = [row for row in expected if all(row[name] == method.key[name] for name in METHOD)]
        of_method = Counter((row["outcome"], row["error_class"]) for row in mine if row["error_class"])
        assert method.errors_by_class == of_method
    assert made.findings
    assert list(made.seconds) == made_of_log.steps


def test_stored_cells_make_the_same_report(engine: Engine, made_of_log: Made) -> None:
    made = made_of_log.report

    again = report_of_cells(engine, Selection(made_of_log.out / CELLS))

    for name in ("windows", "methods", "method_windows", "servers", "callers", "routers"):
        assert by_name(getattr(again, name)) == by_name(getattr(made, name)), name
    assert plain([again.whole]) == plain([made.whole])
    assert (again.account.counted, again.account.in_range) == (COUNT + 3, COUNT + 3)
    assert (again.account.balances, again.slowest) == (True, [])


def test_why_and_the_report_find_the_same_in_one_log(engine: Engine, log: Path, made_of_log: Made) -> None:
    for selection in (Selection(log), Selection(made_of_log.out / CELLS)):
        with opened(engine, selection) as found:
            answered = found.cells.series(found.for_findings())
            report = made_of_log.report
            assert by_name(answered["windows"]) == by_name(report.windows)
            assert by_name(answered["method windows"]) == by_name(report.method_windows)
            [whole] = merged(answered["methods"], ())
            methods, servers = answered["methods"], answered["servers"]
            attach(found.raised(), methods, whole)
            windows, method_windows = answered["windows"], answered["method windows"]
            assert findings(whole, windows, methods, method_windows, servers, found.account(methods)) == report.findings


def test_of_more_methods_and_callers_than_are_looked_at_those_that_matter_are_shown(
    engine: Engine, made_of_log: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "METHODS", 1)
    monkeypatch.setattr(batch, "_CALLERS", 1)
    whole = made_of_log.report
    assert len(whole.methods) > 1 and len(whole.callers) > 1

    made = report_of_cells(engine, Selection(made_of_log.out / CELLS))

    most = max(whole.callers, key=lambda each: each.records)
    assert plain(made.callers) == plain([most])
    assert {name_of(each.key) for each in made.servers} == {name_of(whole.methods[0].key)}
    assert by_name(made.methods) == by_name(whole.methods), "all methods are in the table"


def check_single_calls(made: Report, expected: list[dict[str, Any]]) -> None:
    """The five slowest with all of their traces, and those that nobody knows the end of."""
    known = [row for row in expected if row["total_us"] is not None]
    slowest = sorted(known, key=lambda row: (-row["total_us"], row["router_id"], row["boot"], row["seq"]))[:5]
    assert made.slowest[0] == slowest[0]
    assert all(row in made.slowest for row in slowest)
    assert len(made.slowest) == 5
    assert [row["seq"] for row in made.unknown] == [9003, 9002]


def test_stored_cells_are_asked_for_part_of_them(engine: Engine, log: Path, made_of_log: Made) -> None:
    first = START // 20 * 20 + 60
    where = {"topic": "topic-1"}

    made = report_of_cells(engine, Selection(made_of_log.out, first, first + 60, where), window_seconds=60)

    expected = [r for r in rows(log) if first <= r["recv_at"] / 1e6 < first + 60 and r["topic"] == "topic-1"]
    assert made.whole.records == len(expected) > 0
    assert {each.key["topic"] for each in made.methods} == {"topic-1"}
    assert {each.window for each in made.windows} == {row["recv_at"] // 60_000_000 * 60 for row in expected}


def test_stored_cells_that_cannot_be_read_as_asked_are_refused(
    engine: Engine, log: Path, made_of_log: Made, tmp_path: Path
) -> None:
    cells = made_of_log.out / CELLS
    with pytest.raises(UsageError, match="the stored windows are 2 s, expected a multiple"):
        report_of_cells(engine, Selection(cells), window_seconds=15)
    with pytest.raises(UsageError, match="records would count twice"):
        report_of_cells(engine, Selection(cells), made_of_log.out)
    with pytest.raises(UsageError, match="no cells"):
        report_of_cells(engine, Selection(log))
    about = json.loads((cells / "_cells.json").read_text())
    (tmp_path / "_cells.json").write_text(json.dumps(about | {"version": VERSION + 1}))
    with pytest.raises(CellsDamaged, match="cells of version 3; this rpcmq reads 2"):
        report_of_cells(engine, Selection(tmp_path))


def test_windows_suit_the_range() -> None:
    assert [window_for(seconds) for seconds in (0, 120, 121, 1800, 7200, 1e6)] == [1, 1, 2, 15, 60, 60]


# --- end to end ---------------------------------------------------------------------------------

CALLS, CASTS, HANGING = 2400, 300, 6
SERVERS = ("node-1", "node-2")
#: Seconds that a method takes.
TIMES = {"list": 0.0, "boot": 0.020}


class Endpoint:
    """Methods that take a known time, and one that fails."""

    def __init__(self) -> None:
        self.released = Event()

    def list(self, ctx: Any, number: int) -> int:
        return number

    def boot(self, ctx: Any, number: int) -> int:
        gevent.sleep(TIMES["boot"])
        return number

    def fail(self, ctx: Any, number: int) -> None:
        raise ValueError(number)

    def hang(self, ctx: Any, number: int) -> None:
        self.released.wait(SECONDS)


def load(url: str) -> Counter[tuple[str, str]]:
    """Run the clients' load; return the number of each outcome that they saw, by method."""
    seen: Counter[tuple[str, str]] = Counter()

    def call(client: Client, number: int) -> None:
        method = ("list", "boot", "list", "fail")[number % 4]
        message = {"method": method, "args": {"number": number}}
        try:
            assert client.call(None, "compute", message, timeout=SECONDS) == number
            seen[method, "ok"] += 1
        except ValueError:
            seen[method, "remote_error"] += 1

    def hang(client: Client, number: int) -> None:
        with pytest.raises(CallTimeout):
            client.call(None, "compute", {"method": "hang", "args": {"number": number}}, timeout=0.05)
        seen["hang", "timeout"] += 1

    def cast(client: Client, number: int) -> None:
        client.cast(None, "compute", {"method": "list", "args": {"number": number}})
        seen["list", "ok"] += 1

    with Client(url) as client:
        pool = Pool(32)
        todo = ((call, CALLS), (hang, HANGING), (cast, CASTS))
        greenlets = [pool.spawn(what, client, number) for what, times in todo for number in range(times)]
        assert len(gevent.joinall(greenlets, 4 * SECONDS, raise_error=True)) == len(greenlets)
    return seen


def live_view(url: str, messages: int) -> dict[tuple[str, str], dict[str, Any]]:
    """The router's own histograms, once all has ended."""
    found: list[dict[str, Any]] = []

    def is_complete() -> bool:
        found[:] = client.query("methods")["methods"]
        return sum(sum(row["outcomes"].values()) for row in found) >= messages

    with Client(url) as client:
        eventually(is_complete)
    return {(row["topic"], row["method"]): row for row in found}


def name_of(key: Key) -> tuple[str, str]:
    return str(key["topic"]), str(key["method"])


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.timeout(600)
def test_from_a_router_under_load_to_the_report(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    endpoint = Endpoint()
    with router("--dispatch-log", str(log)) as daemon:
        first, second = (Service("compute", endpoint, host=name, router=daemon.url) for name in SERVERS)
        with first, second:
            seen = load(daemon.url)
            messages = sum(seen.values())
            live = live_view(daemon.url, messages)
            endpoint.released.set()
        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code() == 0
    shipped = run("ship", "--log", str(log), "--once", "--json")
    assert shipped.returncode == 0, shipped.stderr

    arguments = ["--log", str(log), "--out", str(out), "--json", "--engine", "spark"]
    assert (report_command.main(arguments, obj=State(None), standalone_mode=False) or 0) == ExitCode.OK
    said = json.loads(capsys.readouterr().out)
    found = series_of(rollup(read_cells(spark, out), METHOD).toArrow(), METHOD)

    account = said["account"]
    assert account["shipped"] == account["counted"] == account["in_range"] == messages == CALLS + CASTS + HANGING
    assert (account["balances"], account["holes"], account["set_aside"]) == (True, 0, [])
    for counts in (
        {(m["key"]["method"], name): count for m in said["methods"] for name, count in m["outcomes"].items()},
        {(m.key["method"], name): count for m in found for name, count in m.outcomes.items()},
    ):
        assert counts == seen
    # Bucket for bucket what the router counted while it ran.
    assert {name_of(each.key): each.total.to_dict() for each in found} == {
        name: row["histogram"] for name, row in live.items()
    }
    # And what the records say, by the exact nearest rank.
    table = pq.read_table([log / path for path in read(log).live]).to_pydict()
    methods, totals = np.array(table["method"]), np.array(table["total_us"])
    for each in found:
        values = np.sort(totals[methods == each.key["method"]])
        for q in (0.5, 0.99):
            assert each.total.quantile(q) == pytest.approx(values[ceil(q * len(values)) - 1], rel=0.011, abs=0)
    stated = {each["key"]["method"]: each["total_us"]["p50"] for each in said["methods"]}
    assert all(stated[str(m.key["method"])]["value"] == m.total.quantile(0.5) for m in found if m.total.count >= 5)
    # A sleep is not shorter than asked for, but for how finely the loop's clock counts.
    boot = next(each for each in found if each.key["method"] == "boot")
    assert boot.handlers == boot.records == CALLS // 4
    assert TIMES["boot"] * 1e6 * 0.9 <= boot.handler_us / boot.handlers <= boot.service.sum / boot.records
    # All of the time is told apart or is the rest, to the microsecond.
    for method in said["methods"]:
        stages = method["stages_us"]
        assert sum(stages.values()) == method["total_us"]["sum"]
        assert min(stages.values()) >= 0
    assert {each["key"]["server"] for each in said["servers"]} == set(SERVERS)
    assert "compute" in (out / "report.html").read_text()
