"""Dropped messages: totals that never decrease, a bounded table of topics, and log lines.

A topic, its queues and its counters are forgotten when nobody uses it any more. What was lost in it is kept here.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any, NamedTuple

from rpcmq.core.common.log_limit import LogLimit

__all__ = ["REASONS", "Drop", "DropNotices", "Drops", "drop_text"]

#: Reason of a drop -> its explanation.
REASONS = {
    "expired": "its ttl or timeout passed while it waited",
    "aged out": "nobody consumed the topic in time (mailbox.max_seconds, mailbox.unclaimed_seconds)",
    "no consumer": "nobody consumes the topic",
    "queue full": "as many messages or bytes wait as queue.max_messages and queue.max_bytes allow",
    "too many calls": "as many calls are in flight as call.max_in_flight allows",
    "quarantined": "it has killed consumers, and is kept from others",
    "format not accepted": "no consumer that could take it accepts its payload format",
    "consumer lost": "the consumer that had it is gone; it may have run",
    "consumer left": "the consumer that the copy was for is gone",
    "slow subscriber": "the subscriber takes events too slowly (pubsub.max_messages, pubsub.max_bytes)",
    "subscriber left": "the subscriber that the event was for is gone",
    "purged": "an operator emptied the queue",
}
#: Memory of the table of topics, and of one row of it beside its names (bytes, estimated from above).
_MAX_TABLE_BYTES = 4 << 20
_ROW_BYTES = 1000
#: Most distinct verbs and reasons; the router's own are fewer.
_MAX_TOTALS = 200
_OTHER = ("other", "other")
#: Characters of the other names in a row.
_MAX_NAME = 100


class Drop(NamedTuple):
    """The place and reason of a drop."""

    topic: str
    #: ``call``, ``cast``, ``fanout`` or ``event``.
    verb: str
    reason: str


class Drops:
    """Drops since the start of the router.

    Args:
        max_table_bytes: memory that the table of topics may take; the topics that lost nothing for longest go first.
    """

    def __init__(self, max_table_bytes: int = _MAX_TABLE_BYTES) -> None:
        self._max_table_bytes = max_table_bytes
        self._table_bytes = 0
        self._rows: OrderedDict[Drop, _Row] = OrderedDict()
        self._totals: Counter[tuple[str, str]] = Counter()
        self._log: LogLimit[Drop] = LogLimit()
        #: Rows evicted from the table.
        self.rows_forgotten = 0

    def add(
        self, now: float, drop: Drop, count: int = 1, *, method: str = "", sender: str = "", consumer: str = "",
        log: bool = True,
    ) -> None:  # fmt: skip
        """Count ``count`` messages.

        Args:
            method, sender, consumer: of the last of them, as far as they are known.
            log: whether it is worth a line in the log.
        """
        kind = drop.verb, drop.reason
        # A process gets reasons from its router, which may be of another version, or hostile.
        if kind not in self._totals and len(self._totals) >= _MAX_TOTALS:
            kind = _OTHER
        self._totals[kind] += count
        row = self._rows.get(drop)
        if row is None:
            row = self._rows[drop] = _Row()
            self._table_bytes += _ROW_BYTES + 4 * len(drop.topic)
            while self._table_bytes > self._max_table_bytes:
                old, _ = self._rows.popitem(last=False)
                self._table_bytes -= _ROW_BYTES + 4 * len(old.topic)
                self.rows_forgotten += 1
        else:
            self._rows.move_to_end(drop)
        row.count += count
        row.last_at = now
        row.method, row.sender, row.consumer = method[:_MAX_NAME], sender[:_MAX_NAME], consumer[:_MAX_NAME]
        if log:
            self._log.add(now, drop, count)

    @property
    def totals(self) -> dict[str, dict[str, int]]:
        """Verb -> reason -> how many."""
        totals: dict[str, dict[str, int]] = {}
        for (verb, reason), count in sorted(self._totals.items()):
            totals.setdefault(verb, {})[reason] = count
        return totals

    def rows(self, now: float) -> list[dict[str, Any]]:
        """A row for each topic, verb and reason, the latest first, as plain data."""
        return [
            {
                **drop._asdict(),
                "count": row.count,
                "last_seconds": round(now - row.last_at, 3),
                "method": row.method,
                "sender": row.sender,
                "consumer": row.consumer,
            }
            for drop, row in reversed(self._rows.items())
        ]

    def next_deadline(self) -> float | None:
        """The time at which :meth:`due` has the next line (monotonic seconds); None if nothing is due."""
        return self._log.next_deadline()

    def due(self, now: float) -> list[tuple[Drop | None, int]]:
        """Return the due log lines, each with its count; None stands for all topics beyond the limit."""
        return self._log.due(now)


def drop_text(drop: Drop | None, count: int) -> str:
    """The sentence for the log."""
    if drop is None:
        return f"{count} messages of further topics were dropped"
    why = f" ({REASONS[drop.reason]})" if drop.reason in REASONS else ""
    what = drop.verb if count == 1 else {"fanout": "fanout copies"}.get(drop.verb, f"{drop.verb}s")
    return f"{count} {what} to {drop.topic!r} {'was' if count == 1 else 'were'} dropped: {drop.reason}{why}"


class DropNotices:
    """Notices to senders about drops they would not learn of otherwise, collected for a second.

    A notice for each message would cost as much as the message.
    """

    #: Collection period of notices (seconds).
    GATHER = 1.0
    #: Most topics and reasons in one notice; others are reported without their topic.
    MAX_ROWS = 100

    def __init__(self) -> None:
        #: Origin (router and handle) of the sender -> what to tell it.
        self._due: dict[bytes, dict[Drop, int]] = {}
        self._tell_at: float | None = None

    def add(self, now: float, origin: bytes, drop: Drop, count: int = 1) -> None:
        """The sender with ``origin`` has lost ``count`` messages."""
        if self._tell_at is None:
            self._tell_at = now + self.GATHER
        rows = self._due.setdefault(origin, {})
        if drop not in rows and len(rows) >= self.MAX_ROWS:
            drop = drop._replace(topic="")
        rows[drop] = rows.get(drop, 0) + count

    def next_deadline(self) -> float | None:
        """The time at which :meth:`due` has the next line (monotonic seconds); None if nothing is due."""
        return self._tell_at

    def due(self, now: float) -> dict[bytes, dict[Drop, int]]:
        """Return the notices due now, by the sender's origin."""
        if self._tell_at is None or now < self._tell_at:
            return {}
        due, self._due, self._tell_at = self._due, {}, None
        return due


class _Row:
    __slots__ = ("consumer", "count", "last_at", "method", "sender")

    def __init__(self) -> None:
        self.count = 0
        self.last_at = 0.0
        self.method = self.sender = self.consumer = ""
