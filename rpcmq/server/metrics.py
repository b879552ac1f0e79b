"""The router's totals and gauges in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["metrics_text"]

_Labels = Mapping[str, str]

#: The states of an item of a work queue.
_ITEM_STATES = ("ready", "postponed", "running", "dead")
#: Quantiles of the times of queues.
_QUANTILES = {"p50": "0.5", "p90": "0.9", "p99": "0.99"}
#: Name, kind and help of each metric of queues; the part of a queue's figures that has it; and the label of its keys.
_QUEUE_METRICS = (
    ("queue_oldest_seconds", "gauge", "Age of the oldest item of a work queue.", "oldest", "state"),
    ("queue_events_total", "counter", "What became of items, since the queue server started.", "counters", "event"),
)


def metrics_text(stats: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Return the metrics page.

    Args:
        stats: the view ``stats``: totals that never go back while the router runs.
        summary: the view ``summary`` with ``process`` and ``queue``, as ``/varz`` has it: the gauges.
    """
    process = summary["process"]
    dropped = [
        ({"verb": verb, "reason": reason}, count)
        for verb, reasons in stats["dropped"].items()
        for reason, count in reasons.items()
    ]
    published = stats["published"]
    lines = [
        *_metric("calls_total", "counter", "Calls that came in.", [({}, stats["calls"])]),
        *_metric("casts_total", "counter", "Casts and fanouts that came in.", [({}, stats["casts"])]),
        *_metric("ended_total", "counter", "Messages that have ended.", _labelled("outcome", stats["outcomes"])),
        *_metric("dropped_total", "counter", "Messages that no consumer has completed.", dropped),
        *_metric("hedges_total", "counter", "Calls several consumers may have.", _labelled("what", stats["hedges"])),
        *_metric("events_total", "counter", "Events that were published.", [({}, published.get("events", 0))]),
        *_metric("event_copies_total", "counter", "Copies for subscribers.", [({}, published.get("copies", 0))]),
        *_metric("refused_total", "counter", "Messages and links refused.", _labelled("reason", stats["refused"])),
        *_metric("notable_total", "counter", "Other events.", _labelled("what", stats["counters"])),
        *_metric("uptime_seconds", "gauge", "Since the start.", [({}, stats["uptime_seconds"])]),
        *_metric("cpu_seconds_total", "counter", "Of the process.", [({}, process["cpu_seconds"])]),
        *_metric("max_rss_bytes", "gauge", "Peak resident memory.", [({}, process["max_rss_bytes"])]),
    ]
    for name in ("links", "topics", "calls_in_flight", "stuck"):
        lines += _metric(name, "gauge", f"{name.replace('_', ' ').capitalize()}, now.", [({}, summary[name])])
    if "queue" in summary:
        lines += _queue_lines(summary["queue"])
    if "nodes" in summary:
        lines += _node_lines(summary["nodes"])
    return "".join(f"{line}\n" for line in lines)


def _queue_lines(server: Mapping[str, Any]) -> Iterator[str]:
    """The lines about the router's queue server, which is another process: what is no number is left out."""
    is_serving = int(server["state"] in ("serving", "draining"))
    yield from _metric("queue_server_up", "gauge", "Whether work queues are served.", [({}, is_serving)])
    ends = server["restarts"]
    yield from _metric("queue_server_restarts_total", "counter", "Ends of queue servers.", [({}, ends)])
    queues = server["queues"]
    yield from _metric("queue_items", "gauge", "Items of a work queue.", _by_queue(queues, "", "state", _ITEM_STATES))
    for name, kind, help, part, label in _QUEUE_METRICS:
        yield from _metric(name, kind, help, _by_queue(queues, part, label))
    still = [({"queue": queue}, figures.get("still", 0)) for queue, figures in queues.items()]
    yield from _metric("queue_still_seconds", "gauge", "Since items wait and none of the queue has moved.", still)
    yield from _times(queues)


def _node_lines(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The lines about the nodes that are plugged in, and of their own counters."""

    def of_each(field: str) -> list[tuple[_Labels, float]]:
        return [({"node": node["name"]}, node[field]) for node in nodes]

    up = [({"node": node["name"]}, int(not node["why"])) for node in nodes]
    yield from _metric("node_up", "gauge", "Whether a node that is plugged in works.", up)
    yield from _metric("node_bytes", "gauge", "Bytes that a node holds, as measured last.", of_each("size_bytes"))
    yield from _metric("node_seconds_total", "counter", "Time that a node has used.", of_each("seconds"))
    yield from _metric("node_steps_total", "counter", "Entries into a node.", of_each("steps"))
    yield from _metric("node_failures_total", "counter", "Times that a node was taken out.", of_each("failures"))
    own = [({"node": node["name"], "what": what}, value) for node in nodes for what, value in node["metrics"].items()]
    yield from _metric("node_events_total", "counter", "Counters of nodes.", own)


def _by_queue(
    queues: Mapping[str, Any], part: str, label: str, keys: Iterable[str] | None = None
) -> Iterator[tuple[_Labels, float]]:
    for queue, figures in queues.items():
        found = figures.get(part, {}) if part else figures
        for key in found if keys is None else keys:
            value = found.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield {"queue": queue, label: key}, value


def _times(queues: Mapping[str, Any]) -> Iterator[str]:
    """The lines about the times of items: waiting for an attempt, worked at, and as a whole."""
    name = "rpcmq_queue_seconds"
    yield f"# HELP {name} Times of items and attempts of a work queue."
    yield f"# TYPE {name} summary"
    for queue, figures in queues.items():
        for phase, times in figures.get("times", {}).items():
            labels = f'queue="{_escaped(queue)}",phase="{_escaped(phase)}"'
            values = [times.get(key) for key in (*_QUANTILES, "sum", "count")]
            if not all(isinstance(value, int | float) for value in values):
                continue
            *quantiles, total, count = values
            for quantile, value in zip(_QUANTILES.values(), quantiles, strict=True):
                yield f'{name}{{{labels},quantile="{quantile}"}} {value / 1e6}'
            yield f"{name}_sum{{{labels}}} {total / 1e6}"
            yield f"{name}_count{{{labels}}} {count}"


def _labelled(label: str, counts: Mapping[str, int]) -> list[tuple[_Labels, float]]:
    return [({label: name}, count) for name, count in counts.items()]


def _metric(name: str, kind: str, help: str, samples: Iterable[tuple[_Labels, float]]) -> list[str]:
    lines = [f"# HELP rpcmq_{name} {help}", f"# TYPE rpcmq_{name} {kind}"]
    for labels, value in samples:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        lines.append(f"rpcmq_{name}{{{shown}}} {value}" if shown else f"rpcmq_{name} {value}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
