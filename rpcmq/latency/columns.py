"""Vectorised conversion of packed records to columns, equivalent to ``schema.rows_of``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rpcmq.latency import schema
from rpcmq.latency.ways import DRIFT, LATEST, WINDOW_US
from rpcmq.log_format import (
    LAYOUT,
    NOT_REPORTED,
    RECORD,
    Head,
    MessageKind,
    Name,
    NameKind,
    Problem,
    SpoolError,
)
from rpcmq.payload.format import format_name
from rpcmq.wire import Flag, Kind

__all__ = ["ARROW", "from_rows", "table_of", "to_rows"]

_Numbers = np.ndarray[Any, np.dtype[Any]]

_TIME = pa.timestamp("us", tz="UTC")
_TYPES = {"string": pa.string(), "timestamp": _TIME, "int16": pa.int16(), "int64": pa.int64()}


def _type_of(column: schema.Column) -> pa.DataType:
    kind = _TYPES[column.type]
    return pa.dictionary(pa.int32(), kind) if column.type == "string" and column.coding == "dictionary" else kind


#: The schema as Arrow has it in memory; in a file texts are texts.
ARROW = pa.schema([pa.field(each.name, _type_of(each), each.nullable) for each in schema.COLUMNS])
#: Hexadecimal digits of a trace id.
_DIGITS = 32

_PACKED = np.dtype(
    {
        "names": [each.name for each in LAYOUT],
        "formats": [each.type for each in LAYOUT],
        "offsets": [each.offset for each in LAYOUT],
        "itemsize": RECORD.size,
    }
)
_TARGET = ("exchange", "topic", "group", "target_server", "method")


def table_of(head: Head, names: dict[int, Name], pieces: Sequence[memoryview]) -> pa.Table:
    """The records of ``pieces``, packed as ``RECORD``, as a table of ``ARROW``.

    Raises:
        SpoolError: a number in a record names nothing.
    """
    packed = np.frombuffer(b"".join(pieces), _PACKED)
    total = _microseconds(packed["ended_at"] - packed["received_at"])
    nobody = packed["server"] == 0
    service = np.where(nobody, 0, _microseconds(packed["ended_at"] - packed["dispatched_at"]))
    received = head.wall_us + np.rint((packed["received_at"] - head.monotonic) * 1e6).astype(np.int64)
    cast = packed["kind"] == Kind.CAST
    kinds = np.where(cast, np.where(packed["flags"] & Flag.FANOUT, 2, 1), 0)
    columns = {
        "router": _same(head.router_name, len(packed)),
        "router_id": np.full(len(packed), head.router_id),
        "boot": np.full(len(packed), head.boot),
        "seq": packed["seq"],
        "trace_id": _trace_ids(packed["trace_id"]),
        "origin_router": packed["origin_router"],
        "origin_link": packed["handle"],
        "origin_seq": packed["sequence"],
        "hops": packed["hops"],
        "kind": _coded(kinds, list(MessageKind)),
        "client": _named(packed["caller"], names, NameKind.CALLER, 0, nobody=""),
        "server": _named(packed["server"], names, NameKind.SERVER, 0, nobody=None),
        "server_process": _named(packed["server"], names, NameKind.SERVER, 1, nobody=None),
        "outcome": _spelt(packed["outcome"], schema.outcome_name),
        "format": _spelt(packed["format"], format_name),
        "req_bytes": np.where(packed["request_bytes"] == 0, packed["length"], packed["request_bytes"]),
        "rep_bytes": packed["reply_bytes"],
        "attempt": packed["attempt"],
        "ttl_ms": _but(packed["ttl_ms"], packed["ttl_ms"] == NOT_REPORTED),
        "recv_at": received,
        "queue_us": total - np.minimum(service, total),
        "service_us": _but(service, nobody),
        "handler_us": _but(packed["handler_us"], packed["handler_us"] == NOT_REPORTED),
        "total_us": total,
        "error_class": _named(packed["error"], names, NameKind.ERROR, 0, nobody=None),
        "reply_us": _replies(packed, received + total, service),
    }
    for place, column in enumerate(_TARGET):
        columns[column] = _named(packed["target"], names, NameKind.TARGET, place)
    return pa.Table.from_arrays([_as_arrow(columns[field.name], field.type) for field in ARROW], schema=ARROW)


def from_rows(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """The rows of ``schema.rows_of`` as a table."""
    return pa.Table.from_pylist(list(rows), ARROW)


def to_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The other way round."""
    place = table.schema.get_field_index("recv_at")
    rows: list[dict[str, Any]] = table.set_column(place, "recv_at", table["recv_at"].cast(pa.int64())).to_pylist()
    return rows


