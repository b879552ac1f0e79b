"""The report for programs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rpcmq.latency.report import Report, as_json
from rpcmq.latency.report.document import VERSION
from tests.latency.report import reports

DOCS = Path(__file__).parents[3] / "docs" / "latency-json.md"


@pytest.mark.parametrize(
    "report",
    [reports.report(0), reports.report(1, 1, 1), reports.unbalanced(reports.report(3_000, 30, 20))],
    ids=["none", "one", "some"],
)
def test_survives_json(report: Report) -> None:
    made = as_json(report)
    assert made["version"] == VERSION
    assert json.loads(json.dumps(made, allow_nan=False)) == made


def test_numbers_are_raw_and_have_their_intervals() -> None:
    of = reports.report(3_000, 3, 5)
    made = as_json(of)
    first, series = made["methods"][0], of.methods[0]
    assert first["key"] == series.key
    assert (first["records"], first["errors"]) == (series.records, series.errors)
    assert first["outcomes"] == series.outcomes
    p90 = first["total_us"]["p90"]
    assert p90["value"] == series.total.quantile(0.9)
    assert p90["low"] <= p90["value"] <= p90["high"]
    assert (first["total_us"]["max"], first["total_us"]["sum"]) == (series.total.max, series.total.sum)
    assert list(first["stages_us"]) == ["queued", "between", "network", "handler", "reply", "rest"]
    assert sum(first["stages_us"].values()) == series.total.sum
    assert (first["stages_us"]["network"], first["stages_us"]["reply"]) == (series.network_us, series.reply_us)
    assert first["stages_us"]["handler"] == series.handler_us
    assert [each["window"] for each in made["windows"]] == [each.window for each in of.windows]


def test_hedged_calls() -> None:
    of = reports.report(300, 3, 5)
    assert as_json(of)["hedged"] == []
    of.hedged = reports.hedged()
    (first,) = as_json(of)["hedged"]
    assert first["key"] == of.hedged[0].key
    assert (first["calls"], first["hedged"], first["won"], first["differing"]) == (10_000, 100, 90, 2)
    assert (first["gained_us"]["sum"], first["gained_us"]["p99"]) == (90_000_000, None)


def test_no_number_where_n_is_too_small() -> None:
    total = as_json(reports.report(1, 1, 1))["whole"]["total_us"]
    assert total["count"] == 1
    assert [total[name] for name in ("p50", "p90", "p95", "p99", "p99.9")] == [None] * 5


def test_account() -> None:
    account = as_json(reports.unbalanced(reports.report(300, 3, 5)))["account"]
    assert account["balances"] is False
    assert (account["shipped"], account["counted"]) == (6_933, 300)
    assert account["set_aside"][2] == {
        "path": "ready/stray.parquet",
        "reason": "foreign",
        "text": "no segment of a dispatch log",
        "records": None,
    }


def test_all_names_are_documented() -> None:
    documented = set(re.findall(r"`([^`]+)`", DOCS.read_text("utf-8")))

    def names(value: Any) -> set[str]:
        if isinstance(value, dict):
            return {name for name, inner in value.items() for name in ({name} | names(inner))}
        return {name for each in value for name in names(each)} if isinstance(value, list) else set()

    of = reports.unbalanced(reports.report(3_000, 3, 5))
    of.hedged = reports.hedged()
    made = as_json(of)
    # Outcomes, dimensions and columns are names of the log; steps have any names.
    for rows in ("slowest", "unknown", "seconds"):
        made[rows] = []
    for group in ("whole", "windows", "methods", "servers", "callers", "routers"):
        for each in made[group] if isinstance(made[group], list) else [made[group]]:
            each["outcomes"] = {}
    assert names(made) <= documented
