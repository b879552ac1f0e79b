"""The report for programs: plain data whose names stay. docs/latency-json.md describes it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rpcmq import __version__
from rpcmq.histogram import Histogram
from rpcmq.latency.analysis.errors import failures
from rpcmq.latency.analysis.hedging import COUNTS, DURATIONS, HedgedCalls
from rpcmq.latency.analysis.quantities import percentile_name
from rpcmq.latency.analysis.series import MEASURES, Series
from rpcmq.latency.report.model import Report
from rpcmq.latency.report.numbers import QUANTILES, mean, quantile, stages

__all__ = ["VERSION", "document_of"]

#: Of what the document looks like: raised when a name goes or changes its meaning, not when one is added.
VERSION = 2


def document_of(report: Report) -> dict[str, Any]:
    """See ``rpcmq.latency.report.as_json``."""
    return {
        "version": VERSION,
        "rpcmq": __version__,
        "log": report.log,
        "since": report.since,
        "until": report.until,
        "window_seconds": report.window_seconds,
        "account": report.account.as_json(),
        "findings": [asdict(each) for each in report.findings],
        "whole": _series(report.whole),
        "windows": [_series(each) for each in report.windows],
        "methods": [_series(each) for each in report.methods],
        "servers": [_series(each) for each in report.servers],
        "callers": [_series(each) for each in report.callers],
        "routers": [_series(each) for each in report.routers],
        "slowest": [dict(row) for row in report.slowest],
        "unknown": [dict(row) for row in report.unknown],
        "hedged": [_hedged(each) for each in report.hedged],
        "hedged_left_out": report.hedged_left_out,
        "server": report.server,
        "seconds": dict(report.seconds),
    }


def _series(each: Series) -> dict[str, Any]:
    made: dict[str, Any] = {
        "key": dict(each.key),
        "window": each.window,
        "records": each.records,
        "errors": each.errors,
        "timeouts": each.outcomes.get("timeout", 0),
        "outcomes": dict(each.outcomes),
        "errors_by_class": [
            {"outcome": outcome, "error_class": error, "records": number}
            for outcome, error, number in failures(each)
            if error is not None
        ],
        "request_bytes": each.request_bytes,
        "reply_bytes": each.reply_bytes,
        "stages_us": {name: float(value) for name, value in stages(each).items()},
    }
    return made | {f"{measure}_us": _measure(getattr(each, measure)) for measure in MEASURES}


def _hedged(each: HedgedCalls) -> dict[str, Any]:
    numbers: dict[str, Any] = {"key": dict(each.key)} | {name: getattr(each, name) for name in COUNTS}
    return numbers | {f"{name}_us": _measure(getattr(each, name)) for name in DURATIONS}


def _measure(histogram: Histogram) -> dict[str, Any]:
    found = {percentile_name(q): quantile(histogram, q) for q in QUANTILES}
    return {
        "count": histogram.count,
        "sum": histogram.sum,
        "mean": mean(histogram),
        "min": histogram.min,
        "max": histogram.max,
    } | {name: asdict(each) if each else None for name, each in found.items()}
