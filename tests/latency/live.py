"""The expected contents of the router's live view, counted from the records in its log in the plainest way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

__all__ = ["Ended", "histogram", "live_name", "methods"]


class Ended(NamedTuple):
    """Of a record: what its row in the view is named by, and what counts there."""

    name: str
    method: str
    outcome: str
    total_us: int


def live_name(exchange: str, topic: str, target_server: str, group: str) -> str:
    """The name of a message's destination as the view writes it."""
    name = f"{topic}.{target_server}" if target_server else topic
    name = f"{exchange}/{name}" if exchange else name
    return f"{name} (group {group})" if group else name


def methods(records: Iterable[Ended]) -> dict[tuple[str, str], dict[str, Any]]:
    """Outcomes and histogram for each (topic, method)."""
    found: dict[tuple[str, str], list[Ended]] = {}
    for record in records:
        found.setdefault((record.name, record.method), []).append(record)
    return {
        key: {
            "outcomes": dict(Counter(record.outcome for record in ended)),
            "histogram": histogram([record.total_us for record in ended]),
        }
        for key, ended in found.items()
    }


def histogram(values: list[int]) -> dict[str, Any]:
    """The histogram of whole microseconds, in integers only: bucket i has (base**i, base**(i + 1)], base**32 = 2."""
    buckets = Counter((value**32 - 1).bit_length() - 1 for value in values if value)
    return {
        "scale": 5,
        "count": len(values),
        "sum": sum(values),
        "min": min(values, default=None),
        "max": max(values, default=None),
        "zero_count": values.count(0),
        "buckets": [list(each) for each in sorted(buckets.items())],
    }
