"""Dispatch logs of any length, with the files, manifest and compaction of a real one and records that were made up.

A controller with 50 compute nodes: conductors called by all of them, agents called by the API and the conductors, 200
methods, of which few are called often. Durations are lognormal around each method's own, with a Pareto tail (0.6 %),
and some calls (0.05 %) run into their timeout of a minute. 2,778 messages a second: ten million an hour.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.children import say
from rpcmq.latency import segment
from rpcmq.latency.columns import ARROW
from rpcmq.latency.compact import HOUR, compact
from rpcmq.latency.log_state import Source
from rpcmq.latency.manifest import Manifest

__all__ = ["write"]

Numbers = np.ndarray[Any, np.dtype[Any]]

#: Midnight, so that hours are whole.
_BOOT = 1_700_006_400_000
_PER_SECOND = 10_000_000 / 3600
_SEGMENT = 50_000
_METHODS = 40
_TIMEOUT_US = 60_000_000
_OUTCOMES = ("ok", "remote_error", "timeout", "no_consumer")
_COMPUTES = [f"node-{number}" for number in range(50)]
_APIS = [f"api-{number}" for number in range(6)]
_CONDUCTORS = [f"conductor-{number}" for number in range(4)]


class _Topic(NamedTuple):
    name: str
    share: float
    servers: list[str]
    clients: list[str]


_TOPICS = (
    _Topic("conductor", 0.55, _CONDUCTORS, [*_COMPUTES, *_APIS]),
    _Topic("compute", 0.2, _COMPUTES, [*_APIS, *_CONDUCTORS]),
    _Topic("network", 0.15, [f"network-{number}" for number in range(4)], [*_COMPUTES, *_APIS]),
    _Topic("volume", 0.06, [f"volume-{number}" for number in range(10)], [*_APIS, *_CONDUCTORS]),
    _Topic("scheduler", 0.04, ["scheduler-0", "scheduler-1"], _APIS),
)
_SERVERS = [server for topic in _TOPICS for server in topic.servers]
_CLIENTS = [*_COMPUTES, *_APIS, *_CONDUCTORS]


def write(directory: str, records: int) -> None:
    """Write a log of so many records into ``directory``; for a process of its own."""
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(7)
    with closing(Manifest(path)) as manifest:
        for number, first in enumerate(range(0, records, _SEGMENT), 1):
            table = _records(chance, first, min(_SEGMENT, records - first))
            last = first + table.num_rows
            source = Source(
                f"7-{_BOOT}-{number:08}", 0, "r1", 7, _BOOT, number, first + 1, last, given=last, final=last == records
            )
            metadata = {segment.SOURCE: json.dumps(asdict(source)).encode()}
            at = _BOOT / 1000 + last / _PER_SECOND
            file = segment.write(path, f"ready/{source.name}.parquet", table, metadata, at)
            manifest.append("ship", source=asdict(source), file=asdict(file))
        # The shipper does so once an hour, and by now the last one is over too.
        compact(path, manifest, at + HOUR)
        for gone in manifest.state.superseded:
            (path / gone).unlink()
        live = manifest.state.live.values()
        say({"files": len(live), "bytes": sum(file.bytes for file in live)})


def _records(chance: np.random.Generator, first: int, count: int) -> pa.Table:
    seq = np.arange(first + 1, first + count + 1)
    topic = chance.choice(len(_TOPICS), count, p=[topic.share for topic in _TOPICS])
    # Method k of a topic is called in proportion to 1/k.
    method = np.minimum(np.exp(chance.random(count) * np.log(_METHODS)).astype(np.int64), _METHODS) - 1
    server = np.empty(count, np.int32)
    client = np.empty(count, np.int32)
    start = 0
    for number, each in enumerate(_TOPICS):
        of = np.flatnonzero(topic == number)
        server[of] = start + chance.integers(len(each.servers), size=len(of))
        client[of] = np.array([_CLIENTS.index(name) for name in each.clients])[
            chance.integers(len(each.clients), size=len(of))
        ]
        start += len(each.servers)

    outcome = chance.choice(len(_OUTCOMES), count, p=[0.9885, 0.01, 0.0005, 0.001])
    nobody = outcome == _OUTCOMES.index("no_consumer")
    timed_out = outcome == _OUTCOMES.index("timeout")
    median = 800 * 1.12 ** ((method * 17 + topic * 29) % 50)
    handler = median * chance.lognormal(0, 0.5, count)
    slow = chance.random(count) < 0.006
    handler[slow] *= 1 + chance.pareto(1.2, int(slow.sum())) * 5
    handler = np.minimum(handler, _TIMEOUT_US * 0.9).astype(np.int64)
    network = (200 + chance.exponential(150, count)).astype(np.int64)
    queue = chance.exponential(400, count).astype(np.int64)
    service = np.where(timed_out, _TIMEOUT_US - queue, handler + network)
    total = np.where(nobody, queue, queue + service)
    received = _BOOT * 1000 + (seq / _PER_SECOND * 1e6).astype(np.int64)
    sizes = chance.lognormal(6.5, 0.8, count).astype(np.int64)

    columns = {
        "router": _texts(np.zeros(count), ["r1"]),
        "router_id": np.full(count, 7),
        "boot": np.full(count, _BOOT),
        "seq": seq,
        "trace_id": pa.nulls(count, pa.string()),
        "origin_router": np.full(count, 7),
        "origin_link": client + 1,
        "origin_seq": seq,
        "hops": np.zeros(count),
        "kind": _texts(np.zeros(count), ["call"]),
        "exchange": _texts(np.zeros(count), ["cloud"]),
        "topic": _texts(topic, [each.name for each in _TOPICS]),
        "group": _texts(np.zeros(count), [""]),
        "target_server": _texts(np.zeros(count), [""]),
        "method": _texts(method, [f"method_{number}" for number in range(_METHODS)]),
        "client": _texts(client, _CLIENTS),
        "server": _texts(server, _SERVERS, nobody),
        "server_process": _texts(server, [f"{name}:4711" for name in _SERVERS], nobody),
        "outcome": _texts(outcome, _OUTCOMES),
        "format": _texts(np.zeros(count), ["json"]),
        "req_bytes": sizes,
        "rep_bytes": np.where(nobody | timed_out, 120, sizes // 2),
        "attempt": np.zeros(count),
        "ttl_ms": np.full(count, _TIMEOUT_US // 1000),
        "recv_at": received,
        "queue_us": total - np.where(nobody, 0, service),
        "service_us": pa.array(service, mask=nobody),
        "handler_us": pa.array(handler, mask=nobody | timed_out),
        "total_us": total,
        "error_class": _texts(np.zeros(count), ["ValueError"], outcome != _OUTCOMES.index("remote_error")),
        "reply_us": pa.array(network // 3, mask=nobody | timed_out),
    }
    return pa.Table.from_arrays([_column(columns[field.name], field) for field in ARROW], schema=ARROW)


def _column(values: Numbers | pa.Array, field: pa.Field) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if pa.types.is_timestamp(field.type):
        return pa.array(values).cast(field.type)
    return pa.array(values.astype(field.type.to_pandas_dtype()))


def _texts(codes: Numbers, texts: list[str] | tuple[str, ...], null: Numbers | None = None) -> pa.Array:
    indices = pa.array(codes.astype(np.int32), mask=null)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))
