"""Counts of the gateway, as text for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["METRICS_TYPE", "metrics_text"]

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_GAUGES = {
    "connections": "Open WebSockets.",
    "requests": "Calls, casts and streams that run.",
    "subscriptions": "Subscriptions of browsers.",
    "patterns": "Different patterns among them.",
    "request_bytes": "Bytes of memory, about, that requests take while they run.",
    "outgoing_bytes": "Bytes that wait for browsers.",
}
_COUNTERS = {
    "opened": "WebSockets that were opened.",
    "pages": "Pages that were served.",
}
_LABELLED = {
    "refused": ("reason", "Connections and tokens that were refused."),
    "ended": ("reason", "WebSockets that have ended."),
    "messages": ("kind", "Requests by kind, and what went wrong with messages."),
}


def metrics_text(statistics: Mapping[str, Any]) -> str:
    """Return the ``statistics`` of a gateway in the text format of Prometheus."""
    return "\n".join(_lines(statistics)) + "\n"


def _lines(statistics: Mapping[str, Any]) -> Iterator[str]:
    for kind, suffix, table in (("gauge", "", _GAUGES), ("counter", "_total", _COUNTERS)):
        for name, text in table.items():
            yield from _head(f"rpcmq_gateway_{name}{suffix}", kind, text)
            yield f"rpcmq_gateway_{name}{suffix} {statistics[name]}"
    for name, (label, text) in _LABELLED.items():
        yield from _head(f"rpcmq_gateway_{name}_total", "counter", text)
        for value, count in sorted(statistics[name].items()):
            yield f'rpcmq_gateway_{name}_total{{{label}="{value}"}} {count}'


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
