"""The ranking of slow methods, in logs made with one trouble each."""

from __future__ import annotations

import numpy as np
import pytest

from rpcmq.latency.analysis.account import Account, SetAside
from rpcmq.latency.analysis.finding import Finding
from rpcmq.latency.analysis.rankings import by_queueing, by_tail, by_total_time, tail_us
from rpcmq.latency.analysis.series import Series
from rpcmq.latency.analysis.slow import findings
from tests.latency.analysis.samples import histogram, joined, lognormal, series

MINUTE = 60
BEGIN = 1_700_000_040


def found(
    methods: list[Series],
    *,
    windows: list[Series] | None = None,
    method_windows: list[Series] | None = None,
    servers: list[Series] | None = None,
    account: Account | None = None,
) -> list[Finding]:
    whole = joined(methods) if methods else Series({})
    whole.key = {}
    account = account or Account(shipped=whole.records, counted=whole.records, in_range=whole.records)
    made = findings(whole, windows or [], methods, method_windows or [], servers or [], account)
    assert [each.weight for each in made] == sorted((each.weight for each in made), reverse=True)
    assert all(0 <= each.weight <= 1 and each.what and each.why for each in made)
    return made


def calm(count: int = 10_000, method: str = "list", **more: object) -> Series:
    return series(lognormal(np.random.default_rng(len(method)), count, 2000, 0.3), method, **more)  # type: ignore[arg-type]


def test_a_calm_log_has_only_who_takes_the_time() -> None:
    [only] = found([calm(), calm(100, "show")])
    assert only.what == "compute.list takes 99 % of all time"
    assert only.key == {"exchange": "", "topic": "compute", "method": "list"}
    assert only.weight <= 0.3


def test_a_log_without_records_says_so() -> None:
    [only] = found([])
    assert only.what == "The log has no records"


def test_an_account_that_does_not_balance_comes_before_all_else() -> None:
    damaged = SetAside("ready/a.parquet", "corrupt", "a page's checksum is wrong", 700)
    account = Account(shipped=20_000, counted=10_000, set_aside=[damaged], holes=50, dropped=20)
    account.missing_segments = 2
    first = found([calm(errors=5000), calm(3, "show", errors=3, outcome="unknown")], account=account)
    assert [each.what for each in first[:4]] == [
        "The account does not balance: +9,300 records",
        "1 file could not be read: corrupt",
        "2 spool files of a router never arrived",
        "20 records dropped by a router",
    ]
    assert {"30 messages without a record", "The end of 3 calls is unknown"} <= {each.what for each in first}


def test_errors_name_what_failed_where() -> None:
    first = found([calm(errors=400), calm(1000, "show", errors=10)])[0]
    assert first.what == "3.7 % of all records did not end well: 410 timeout"
    assert "98 % of them are of compute.list, where 4 % fail (400 timeout)" in first.why
    assert first.key["method"] == "list"


def test_a_burst_of_errors_names_its_time() -> None:
    windows = [series([100] * 1000, window=BEGIN + MINUTE * n, errors=200 if n == 7 else 1) for n in range(30)]
    whole = joined(windows)
    burst = next(each for each in found([whole], windows=windows) if "of all errors came" in each.what)
    assert burst.what == "87 % of all errors came in 1 window out of 30"
    assert "2023-11-14 22:21:00 UTC" in burst.why


def test_a_long_tail_says_whether_it_is_waiting_or_work() -> None:
    chance = np.random.default_rng(1)
    values = np.concatenate([lognormal(chance, 9800, 2000, 0.2), np.full(200, 3_000_000.0)])
    slow = series(values, "boot", queue=[100] * 10_000)
    tail = next(each for each in found([slow, calm()]) if "long tail" in each.what)
    assert tail.key["method"] == "boot"
    assert "at the server (p99 3.00 s)" in tail.why.replace("3 s", "3.00 s")
    waiting = series(values, "boot", queue=values)
    waiting.service = histogram([100] * 10_000)
    tail = next(each for each in found([waiting, calm()]) if "long tail" in each.what)
    assert "spent waiting" in tail.why


def test_queueing_names_the_method_that_waits() -> None:
    chance = np.random.default_rng(2)
    values = lognormal(chance, 5000, 50_000, 0.3)
    queue = next(each for each in found([series(values, "boot", queue=values * 0.8)]) if "waits" in each.what)
    assert queue.what.startswith("compute.boot waits for a server for 80 % of its time")


def test_a_slow_server_is_named_with_its_worst_method() -> None:
    chance = np.random.default_rng(3)
    servers = [series(lognormal(chance, 2000) * (2 if n == 3 else 1), "boot", server=f"node-{n}") for n in range(8)]
    [slow] = [each for each in found([joined(servers)], servers=servers) if "slower than its equals" in each.what]
    assert slow.what.startswith("node-3 is slower")
    assert slow.key["server"] == "node-3"


def by_minute(heights: list[float], method: str = "boot", count: int = 600) -> list[Series]:
    chance = np.random.default_rng(4)
    return [
        series(lognormal(chance, count, 5000, 0.4) * height, method, window=BEGIN + MINUTE * n)
        for n, height in enumerate(heights)
    ]


def test_a_change_is_reported_of_the_method_or_of_everything() -> None:
    changed = by_minute([1.0] * 20 + [3.0] * 10)
    by_method = found([joined(changed)], windows=changed, method_windows=changed)
    [one] = [each for each in by_method if "rose" in each.what]
    assert one.what.startswith("p99 of compute.boot rose 3")
    assert one.what.endswith("times from 2023-11-14 22:34:00 UTC")
    assert one.why.endswith("and stayed there; chance does not make that. Look for what changed at that time.")
    [one] = [each for each in found([joined(changed)], windows=changed) if "rose" in each.what]
    assert one.what.startswith("p99 of everything together rose 3")


def test_rankings_are_by_what_they_say() -> None:
    busy = series([1000] * 10_000, "busy", queue=[10] * 10_000)
    tailed = series([1000] * 900 + [50_000] * 100, "tailed", queue=[20] * 1000)
    waiting = series([5000] * 500, "waiting", queue=[4900] * 500)
    methods = [waiting, tailed, busy]
    assert [each.series.key["method"] for each in by_total_time(methods)] == ["busy", "tailed", "waiting"]
    assert by_tail(methods)[0].series.key["method"] == "tailed"
    assert by_queueing(methods)[0].series.key["method"] == "waiting"
    whole = sum(each.total.sum for each in methods)
    assert by_queueing(methods)[0].share == pytest.approx(500 * 4900 / whole)
    assert by_total_time([]) == []


def test_the_tail_is_what_the_slowest_twentieth_takes_longer() -> None:
    # 50 of the 100 slow ones are above p95.
    values = histogram([1000] * 900 + [50_000] * 100)
    assert tail_us(values) == pytest.approx(50 * 49_000, rel=0.02)
    assert tail_us(histogram([1000] * 1000)) == 0
    assert tail_us(histogram([])) == 0
