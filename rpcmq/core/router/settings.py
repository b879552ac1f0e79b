"""What an operator can set of the engine, as plain values. Seconds and bytes throughout."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Settings"]


@dataclass(slots=True)
class Settings:
    """Bounds and times of the router engine; may be changed while it runs."""

    router_name: str = "router"
    router_id: int = 1
    heartbeat_seconds: float = 5.0
    unresponsive_seconds: float = 12.0
    lost_seconds: float = 60.0
    resume_seconds: float = 30.0
    consumer_grace_seconds: float = 0.5
    recovery_seconds: float = 2.5
    max_links: int = 100_000
    max_links_per_key: int = 10_000
    router_max_bytes: int = 4 << 30
    link_max_bytes: int = 256 << 20
    max_bytes_per_key: int = 1 << 30
    messages_per_second: float = 0.0
    inbox_max_bytes: int = 128 << 20
    outbox_max_bytes: int = 256 << 20
    outbox_max_messages: int = 100_000
    queue_max_messages: int = 100_000
    queue_max_bytes: int = 256 << 20
    mailbox_max_seconds: float = 600.0
    unclaimed_seconds: float = 60.0
    max_unclaimed_topics: int = 10_000
    max_topics: int = 1_000_000
    message_max_bytes: int = 64 << 20
    max_ttl_seconds: float = 86_400.0
    default_timeout_seconds: float = 60.0
    max_calls_in_flight: int = 1_000_000
    pubsub_max_messages: int = 10_000
    pubsub_max_bytes: int = 16 << 20
    pubsub_max_patterns: int = 1_000
    pubsub_max_pattern_states: int = 10_000
    max_methods: int = 10_000
    segment_records: int = 50_000
    segment_seconds: float = 10.0
