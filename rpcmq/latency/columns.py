"""Vectorised conversion of packed records to columns, equivalent to ``schema.rows_of``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rpcmq.latency import schema
from rpcmq.latency.ways import DRIFT, LATEST, WINDOW_US
from rpcmq.log_format import (
    LAYOUT,
    NOT_REPORTED,
    RECORD_BYTES,
    Head,
    MessageKind,
    Name,
    NameKind,
    Problem,
    SpoolError,
)
from rpcmq.payload.format import format_name
from rpcmq.wire import TRIED_SHIFT, Flag, Kind

__all__ = ["ARROW", "completed", "from_rows", "table_of", "to_rows"]

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


def _dtype(size: int) -> np.dtype[Any]:
    """Return the type of records of ``size`` bytes: those of earlier versions lack the last fields."""
    fields = [each for each in LAYOUT if each.offset < size]
    return np.dtype(
        {
            "names": [each.name for each in fields],
            "formats": [each.type for each in fields],
            "offsets": [each.offset for each in fields],
            "itemsize": size,
        }
    )


_PACKED = {version: _dtype(size) for version, size in RECORD_BYTES.items()}
_TARGET = ("exchange", "topic", "group", "target_server", "method")


def table_of(head: Head, names: dict[int, Name], pieces: Sequence[memoryview]) -> pa.Table:
    """The records of ``pieces``, packed as ``RECORD``, as a table of ``ARROW``.

    Raises:
        SpoolError: a number in a record names nothing.
    """
    packed = np.frombuffer(b"".join(pieces), _PACKED[head.version])
    total = _microseconds(packed["ended_at"] - packed["received_at"])
    nobody = packed["server"] == 0
    service = np.where(nobody, 0, _microseconds(packed["ended_at"] - packed["dispatched_at"]))
    received = head.wall_us + np.rint((packed["received_at"] - head.monotonic) * 1e6).astype(np.int64)
    cast, hedge = packed["kind"] == Kind.CAST, packed["kind"] == Kind.HEDGE
    kinds = np.where(cast, np.where(packed["flags"] & Flag.FANOUT, 2, 1), 0)
    kinds = np.where(hedge, np.where(packed["flags"] & Flag.HEDGED, 3, 4), kinds)
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
        "client": _named(packed["caller"], {0: ""} | _texts(names, NameKind.CALLER, 0)),
        "server": _named(packed["server"], _of_servers(names, 0)),
        "server_process": _named(packed["server"], _of_servers(names, 1)),
        "outcome": _spelt(packed["outcome"], schema.outcome_name),
        "format": _spelt(packed["format"], format_name),
        "req_bytes": np.where(packed["request_bytes"] == 0, packed["length"], packed["request_bytes"]),
        "rep_bytes": packed["reply_bytes"],
        "attempt": packed["attempt"] + _tried(packed["flags"]),
        "ttl_ms": _but(packed["ttl_ms"], packed["ttl_ms"] == NOT_REPORTED),
        "recv_at": received,
        "queue_us": total - np.minimum(service, total),
        "service_us": _but(service, nobody),
        "handler_us": _but(packed["handler_us"], packed["handler_us"] == NOT_REPORTED),
        "total_us": total,
        "error_class": _named(packed["error"], {0: None} | _texts(names, NameKind.ERROR, 0)),
        "reply_us": _replies(packed, received + total, service),
        "server_router": _named(packed["server"], _routers_of_servers(names)),
        "between_us": _between(packed, service, nobody),
    }
    for place, column in enumerate(_TARGET):
        columns[column] = _named(packed["target"], _texts(names, NameKind.TARGET, place))
    return pa.Table.from_arrays([_as_arrow(columns[field.name], field.type) for field in ARROW], schema=ARROW)


def completed(table: pa.Table) -> pa.Table:
    """``table``, of a file that may lack late columns, with nulls in these."""
    for field in ARROW:
        if field.name in schema.LATE and field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table


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


def _tried(flags: _Numbers) -> _Numbers:
    """The attempts before this one at the items of work queues."""
    return np.where(flags & Flag.NOT_AGAIN, flags >> TRIED_SHIFT, 0)


def _between(packed: _Numbers, service: _Numbers, nobody: _Numbers) -> pa.Array:
    """The ways between routers, as ``Record.between_us`` has them."""
    home = packed["home_us"] if "home_us" in (packed.dtype.names or ()) else np.zeros(len(packed), np.int64)
    return _but(np.maximum(0, service - home.astype(np.int64)), nobody | (home == 0))


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


def _of_servers(names: dict[int, Name], place: int) -> dict[int, str | None]:
    elsewhere = _texts(names, NameKind.SERVER_ELSEWHERE, place)
    return {0: None} | _texts(names, NameKind.SERVER, place) | elsewhere


def _routers_of_servers(names: dict[int, Name]) -> dict[int, str | None]:
    here = dict.fromkeys(_texts(names, NameKind.SERVER, 0))
    return {0: None} | here | _texts(names, NameKind.SERVER_ELSEWHERE, 2)


def _texts(names: dict[int, Name], kind: NameKind, place: int) -> dict[int, str | None]:
    return {number: name.texts[place] for number, name in names.items() if name.kind is kind}


def _named(numbers: _Numbers, texts: Mapping[int, str | None]) -> pa.Array:
    """The text of each of ``numbers``; null where that is None."""
    codes: dict[str, int] = {}
    different, where = np.unique(numbers, return_inverse=True)
    try:
        found = [texts[number] for number in different.tolist()]
    except KeyError as error:
        text = f"record with the number {error.args[0]}, which names nothing of its kind"
        raise SpoolError(Problem.CORRUPT, text, 0) from None
    coded = np.array([-1 if text is None else codes.setdefault(text, len(codes)) for text in found], np.int32)
    return _coded(coded[where], list(codes))


def _trace_ids(ids: _Numbers) -> pa.Array:
    raw = ids.tobytes()
    digits = raw.hex().encode()
    ends = np.arange(len(ids) + 1, dtype=np.int32) * _DIGITS
    texts = pa.Array.from_buffers(pa.string(), len(ids), [None, pa.py_buffer(ends), pa.py_buffer(digits)])
    return pc.replace_with_mask(texts, pa.array(np.frombuffer(raw, "S16") == b""), pa.scalar(None, pa.string()))
