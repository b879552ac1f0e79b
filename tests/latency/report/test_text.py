"""The report in short."""

from __future__ import annotations

import pytest

from rpcmq.latency.analysis.account import Life, SetAside
from rpcmq.latency.report import Report, summary
from rpcmq.latency.report.text import COLUMNS
from tests.latency.report import reports


def hostile() -> Report:
    of = reports.unbalanced(reports.report(300, 14, 4))
    of.log = "/" + "d" * 300
    for each in of.methods:
        each.key = {"exchange": "e\x1b[31m" * 40, "topic": "t\n" * 80, "method": "\u202em" * 90}
        each.outcomes = {"ok": 10**12, "timeout": 10**12}
    of.account.shipped = of.account.counted = 10**15
    return of


@pytest.mark.parametrize(
    "report",
    [reports.report(0), reports.report(1, 1, 1), reports.unbalanced(reports.report(3_000, 30, 20)), hostile()],
    ids=["none", "one", "much", "hostile"],
)
def test_fits_a_terminal(report: Report) -> None:
    text = summary(report)
    assert text.endswith("\n")
    lines = text.splitlines()
    assert max(map(len, lines)) <= COLUMNS
    assert all(line.isprintable() for line in lines)


def test_says_the_account_first() -> None:
    lines = summary(reports.report(3_000, 3, 5)).splitlines()
    assert lines[1] == "Account OK: 3,000 rows shipped = 3,000 counted + 0 set aside"
    lines = summary(reports.unbalanced(reports.report(3_000, 3, 5))).splitlines()
    assert lines[1] == "Account DOES NOT BALANCE: 9,633 rows shipped is not 3,000 counted + 6,200 set aside"
    assert lines[2].startswith("  3 files set aside, 219 holes (150 dropped by routers), 2 missing segments")


def test_what_is_missing_is_not_ok() -> None:
    of = reports.report(3_000, 3, 5)
    of.account.set_aside = [SetAside("ready/a.parquet", "corrupt", "checksum", 1144)]
    of.account.shipped += 1144
    of.account.unsealed = [Life("r1", 1_700_000_000_000, 1_700_000_060.0, 3, 2100)] * 5
    lines = summary(of).splitlines()
    assert lines[1] == "Account INCOMPLETE (28 % missing): 4,144 rows shipped = 3,000 counted + 1,144 set aside"
    assert sum("ended without a seal, wrote last at" in line for line in lines) == 3
    assert "  2 more lives ended without a seal" in lines


def test_errors_are_named_by_what_was_raised() -> None:
    of = reports.report(3_000, 3, 5)
    of.whole.outcomes = {"ok": 1917, "remote_error": 1083}
    of.whole.errors_by_class = {("remote_error", "KeyError"): 546, ("remote_error", "ValueError\x1b[2J"): 530}
    assert "1,083 did not end well: 546 KeyError, 530 ValueError" in summary(of)
    assert "7 remote_error" in summary(of) and "\x1b" not in summary(of)


def test_calls_that_several_servers_had() -> None:
    of = reports.report(3_000, 3, 5)
    assert "everal servers" not in summary(of)
    of.hedged = reports.hedged(2)
    text = " ".join(summary(of).split())
    assert (
        "Several servers had 200 calls (1.00 % of their methods'), which took 200 extra requests. Another server than "
        "the first answered 90 of them, half of these sooner by 1.00 s at least. Results of 2 of 3 differed."
    ) in text
    of.hedged = of.hedged[1:]
    assert "The first server answered all of them: nothing was gained." in " ".join(summary(of).split())


def test_names_three_findings() -> None:
    text = " ".join(summary(reports.report(3_000, 3, 5)).split())
    assert [each.what in text for each in reports.findings()] == [True, True, True, False]


def test_methods_with_their_percentiles() -> None:
    of = reports.report(3_000, 3, 5)
    lines = summary(of).splitlines()
    [head] = [number for number, line in enumerate(lines) if line.startswith("method ")]
    assert lines[head].split() == ["method", "records", "rate", "errors", "p50", "p95", "p99", "max"]
    assert len(lines) == head + 4
    first = of.methods[0]
    p50 = first.total.quantile(0.5)
    assert p50 is not None
    assert lines[head + 1].startswith(f"{first.key['exchange']}/{first.key['topic']}.{first.key['method']} ")
    assert f"{first.records:,}" in lines[head + 1]
    assert f" {p50 / 1000:.3g}" in lines[head + 1]


def test_n_too_small() -> None:
    assert summary(reports.report(1, 1, 1)).count("n too small") == 3


def test_what_is_left_out() -> None:
    assert "20 more methods; these have the most total time\n" in summary(reports.report(3_000, 30, 5))


def test_nothing() -> None:
    assert summary(reports.report(0)).splitlines() == [
        "/var/lib/rpcmq: no records",
        "Account OK: 0 rows shipped = 0 counted + 0 set aside",
    ]
