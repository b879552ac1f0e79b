"""The queues in which casts wait, as the views show them, and casts that come again."""

from __future__ import annotations

from rpcmq.testing.network import Call, Message, Process
from rpcmq.wire import Flag

__all__ = ["dropped", "payloads", "queued", "resend"]


def dropped(process: Process, topic: str) -> dict[str, int]:
    rows = {row["topic"]: row for row in process.query("topics")["topics"]}
    counts: dict[str, int] = rows[topic]["dropped"]
    return counts


def queued(process: Process, topic: str) -> int:
    rows = {row["topic"]: row for row in process.query("topics")["topics"]}
    return int(rows[topic]["queued"])


def payloads(messages: list[Message]) -> list[bytes]:
    return [m.payload for m in messages]


def resend(process: Process, cast: Call, topic: str, payload: bytes = b"") -> Call:
    """As a client does with a cast that it has to send again."""
    return process.cast(topic, payload=payload, key=cast.key, flags=Flag.RESENT)
