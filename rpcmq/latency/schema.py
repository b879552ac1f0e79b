"""The records of a dispatch log as rows. Schema version 1: the one definition, for whatever reads or writes them.

A file's metadata has ``rpcmq:schema``, the version; a segment's also ``rpcmq:source``, what its spool file
said of itself (``log_state.Source``) as JSON: router, boot, number and more. A reader gives its own schema and
looks at the version: a column that is missing would be nulls without a word. A new column at the end keeps the
version, and is *late*: files of before have it not; any other change raises it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from rpcmq.errors import Outcome
from rpcmq.latency.ways import replies
from rpcmq.log_format import Head, MessageKind, Record
from rpcmq.payload.format import format_name

__all__ = [
    "COLUMNS",
    "DELIVERIES",
    "IDENTITY",
    "LATE",
    "SCHEMA",
    "UNKNOWN",
    "VERSION",
    "Column",
    "as_json",
    "in_flight",
    "outcome_name",
    "rows_of",
]

VERSION = 1
#: Columns that identify a record, and so make an order total.
IDENTITY = ("router_id", "boot", "seq")
#: Key of a file's metadata that has the version.
SCHEMA = b"rpcmq:schema"
#: The outcome of a call that was in flight when its router died.
UNKNOWN = "unknown"
#: The kinds of records that are no messages by themselves: deliveries of calls that another server has answered.
DELIVERIES = tuple(str(kind) for kind in MessageKind if not kind.is_message)


class Column(NamedTuple):
    """A column.

    Attributes:
        type: ``string``, ``int8`` ... ``int64``, or ``timestamp`` (microseconds, UTC).
        nullable: whether it may be null; no other column ever is.
        coding: how it is stored: ``dictionary`` for what repeats, ``delta`` for numbers that rise, ``plain``.
        late: whether files that were written before there was such a column lack it: it is null then.
    """

    name: str
    type: str
    note: str
    nullable: bool = False
    coding: str = "dictionary"
    late: bool = False


COLUMNS = (
    Column("router", "string", "name of the router that wrote the record"),
    Column("router_id", "int64", "its number among linked routers"),
    Column("boot", "int64", "wall-clock milliseconds at its start: names that life of the router"),
    Column(
        "seq",
        "int64",
        "number of the message in that life, from 1: with the two before, the record's identity",
        coding="delta",
    ),
    Column("trace_id", "string", "of its W3C traceparent, 32 hexadecimal digits", nullable=True, coding="plain"),
    Column("origin_router", "int64", "router_id of the caller's router: with the next two, the correlation id"),
    Column("origin_link", "int64", "the caller's link there"),
    Column("origin_seq", "int64", "the caller's number of the message", coding="delta"),
    Column("hops", "int16", "routers that its sender had sent it to before"),
    Column(
        "kind",
        "string",
        "call, cast, or fanout: one copy of a fanout; hedge, or overtaken: a delivery of a call that another server "
        "answered, beside the first, or the first itself",
    ),
    Column("exchange", "string", "namespace of the topic"),
    Column("topic", "string", "what it was sent to"),
    Column("group", "string", "the group of consumers that got this copy; empty: none"),
    Column("target_server", "string", "the server that it was addressed to; empty: any"),
    Column("method", "string", "method of the endpoint"),
    Column("client", "string", "identity of the caller; empty: gone and forgotten"),
    Column("server", "string", "name of the server that had it last; null: nobody had it", nullable=True),
    Column("server_process", "string", "identity of that server's process", nullable=True),
    Column("outcome", "string", "how it ended: rpcmq.errors.Outcome in lower case, or unknown"),
    Column("format", "string", "of the payload: json, pickle, dill"),
    Column("req_bytes", "int64", "the whole message with its payload"),
    Column("rep_bytes", "int64", "the whole message that ended it; 0: none came"),
    Column(
        "attempt",
        "int16",
        "servers that had it before and may have run it; of an item of a work queue: attempts before, up to 15",
    ),
    Column("ttl_ms", "int64", "milliseconds that it had left when it came; null: no limit", nullable=True),
    Column("recv_at", "timestamp", "wall clock when it came: for windows, never for durations", coding="delta"),
    Column("queue_us", "int64", "all that was not at the server; null: outcome unknown", nullable=True, coding="plain"),
    Column("service_us", "int64", "at the server that had it last; null: nobody had it", nullable=True, coding="plain"),
    Column(
        "handler_us", "int64", "in the method, as the service reports; null: it did not", nullable=True, coding="plain"
    ),
    Column("total_us", "int64", "from its coming to its end; null: outcome unknown", nullable=True, coding="plain"),
    Column(
        "error_class",
        "string",
        "what the method raised, `dead: ` before it where a work item is dead now; `differs` where a further server "
        "had another result; null: nothing, a cast, or not known",
        nullable=True,
    ),
    Column(
        "reply_us",
        "int64",
        "the way back: from when the service sent its answer until the router had it; null: not known",
        nullable=True,
        coding="plain",
    ),
    Column(
        "server_router",
        "string",
        "router of that server, where it is another one than wrote the record; else null",
        nullable=True,
        late=True,
    ),
    Column(
        "between_us",
        "int64",
        "of service_us, the way to that router and back; null: not known, or there was none",
        nullable=True,
        coding="plain",
        late=True,
    ),
)

#: Names of the columns that files may lack.
LATE = frozenset(column.name for column in COLUMNS if column.late)
_DURATIONS = ("queue_us", "service_us", "handler_us", "total_us", "reply_us", "between_us")
_OUTCOMES = {int(outcome): outcome.name.lower() for outcome in Outcome}


def outcome_name(outcome: int) -> str:
    """The outcome as views and metrics write it."""
    return _OUTCOMES.get(outcome, f"outcome {outcome}")


def rows_of(head: Head, records: Sequence[Record]) -> list[dict[str, Any]]:
    """The rows of ``records``, all of the file that has ``head``; ``recv_at`` is microseconds since 1970.

    For calls that have not ended (entries of those in flight) see ``in_flight``.
    """
    return [_row_of(head, record, reply_us) for record, reply_us in zip(records, replies(records), strict=True)]


def _row_of(head: Head, record: Record, reply_us: int | None) -> dict[str, Any]:
    row = {
        "router": head.router_name,
        "router_id": head.router_id,
        "boot": head.boot,
        "seq": record.seq,
        "trace_id": record.trace_id.hex() if record.trace_id else None,
        "origin_router": record.origin_router,
        "origin_link": _signed(record.handle),
        "origin_seq": _signed(record.sequence),
        "hops": record.hops,
        "kind": str(record.kind),
        "exchange": record.exchange,
        "topic": record.topic,
        "group": record.group,
        "target_server": record.target_server,
        "method": record.method,
        "client": record.caller,
        "server": record.server,
        "server_process": record.server_identity,
        "outcome": outcome_name(record.outcome or 0),
        "format": format_name(record.format),
        "req_bytes": record.request_bytes,
        "rep_bytes": record.reply_bytes,
        "attempt": record.attempt,
        "ttl_ms": record.ttl_ms,
        "recv_at": record.received_us,
        "queue_us": record.queued_us,
        "service_us": record.service_us,
        "handler_us": record.handler_us,
        "total_us": record.total_us,
        "error_class": record.error_class,
        "reply_us": reply_us,
        "server_router": record.server_router,
        "between_us": record.between_us,
    }
    return in_flight(row) if record.outcome is None else row


def in_flight(row: dict[str, Any]) -> dict[str, Any]:
    """Return ``row`` of an unfinished call as recorded if its end is never known.

    How long it would have taken nobody knows, so it has no durations.
    """
    return row | {"outcome": UNKNOWN} | dict.fromkeys(_DURATIONS)


def as_json(row: dict[str, Any]) -> dict[str, Any]:
    """``row`` for readers: its time as text."""
    time = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=row["recv_at"])
    return row | {"recv_at": time.isoformat(timespec="microseconds").replace("+00:00", "Z")}


def _signed(number: int) -> int:
    """Parquet's readers know 64 bits with a sign only; the same bits, then."""
    return number - (1 << 64) if number >> 63 else number
