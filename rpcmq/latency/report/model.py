"""A report as data: the source of page, pictures, text and JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rpcmq.latency.analysis.account import Account
from rpcmq.latency.analysis.finding import Finding
from rpcmq.latency.analysis.hedging import HedgedCalls
from rpcmq.latency.analysis.series import Series

__all__ = ["Report"]


@dataclass(slots=True)
class Report:
    """A dispatch log within a range of time.

    Attributes:
        log: the directory.
        since, until: the range of receive times that has records, seconds since 1970; None: there are none.
        window_seconds: length of the windows.
        account: of what was read.
        whole: everything.
        windows: everything, by window, in order; windows without records are left out.
        methods: by exchange, topic, method; those with the most total time first.
        method_windows: the same by window, of the methods that the page shows in detail; the total durations only.
        servers: by exchange, topic, method and server.
        callers: by client.
        routers: by router.
        slowest: rows of the dispatch log (``schema.COLUMNS``, ``recv_at`` in microseconds since 1970): all records of
            the traces in which the slowest calls are, or the slowest calls themselves where they have no trace.
        unknown: rows of calls whose end nobody knows, newest first, some of them.
        hedged: methods of which several servers had calls, those with the most extra deliveries first.
        hedged_left_out: why these are not all, or none; empty: they are all.
        server: of whose records alone the figures are; None: of those of all servers.
        findings: what to look at first.
        seconds: how long each step took, by its name.
    """

    log: str
    since: float | None
    until: float | None
    window_seconds: int
    account: Account
    whole: Series
    windows: list[Series] = field(default_factory=list)
    methods: list[Series] = field(default_factory=list)
    method_windows: list[Series] = field(default_factory=list)
    servers: list[Series] = field(default_factory=list)
    callers: list[Series] = field(default_factory=list)
    routers: list[Series] = field(default_factory=list)
    slowest: list[dict[str, Any]] = field(default_factory=list)
    unknown: list[dict[str, Any]] = field(default_factory=list)
    hedged: list[HedgedCalls] = field(default_factory=list)
    hedged_left_out: str = ""
    server: str | None = None
    findings: list[Finding] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
