"""Findings: what an operator should look at first, with figures.

Each kind of trouble is looked for by itself and gets a weight from 0 to 1, by how much of all records or of all time
it touches. What makes the report itself doubtful (records that are missing) comes first, then what failed, then what
was slow. The last one is always there: which method takes most of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rpcmq.latency.analysis.account import Account
from rpcmq.latency.analysis.changes import Rise, burst, rise
from rpcmq.latency.analysis.errors import failures
from rpcmq.latency.analysis.finding import Finding
from rpcmq.latency.analysis.intervals import smallest_count
from rpcmq.latency.analysis.names import method_name
from rpcmq.latency.analysis.outliers import outliers
from rpcmq.latency.analysis.rankings import by_queueing, by_tail, by_total_time
from rpcmq.latency.analysis.series import METHOD, Key, Series
from rpcmq.latency.analysis.wording import clock, count, duration, share, unsealed

__all__ = ["findings"]

#: Most findings of one kind.
_OF_A_KIND = 2


def findings(
    whole: Series,
    windows: Sequence[Series],
    methods: Sequence[Series],
    method_windows: Sequence[Series],
    servers: Sequence[Series],
    account: Account,
) -> list[Finding]:
    """Return the findings, the most important first; deterministic whatever the order of the series.

    Args:
        whole: all records.
        windows: the same by window, in the order of time.
        methods: by exchange, topic and method.
        method_windows: the same by window, in the order of time; of all methods or of those that matter.
        servers: by exchange, topic, method and server.
        account: of the log that was read.
    """
    methods, servers = sorted(methods, key=_order), sorted(servers, key=_order)
    found = [*_of_account(account, whole)]
    if whole.records:
        found += _of_errors(whole, methods)
        found += _of_error_bursts(windows)
        found += _of_tails(methods)
        found += _of_queues(methods)
        found += _of_servers(servers)
        found += _of_rises(whole, windows, methods, method_windows)
        found += _of_time(methods)
    else:
        text = "Nothing was received in the time and with the filters asked for, or nothing was shipped yet."
        found.append(Finding("The log has no records", text, 0.5))
    return sorted(found, key=lambda each: -each.weight)


def _order(series: Series) -> tuple[float, list[str]]:
    """A sort key: the series with the most total time first."""
    return -series.total.sum, [str(name) for name in series.key.values()]


def _between(low: float, high: float, value: float, full: float) -> float:
    """A weight from ``low`` to ``high``, in proportion to ``value``; ``full`` and more is ``high``."""
    return low + (high - low) * min(1.0, value / full)


def _of_account(account: Account, whole: Series) -> Iterator[Finding]:
    aside = sum(each.rows or 0 for each in account.set_aside)
    if not account.balances:
        missing = account.shipped - account.counted - aside
        text = (
            f"{account.shipped:,} were shipped, {account.counted:,} counted, {aside:,} are in files set aside. "
            "Figures of this report are wrong by that much: look at the manifest and at the directory."
        )
        yield Finding(f"The account does not balance: {missing:+,} records", text, 1.0)
    if account.set_aside:
        reasons = sorted({each.reason for each in account.set_aside})
        text = (
            f"{account.set_aside[0].path}: {account.set_aside[0].text}. {count(aside, 'record')} at least are not in."
        )
        what = f"{count(len(account.set_aside), 'file')} could not be read: {', '.join(reasons)}"
        yield Finding(what, text, 0.96)
    if account.missing_segments:
        what = f"{count(account.missing_segments, 'spool file')} of a router never arrived"
        yield Finding(what, "The shipper has not seen them: they were removed, or are still on the router.", 0.94)
    if account.dropped:
        text = "The router could not write them: the disk was full or failed. Its own log says when."
        yield Finding(f"{count(account.dropped, 'record')} dropped by a router", text, 0.92)
    if account.waiting:
        what = f"{count(account.waiting, 'complete spool file')} wait to be shipped"
        yield Finding(what, "What is in them is in no figure, and nobody ships them: run `rpcmq ship`.", 0.91)
    lost = account.holes - account.dropped - account.open
    if lost > 0:
        text = (
            "They were under way when a router died, or are in files that did not come. Their calls are in no figure."
        )
        weight = _between(0.3, 0.9, lost / max(1, account.counted + lost), 0.01)
        yield Finding(f"{count(lost, 'message')} without a record", text, weight)
    if account.unsealed:
        cost = f": up to {count(account.lost, 'record')} lost" if account.lost else ""
        what = f"{count(len(account.unsealed), 'life')} of routers ended without a seal{cost}"
        text = f"{unsealed(account.unsealed[-1])}. It was killed, crashed, or lost its power."
        weight = _between(0.3, 0.9, account.lost / max(1, account.counted + account.lost), 0.01)
        yield Finding(what, text, weight)
    if unknown := whole.outcomes.get("unknown", 0):
        text = "They were under way when a router died, and may or may not have run. The callers saw the link break."
        weight = _between(0.4, 0.9, unknown / max(1, whole.records), 0.01)
        yield Finding(f"The end of {count(unknown, 'call')} is unknown", text, weight)


def _of_errors(whole: Series, methods: Sequence[Series]) -> Iterator[Finding]:
    if whole.errors < 10 or whole.errors < 0.001 * whole.records:
        return
    part = whole.errors / whole.records
    worst = max(methods, key=lambda each: each.errors)
    what = f"{share(part)} of all records did not end well: {_outcomes(whole)}"
    why = (
        f"{share(worst.errors / whole.errors)} of them are of {method_name(worst.key)}, "
        f"where {share(worst.errors / worst.records)} fail ({_outcomes(worst)})."
    )
    yield Finding(what, why, _between(0.45, 0.9, part, 0.05), dict(worst.key))


def _outcomes(series: Series) -> str:
    return ", ".join(f"{number:,} {error or outcome}" for outcome, error, number in failures(series)[:3])


def _of_error_bursts(windows: Sequence[Series]) -> Iterator[Finding]:
    found = burst(windows)
    if found is None:
        return
    failed = sum(each.errors for each in found.windows)
    worst = max(found.windows, key=lambda each: each.errors)
    of_all = failed / sum(each.errors for each in windows)
    what = f"{share(of_all)} of all errors came in {count(len(found.windows), 'window')} out of {len(windows)}"
    why = (
        f"Worst from {clock(worst.window or 0)} UTC, when {share(worst.errors / worst.records)} did not end well "
        f"({_outcomes(worst)}); usual are {share(found.usual)}. Look for what was changed or restarted then."
    )
    yield Finding(what, why, _between(0.45, 0.85, failed / sum(each.records for each in windows), 0.02))


def _of_tails(methods: Sequence[Series]) -> Iterator[Finding]:
    for each in by_tail(methods)[:_OF_A_KIND]:
        total = each.series.total
        median, slowest = total.quantile(0.5) or 0.0, total.quantile(0.99) or 0.0
        # Durations below a millisecond do not matter, whatever their distribution.
        if total.count < smallest_count(0.99) or slowest < max(5 * median, 1000) or each.share < 0.05:
            continue
        what = f"{method_name(each.series.key)} has a long tail: p99 {duration(slowest)}, median {duration(median)}"
        why = (
            f"What its slowest 5 % take longer than the median is {share(each.share)} of all time. "
            f"{_where(each.series)}"
        )
        yield Finding(what, why, _between(0.3, 0.7, each.share, 0.5), dict(each.series.key))


def _where(series: Series) -> str:
    """Return whether the slow records of a method were slow in queues or at the server."""
    queue, service = series.queue.quantile(0.99) or 0.0, series.service.quantile(0.99) or 0.0
    if queue > service:
        return f"It is spent waiting (p99 {duration(queue)}) rather than at the server (p99 {duration(service)})."
    return f"It is spent at the server (p99 {duration(service)}) rather than waiting (p99 {duration(queue)})."


def _of_queues(methods: Sequence[Series]) -> Iterator[Finding]:
    for each in by_queueing(methods)[:_OF_A_KIND]:
        series = each.series
        own = series.queue.sum / series.total.sum if series.total.sum else 0.0
        waited = series.queue.quantile(0.99) or 0.0
        if own < 0.3 or each.share < 0.05 or waited < 1000:
            continue
        what = f"{method_name(series.key)} waits for a server for {share(own)} of its time, p99 {duration(waited)}"
        why = (
            f"That is {share(each.share)} of all time. Its servers have no credit left or are away: "
            "it takes more servers, more concurrency in each, or fewer calls. Of a call that a second server has "
            "answered (hedge_after) it is the time that the first one had it."
        )
        yield Finding(what, why, _between(0.35, 0.75, each.share, 0.5), dict(series.key))


def _of_servers(servers: Sequence[Series]) -> Iterator[Finding]:
    for each in outliers(servers)[:_OF_A_KIND]:
        worst = each.worst
        what = (
            f"{each.server} is slower than its equals: "
            f"{share(each.above / each.records)} of its records are above their p95, "
            f"not {share(each.expected / each.records)}"
        )
        why = (
            f"Most so in {method_name(worst.key)}: p95 {duration(worst.p95)} at the server, "
            f"{duration(worst.others_p95)} elsewhere. Methods were compared one by one "
            f"({count(each.records, 'record')}), so it is not what it serves."
        )
        yield Finding(what, why, _between(0.5, 0.8, each.excess - 1, 5), dict(worst.key))


def _of_rises(
    whole: Series, windows: Sequence[Series], methods: Sequence[Series], method_windows: Sequence[Series]
) -> Iterator[Finding]:
    by_method: dict[tuple[str | None, ...], list[Series]] = {}
    for each in method_windows:
        by_method.setdefault(_name(each), []).append(each)
    time = {_name(each): each.total.sum for each in methods}
    # One of them is everything together.
    asked = len(by_method) + 1
    risen: list[tuple[float, Key, Rise]] = []
    for name, series in by_method.items():
        found = rise(series, asked)
        if found is not None:
            part = time.get(name, 0.0) / whole.total.sum if whole.total.sum else 0.0
            risen.append((part, series[0].key, found))
    for part, key, found in sorted(risen, key=lambda each: -each[0] * (each[2].times - 1))[:_OF_A_KIND]:
        yield _risen(method_name(key), found, _between(0.3, 0.78, part * (found.times - 1), 0.5), key)
    if not risen:
        found = rise(windows, asked)
        if found is not None:
            yield _risen("everything together", found, _between(0.3, 0.7, found.times - 1, 4), {})


def _risen(name: str, found: Rise, weight: float, key: Key) -> Finding:
    when = f"from {clock(found.since)}" + ("" if found.lasts else f" to {clock(found.until)}")
    which = "the median" if found.quantile == 0.5 else f"p{found.quantile * 100:g}"
    what = f"{which} of {name} rose {found.times:.2g} times {when} UTC"
    after = "and stayed there" if found.lasts else "and came back"
    why = (
        f"From {duration(found.before)} to {duration(found.during)}, {after}; chance does not make that. "
        "Look for what changed at that time."
    )
    return Finding(what[0].upper() + what[1:] if found.quantile == 0.5 else what, why, weight, dict(key))


def _name(series: Series) -> tuple[str | None, ...]:
    return tuple(series.key[name] for name in METHOD)


def _of_time(methods: Iterable[Series]) -> Iterator[Finding]:
    for each in by_total_time(methods)[:1]:
        total = each.series.total
        if not total.count:
            continue
        what = f"{method_name(each.series.key)} takes {share(each.share)} of all time"
        why = (
            f"{count(each.series.records, 'record')}, median {duration(total.quantile(0.5) or 0.0)}, "
            f"p99 {duration(total.quantile(0.99) or 0.0)}. It is where a faster method gains most."
        )
        yield Finding(what, why, _between(0.1, 0.3, each.share, 1), dict(each.series.key))
