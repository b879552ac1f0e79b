"""Settings of the router engine, as plain values. Seconds and bytes throughout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from rpcmq.config import RouterConfig, describe_fields
from rpcmq.config.peers import Peer

__all__ = ["Settings"]

_DEFAULTS = {info.key: info.default for info in describe_fields()}


def _of(key: str, default: Any = None) -> Any:
    """The setting ``key`` of the configuration, which says its default and what it means."""
    return field(default=_DEFAULTS[key] if default is None else default, metadata={"key": key})


@dataclass(slots=True)
class Settings:
    """Bounds and times of the router engine; may be changed while it runs."""

    # Empty, and 0, in the configuration: they come from the machine.
    router_name: str = _of("router.name", "router")
    router_max_bytes: int = _of("router.max_bytes", 4 << 30)

    router_id: int = _of("router.id", 1)
    #: Its id among the routers of a mesh; 0: the same. It is no part of keys, so another start may have another one.
    mesh_id: int = 0
    mesh_name: str = _of("mesh.name")
    mesh_peers: tuple[str, ...] = _of("mesh.peers")
    mesh_peer: tuple[Peer, ...] = _of("mesh.peer")
    #: Not empty: its queue server outlives it, and must not lose sight of what workers have.
    queue_dir: str = _of("queue.dir")
    mesh_dial: str = _of("mesh.dial")
    mesh_domains: tuple[str, ...] = _of("mesh.domains")
    mesh_recovery_seconds: float = _of("mesh.recovery_seconds")
    mesh_return_seconds: float = _of("mesh.return_seconds")
    mesh_rebalance_seconds: float = _of("mesh.rebalance_seconds")
    mesh_silence_seconds: float = _of("mesh.silence_seconds")
    mesh_lost_seconds: float = _of("mesh.lost_seconds")
    mesh_max_patterns: int = _of("mesh.max_patterns")
    mesh_max_pattern_bytes: int = _of("mesh.max_pattern_bytes")
    mesh_max_addresses: int = _of("mesh.max_addresses")
    mesh_max_address_bytes: int = _of("mesh.max_address_bytes")
    mesh_max_transit_bytes: int = _of("mesh.max_transit_bytes")
    heartbeat_seconds: float = _of("link.heartbeat_seconds")
    unresponsive_seconds: float = _of("link.unresponsive_seconds")
    lost_seconds: float = _of("link.lost_seconds")
    resume_seconds: float = _of("link.resume_seconds")
    consumer_grace_seconds: float = _of("link.consumer_grace_seconds")
    recovery_seconds: float = _of("router.recovery_seconds")
    max_links: int = _of("link.max_links")
    max_links_per_key: int = _of("security.max_links_per_key")
    link_max_bytes: int = _of("link.max_bytes")
    max_bytes_per_key: int = _of("security.max_bytes_per_key")
    messages_per_second: float = _of("security.messages_per_second")
    inbox_max_bytes: int = _of("link.inbox_max_bytes")
    outbox_max_bytes: int = _of("link.outbox_max_bytes")
    outbox_max_messages: int = _of("link.outbox_max_messages")
    queue_max_messages: int = _of("queue.max_messages")
    queue_max_bytes: int = _of("queue.max_bytes")
    mailbox_max_seconds: float = _of("mailbox.max_seconds")
    unclaimed_seconds: float = _of("mailbox.unclaimed_seconds")
    max_unclaimed_topics: int = _of("mailbox.max_unclaimed_topics")
    max_topics: int = _of("topics.max_topics")
    message_max_bytes: int = _of("message.max_bytes")
    max_ttl_seconds: float = _of("message.max_ttl_seconds")
    default_timeout_seconds: float = _of("call.default_timeout_seconds")
    max_calls_in_flight: int = _of("call.max_in_flight")
    hedge_budget: float = _of("hedge.budget")
    hedge_burst: int = _of("hedge.burst")
    hedge_unbounded: tuple[str, ...] = _of("hedge.unbounded")
    hedge_sample: float = _of("hedge.sample")
    pubsub_max_messages: int = _of("pubsub.max_messages")
    pubsub_max_bytes: int = _of("pubsub.max_bytes")
    pubsub_max_patterns: int = _of("pubsub.max_patterns")
    pubsub_max_pattern_states: int = _of("pubsub.max_pattern_states")
    max_methods: int = _of("stats.max_methods")
    segment_records: int = _of("dispatch_log.segment_records")
    segment_seconds: float = _of("dispatch_log.segment_seconds")

    def apply(self, config: RouterConfig, machine: Mapping[str, Any]) -> None:
        """Take the values of ``config``, and for what is empty there, that of the ``machine``, by the same keys."""
        for each in fields(self):
            key = each.metadata.get("key")
            if key is None:
                continue
            value = attrgetter(key)(config)
            setattr(self, each.name, machine[key] if not value and key in machine else value)
