"""A sink for the dispatch log of a router under test, and the records in it."""

from __future__ import annotations

from typing import Any

from rpcmq.core.router.dispatch_log import Chunk
from rpcmq.latency.schema import outcome_name
from rpcmq.log_format import Head, Record, Spool, pack_head
from rpcmq.testing.network import Network, Process
from rpcmq.wire import Kind
from tests.latency import live

#: With less, topics are forgotten while a test goes on, and what the live view has of them.
LONG = 60.0


class Memory:
    """A sink that keeps what it gets, unless told not to."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.is_full = False
        self.refused = 0

    def write(self, chunk: Chunk) -> bool:
        if self.is_full:
            self.refused += chunk.record_count
            return False
        self.chunks.append(chunk)
        return True

    def statistics(self) -> dict[str, Any]:
        return {"dropped": self.refused}

    def files(self) -> list[Spool]:
        """The chunks as files, each read on its own."""
        segments: dict[int, list[Chunk]] = {}
        for chunk in self.chunks:
            segments.setdefault(chunk.segment, []).append(chunk)
        head = pack_head(Head(1, 0, 1, 1, 1, 0, 1000.0, 1_700_000_000_000_000, "router"))
        return [Spool(head + b"".join(b"".join(c.blocks()) for c in chunks)) for chunks in segments.values()]

    def entries(self) -> list[Record]:
        """All that is in the files."""
        return [record for spool in self.files() for record in spool]


def check_live(view: list[dict[str, Any]], records: list[Record]) -> None:
    """The view counts what the records say, bucket for bucket."""
    expected = live.methods(
        live.Ended(
            live.live_name(r.exchange, r.topic, r.target_server, r.group), r.method, outcome_name(r.outcome), r.total_us
        )
        for r in records
        if r.outcome is not None and r.kind.is_message
    )
    seen = {(row["topic"], row["method"]): {name: row[name] for name in ("outcomes", "histogram")} for row in view}
    assert {key: counted for key, counted in seen.items() if counted["outcomes"]} == expected


def ended(net: Network, sink: Memory) -> list[Record]:
    """The records so far of what has ended, by seq."""
    net.advance(1.0)
    return sorted(record for record in sink.entries() if record.outcome is not None)


def one(net: Network, sink: Memory) -> Record:
    """The only record so far."""
    (record,) = ended(net, sink)
    return record


def converse(net: Network, api: Process, node: Process, calls: int) -> None:
    for _ in range(calls):
        api.request("compute", "reboot")
        node.reply(node.take(Kind.REQUEST))