def _replies(packed: _Numbers, ended: _Numbers, service: _Numbers) -> pa.Array:
    """The ways back, as ``ways.replies`` finds them."""
    handlers, sent = packed["handler_us"].astype(np.int64), packed["sent_us"]
    known = (packed["server"] != 0) & (handlers != NOT_REPORTED) & (sent != 0) & (sent < LATEST) & (handlers <= service)
    reply = np.zeros(len(packed), np.int64)
    if known.any():
        ended, handler = ended[known], handlers[known]
        delay, gap = service[known] - handler, ended - sent[known].astype(np.int64)
        best = _best(packed["server"][known], ended // WINDOW_US, delay + handler // DRIFT)
        reply[known] = np.clip(gap - gap[best] + delay[best] // 2, 0, delay)
    return _but(reply, ~known)


def _best(server: _Numbers, window: _Numbers, delay: _Numbers) -> _Numbers:
    """For each place, where the first of the least delays of the same server and window is."""
    order = np.lexsort((delay, window, server))
    server, window = server[order], window[order]
    begins = np.concatenate(([True], (server[1:] != server[:-1]) | (window[1:] != window[:-1])))
    best = np.empty(len(order), np.int64)
    best[order] = order[begins][np.cumsum(begins) - 1]
    return best


def _microseconds(seconds: _Numbers) -> _Numbers:
    """As ``record.microseconds`` counts them."""
    return np.maximum(0, (seconds * 1e6 + 0.5).astype(np.int64))


def _as_arrow(column: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    if kind == _TIME:
        return pa.array(column).cast(_TIME)
    return pa.array(column.astype(kind.to_pandas_dtype()))


def _but(numbers: _Numbers, null: _Numbers) -> pa.Array:
    return pa.array(numbers.astype(np.int64), mask=null)


def _same(text: str, rows: int) -> pa.Array:
    return _coded(np.zeros(rows), [text])


def _coded(codes: _Numbers, texts: Sequence[str]) -> pa.Array:
    """Texts by their numbers; null where that is negative."""
    indices = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))


def _spelt(numbers: _Numbers, spell: Callable[[int], str]) -> pa.Array:
    different, codes = np.unique(numbers, return_inverse=True)
    return _coded(codes, [spell(number) for number in different.tolist()])


def _named(numbers: _Numbers, names: dict[int, Name], kind: NameKind, place: int, **nobody: str | None) -> pa.Array:
    """A text of what ``numbers`` name; ``nobody`` is the text of 0, which names nothing unless it is given."""
    texts: dict[str, int] = {}
    codes = {n: texts.setdefault(name.texts[place], len(texts)) for n, name in names.items() if name.kind is kind}
    for text in nobody.values():
        codes[0] = -1 if text is None else texts.setdefault(text, len(texts))
    different, where = np.unique(numbers, return_inverse=True)
    try:
        found = np.array([codes[number] for number in different.tolist()], np.int32)
    except KeyError as error:
        text = f"record with the number {error.args[0]}, which names nothing of its kind"
        raise SpoolError(Problem.CORRUPT, text, 0) from None
    return _coded(found[where], list(texts))


def _trace_ids(ids: _Numbers) -> pa.Array:
    raw = ids.tobytes()
    digits = raw.hex().encode()
    ends = np.arange(len(ids) + 1, dtype=np.int32) * _DIGITS
    texts = pa.Array.from_buffers(pa.string(), len(ids), [None, pa.py_buffer(ends), pa.py_buffer(digits)])
    return pc.replace_with_mask(texts, pa.array(np.frombuffer(raw, "S16") == b""), pa.scalar(None, pa.string()))
