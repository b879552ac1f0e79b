"""Reports of any size, made from random records: no Spark, no log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rpcmq.histogram import SCALE, Histogram
from rpcmq.latency.analysis.account import Account, SetAside
from rpcmq.latency.analysis.finding import Finding
from rpcmq.latency.analysis.hedging import HedgedCalls
from rpcmq.latency.analysis.series import METHOD, Series
from rpcmq.latency.report.model import Report

#: The beginning of all of them: 2026-03-02 06:00 UTC, seconds since 1970.
BEGIN = 1_772_431_200
OUTCOMES = ("ok", "remote_error", "timeout", "no_consumer", "overloaded", "link_lost", "cancelled", "unknown")
_SHARES = (0.9851, 0.009, 0.0005, 0.0015, 0.0015, 0.001, 0.001, 0.0004)
_TIMEOUT_US = 30_000_000
_NOBODY = -1

_NAMES = (
    ("nova", "compute", "build_and_run_instance"),
    ("nova", "compute", "get_console_output"),
    ("nova", "compute", "live_migration"),
    ("nova", "compute", "attach_volume"),
    ("nova", "compute", "reboot_instance"),
    ("nova", "conductor", "object_action"),
    ("nova", "conductor", "object_class_action_versions"),
    ("nova", "conductor", "build_instances"),
    ("nova", "scheduler", "select_destinations"),
    ("nova", "scheduler", "update_aggregates"),
    ("neutron", "q-plugin", "get_device_details"),
    ("neutron", "q-plugin", "update_device_up"),
    ("neutron", "q-plugin", "security_group_info_for_devices"),
    ("neutron", "l3_agent", "routers_updated"),
    ("neutron", "dhcp_agent", "port_update_end"),
    ("cinder", "cinder-volume", "create_volume"),
    ("cinder", "cinder-volume", "initialize_connection"),
    ("cinder", "cinder-backup", "create_backup"),
)

_Ints = npt.NDArray[np.int64]


@dataclass
class Records:
    """Columns of random records; durations in microseconds, -1 for none."""

    method: _Ints
    window: _Ints
    server: _Ints
    client: _Ints
    router: _Ints
    outcome: _Ints
    queue: _Ints
    service: _Ints
    handler: _Ints
    reply: _Ints
    total: _Ints
    request_bytes: _Ints
    reply_bytes: _Ints
    names: list[tuple[str, str, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.method)


def records(count: int, methods: int, windows: int, seed: int = 4, servers: int = 6) -> Records:
    """Records of ``methods`` methods over ``windows`` minutes; some method is in trouble from 60 % to 75 % of them."""
    random = np.random.default_rng(seed)
    weights = 1 / np.arange(1, methods + 1) ** 1.05
    # Each has at least one record, if there are as many.
    method = random.choice(methods, count, p=weights / weights.sum())
    method[: min(methods, count)] = np.arange(min(methods, count))
    random.shuffle(method)
    rate = 1 + 0.45 * np.sin(np.arange(windows) / max(windows, 2) * 5.2)
    window = np.sort(random.choice(windows, count, p=rate / rate.sum()))
    outcome = random.choice(len(OUTCOMES), count, p=_SHARES)
    server = (random.integers(0, servers, count) + method * 7) % (methods * 2 + servers)
    trouble = (window >= windows * 0.6) & (window < windows * 0.75) & (method == min(2, methods - 1))
    outcome[trouble & (random.random(count) < 0.12)] = OUTCOMES.index("timeout")
    middle = np.exp(random.normal(9.2, 1.3, methods))[method]
    service = (middle * np.exp(random.normal(0, 0.55, count)) * np.where(trouble, 6, 1)).astype(np.int64) + 80
    tail = random.random(count) < 0.006
    service[tail] = (service[tail] * (1 + random.pareto(1.3, tail.sum()) * 4)).astype(np.int64)
    service = np.minimum(service, _TIMEOUT_US - 200_000)
    queue = np.exp(random.normal(6.0, 0.6, count) + np.where(trouble, 2.5, 0)).astype(np.int64)
    service[outcome == OUTCOMES.index("timeout")] = _TIMEOUT_US - 150_000
    handler = (service * random.uniform(0.55, 0.95, count)).astype(np.int64)
    handler[(random.random(count) < 0.04) | (outcome >= 2)] = -1
    service[(outcome == 3) | (outcome == 4)] = -1
    server[service < 0] = _NOBODY
    reply = ((service - handler) * random.uniform(0.1, 0.5, count)).astype(np.int64)
    # A tenth of the services are old ones, which do not say when they sent their answers.
    reply[(handler < 0) | (random.random(count) < 0.1)] = -1
    total = queue + np.maximum(service, 0)
    lost = outcome == OUTCOMES.index("unknown")
    for column in (queue, service, handler, reply, total):
        column[lost] = -1
    return Records(
        method,
        window,
        server,
        random.integers(0, 60, count) ** 2 // 60,
        random.integers(0, 3, count),
        outcome,
        queue,
        service,
        handler,
        reply,
        total,
        random.integers(300, 4000, count),
        np.where(outcome == 0, random.integers(200, 20_000, count), 0),
        [_name(number) for number in range(methods)],
    )


def _name(number: int) -> tuple[str, str, str]:
    if number < len(_NAMES):
        return _NAMES[number]
    return ("nova", f"service-{number % 37:02d}", f"method_{number:04d}")


def grouped(
    data: Records,
    group: _Ints,
    keys: Mapping[int, Mapping[str, str | None]],
    windows: Sequence[int | None] | None = None,
) -> list[Series]:
    """The series of the records with the same ``group``, in the order of the groups, of those in ``keys``.

    Args:
        keys: group -> key.
        windows: of each record's group its window, seconds since 1970; None: no windows.
    """
    found: dict[int, Series] = {}
    for number, key in keys.items():
        found[number] = Series(dict(key), windows[number] if windows else None)
    places = 1 + max(keys, default=0)
    inside = np.isin(group, np.fromiter(keys, np.int64, len(keys)))
    combined, counts = np.unique(group[inside] * len(OUTCOMES) + data.outcome[inside], return_counts=True)
    for at, count in zip(combined.tolist(), counts.tolist(), strict=True):
        found[at // len(OUTCOMES)].outcomes[OUTCOMES[at % len(OUTCOMES)]] = count
    for name in ("total", "queue", "service"):
        for number, histogram in _histograms(group, getattr(data, name), inside).items():
            setattr(found[number], name, histogram)
    handled, told = inside & (data.handler >= 0), inside & (data.reply >= 0)
    sums = {
        "handler_us": (handled, data.handler),
        "handlers": (handled, np.ones_like(data.handler)),
        "network_us": (told, data.service - data.handler - data.reply),
        "reply_us": (told, data.reply),
        "request_bytes": (inside, data.request_bytes),
        "reply_bytes": (inside, data.reply_bytes),
    }
    for name, (chosen, values) in sums.items():
        added = np.bincount(group[chosen], values[chosen], places)
        for number, made in found.items():
            setattr(made, name, int(added[number]))
    return [found[number] for number in sorted(found) if found[number].outcomes]


def histogram_of(values: npt.ArrayLike) -> Histogram:
    """A histogram of ``values`` (microseconds)."""
    made = np.asarray(values, np.int64)
    return _histograms(np.zeros_like(made), made, made >= 0).get(0, Histogram())


def _histograms(group: _Ints, values: _Ints, inside: npt.NDArray[np.bool_]) -> dict[int, Histogram]:
    inside = inside & (values >= 0)
    group, values = group[inside], values[inside]
    if not len(group):
        return {}
    order = np.argsort(group, kind="stable")
    group, values = group[order], values[order]
    starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    # 0 is a place of its own below all buckets of whole microseconds, the first of which is -1.
    index = np.where(values > 0, np.ceil(np.log2(np.maximum(values, 1)) * 32).astype(np.int64) - 1, -2)
    combined, counts = np.unique(group * 4096 + index + 2, return_counts=True)
    made: dict[int, dict[str, Any]] = {}
    for number, total, low, high in zip(
        group[starts].tolist(),
        np.add.reduceat(values, starts).tolist(),
        np.minimum.reduceat(values, starts).tolist(),
        np.maximum.reduceat(values, starts).tolist(),
        strict=True,
    ):
        made[number] = {
            "scale": SCALE, "count": 0, "sum": total, "min": low, "max": high, "zero_count": 0, "buckets": [],
        }  # fmt: skip
    for at, count in zip(combined.tolist(), counts.tolist(), strict=True):
        into = made[at // 4096]
        into["count"] += count
        if at % 4096:
            into["buckets"].append([at % 4096 - 2, count])
        else:
            into["zero_count"] = count
    return {number: Histogram.from_dict(source) for number, source in made.items()}


def report(
    count: int = 40_000, methods: int = 12, windows: int = 60, detail: int = 40, seed: int = 4, servers: int = 6
) -> Report:
    """A report of ``count`` records; ``detail`` methods have windows."""
    if not count:
        return Report("/var/lib/rpcmq", None, None, 60, Account(), Series({}))
    data = records(count, methods, windows, seed, servers)
    seconds = [BEGIN + 60 * number for number in range(windows)]
    everything = np.zeros(len(data), np.int64)
    whole = grouped(data, everything, {0: {}})[0]
    names = [dict(zip(METHOD, name, strict=True)) for name in data.names]
    by_method = grouped(data, data.method, dict(enumerate(names)))
    by_method.sort(key=lambda each: -each.total.sum)
    shown = [each.key["method"] for each in by_method[:detail]]
    cells = {
        number * windows + window: key
        for number, key in enumerate(names)
        if key["method"] in shown
        for window in range(windows)
    }
    pool = int(data.server.max()) + 2
    pairs, first = np.unique(data.method * pool + data.server + 1, return_index=True)
    pools = {
        int(pair): names[pair // pool] | {"server": f"node-{pair % pool - 1:03d}" if pair % pool else None}
        for pair in pairs.tolist()
    }
    assert len(first) == len(pools)
    return Report(
        log="/var/lib/rpcmq",
        since=BEGIN + int(data.window.min()) * 60 + 0.25,
        until=BEGIN + int(data.window.max()) * 60 + 59.5,
        window_seconds=60,
        account=Account(
            files=3, shipped=count, counted=count, in_range=count, unknown=whole.outcomes.get("unknown", 0)
        ),
        whole=whole,
        windows=grouped(data, data.window, {number: {} for number in range(windows)}, seconds),
        methods=by_method,
        method_windows=grouped(data, data.method * windows + data.window, cells, seconds * methods),
        servers=grouped(data, data.method * pool + data.server + 1, pools),
        callers=grouped(data, data.client, {number: {"client": f"api-{number:02d}.1f3a"} for number in range(60)}),
        routers=grouped(data, data.router, {number: {"router": f"router-{'abc'[number]}"} for number in range(3)}),
        slowest=slowest(min(8, count), seed),
        unknown=[row(seq=number, outcome="unknown", method=data.names[0][2]) for number in range(min(5, count // 100))],
        findings=findings() if count > 1 else [],
        seconds={
            "start Spark": 5.31,
            "check files": 0.42,
            "read and sum": 12.84,
            "collect": 1.07,
            "slowest calls": 2.2,
        },
    )


def hedged(methods: int = 1) -> list[HedgedCalls]:
    """Methods of which several servers had calls: of the first a hundred, ninety of them to its advantage."""
    found = [
        HedgedCalls(dict(zip(METHOD, _name(number), strict=True)), calls=10_000, hedged=100, extra=100, not_begun=100)
        for number in range(methods)
    ]
    first = found[0]
    first.won, first.not_begun, first.ran_on, first.finished, first.differing = 90, 9, 88, 3, 2
    first.extra_us = 90_000_000
    first.answered = histogram_of([60_000] * 90)
    first.first = histogram_of([1_060_000] * 90)
    first.gained = histogram_of([1_000_000] * 90)
    return found


def findings() -> list[Finding]:
    """Four of them, the most important first."""
    return [
        Finding(
            "compute.live_migration: 3.1 % of 1,894 calls timed out, p99 is 29.9 s",
            "61 % of all time-outs come from it, nearly all between 06:36 and 06:45. Look at its servers' handlers.",
            0.93,
            {"exchange": "nova", "topic": "compute", "method": "live_migration"},
        ),
        Finding(
            "node-014 is slower than its equals: 21 % of its calls are above their pool's p95",
            "5 % are to be expected. It runs 3 methods and is slow with all of them: look at the machine.",
            0.71,
            {"server": "node-014"},
        ),
        Finding(
            "q-plugin.get_device_details: 44 % of its time is spent in queues",
            "Its servers take all that they allow at a time. Raise their limit or add servers.",
            0.52,
            {"exchange": "neutron", "topic": "q-plugin", "method": "get_device_details"},
        ),
        Finding("17 calls have an end that nobody knows", "A router died while they were under way.", 0.2),
    ]


def unbalanced(of: Report) -> Report:
    """``of`` with files set aside, holes, and an account in which 433 records are missing."""
    of.account.set_aside = [
        SetAside(
            "ready/1-1772431200000-00000007.parquet", "corrupt", "page checksum of column total_us is wrong", 5000
        ),
        SetAside("ready/2-1772431200000-00000011.parquet", "version", "schema 2: this version reads 1", 1200),
        SetAside("ready/stray.parquet", "foreign", "no segment of a dispatch log", None),
    ]
    of.account.shipped = of.account.counted + 6200 + 433
    of.account.holes, of.account.dropped, of.account.missing_segments = 219, 150, 2
    return of


def row(**changes: Any) -> dict[str, Any]:
    """A row of the dispatch log, with all of its columns."""
    made: dict[str, Any] = {
        "router": "router-a", "router_id": 1, "boot": BEGIN * 1000, "seq": 1, "trace_id": None, "origin_router": 1,
        "origin_link": 7, "origin_seq": 1, "hops": 0, "kind": "call", "exchange": "nova", "topic": "compute",
        "group": "", "target_server": "", "method": "reboot_instance", "client": "api-01.1f3a", "server": "node-001",
        "server_process": "node-001.77", "outcome": "ok", "format": "json", "req_bytes": 812, "rep_bytes": 2120,
        "attempt": 0, "ttl_ms": 60_000, "recv_at": BEGIN * 1_000_000, "queue_us": 410, "service_us": 81_000,
        "handler_us": 74_000, "total_us": 81_410, "error_class": None, "reply_us": None,
    }  # fmt: skip
    made |= changes
    if made["outcome"] == "unknown":
        made |= dict.fromkeys(("queue_us", "service_us", "handler_us", "total_us", "reply_us"))
    return made


def slowest(traces: int, seed: int = 4) -> list[dict[str, Any]]:
    """Records of ``traces`` traces: a call that crosses a router and makes calls of its own; the last has no trace."""
    random = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    seq = 100
    for number in range(traces):
        trace = random.bytes(16).hex() if number < traces - 1 or traces == 1 else None
        begin = BEGIN * 1_000_000 + number * 400_000_000
        total = int(29_900_000 / (1 + number * 0.6))
        ends = "timeout" if number == 0 else "ok"
        common = {"trace_id": trace, "boot": BEGIN * 1000}
        queue = int(total * 0.03)
        handler = None if ends == "timeout" else int(total * 0.9)
        # The last service is an old one, which does not say when it sent its answer.
        reply = None if handler is None or trace is None else total // 50
        outer = row(**common, seq=seq, origin_seq=seq, method="live_migration", recv_at=begin, queue_us=queue,
                    outcome=ends, service_us=total - queue, handler_us=handler, total_us=total,
                    reply_us=reply)  # fmt: skip
        rows.append(outer)
        if trace is None:
            continue
        inner = int(total * 0.96)
        rows.append(outer | {"router": "router-b", "router_id": 2, "hops": 1, "seq": seq + 40, "queue_us": 1200,
                             "recv_at": begin + 31_000, "service_us": inner - 1200, "total_us": inner})  # fmt: skip
        at = begin + int(total * 0.06)
        for nested in range(int(random.integers(0, 7))):
            took = int(total * random.uniform(0.02, 0.22))
            exchange, topic, method = _NAMES[(nested * 5 + number) % len(_NAMES)]
            rows.append(row(**common, router="router-b", router_id=2, seq=seq + 50 + nested, origin_router=2,
                            origin_seq=seq + 50 + nested, exchange=exchange, topic=topic, method=method, recv_at=at,
                            client="node-001.77", server=f"node-{nested:03d}", queue_us=took // 9,
                            service_us=took - took // 9, handler_us=took // 2, total_us=took,
                            reply_us=took // 10))  # fmt: skip
            at += took + 9000
        seq += 100
    return rows
