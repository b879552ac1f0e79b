"""From the router's configuration to the engine's settings."""

from __future__ import annotations

import socket

from rpcmq.config import RouterConfig
from rpcmq.core.router.settings import Settings
from rpcmq.server.limits import half_of_memory

__all__ = ["apply", "settings_for"]


def settings_for(config: RouterConfig) -> Settings:
    """Settings that ``config`` describes."""
    settings = Settings()
    apply(config, settings)
    return settings


def apply(config: RouterConfig, settings: Settings) -> None:
    """Change ``settings``, which an engine may be using, to what ``config`` says."""
    settings.router_name = config.router.name or socket.gethostname()
    settings.router_id = config.router.id
    settings.recovery_seconds = config.router.recovery_seconds
    settings.heartbeat_seconds = config.link.heartbeat_seconds
    settings.unresponsive_seconds = config.link.unresponsive_seconds
    settings.lost_seconds = config.link.lost_seconds
    settings.resume_seconds = config.link.resume_seconds
    settings.consumer_grace_seconds = config.link.consumer_grace_seconds
    settings.max_links = config.link.max_links
    settings.max_links_per_key = config.security.max_links_per_key
    settings.router_max_bytes = config.router.max_bytes or half_of_memory()
    settings.link_max_bytes = config.link.max_bytes
    settings.max_bytes_per_key = config.security.max_bytes_per_key
    settings.messages_per_second = config.security.messages_per_second
    settings.inbox_max_bytes = config.link.inbox_max_bytes
    settings.outbox_max_bytes = config.link.outbox_max_bytes
    settings.outbox_max_messages = config.link.outbox_max_messages
    settings.queue_max_messages = config.queue.max_messages
    settings.queue_max_bytes = config.queue.max_bytes
    settings.mailbox_max_seconds = config.mailbox.max_seconds
    settings.unclaimed_seconds = config.mailbox.unclaimed_seconds
    settings.max_unclaimed_topics = config.mailbox.max_unclaimed_topics
    settings.max_topics = config.topics.max_topics
    settings.message_max_bytes = config.message.max_bytes
    settings.max_ttl_seconds = config.message.max_ttl_seconds
    settings.default_timeout_seconds = config.call.default_timeout_seconds
    settings.max_calls_in_flight = config.call.max_in_flight
    settings.pubsub_max_messages = config.pubsub.max_messages
    settings.pubsub_max_bytes = config.pubsub.max_bytes
    settings.pubsub_max_patterns = config.pubsub.max_patterns
    settings.pubsub_max_pattern_states = config.pubsub.max_pattern_states
    settings.max_methods = config.stats.max_methods
    settings.segment_records = config.dispatch_log.segment_records
    settings.segment_seconds = config.dispatch_log.segment_seconds
