"""The module-level API: the verbs of one default :class:`~rpcmq.client.Client`.

The default client is made at first use, from the environment (``RPCMQ_ROUTER`` and its kin), or set
with :func:`configure`.
"""

from __future__ import annotations

from typing import Any

from rpcmq.client import Client

__all__ = ["call", "cast", "client", "configure", "fanout_cast", "multicall", "notify", "publish", "subscribe"]

_client: Client | None = None


def client() -> Client:
    """The default client."""
    global _client
    if _client is None:
        _client = Client()
    return _client


def configure(new_client: Client | None) -> Client | None:
    """Make ``new_client`` the default; None: a fresh one at next use. Returns the one before, still open."""
    global _client
    old, _client = _client, new_client
    return old


def call(ctx: Any, topic: Any, msg: Any, timeout: float | None = None, **options: Any) -> Any:
    """See :meth:`rpcmq.Client.call`."""
    return client().call(ctx, topic, msg, timeout, **options)


def cast(ctx: Any, topic: Any, msg: Any, **options: Any) -> None:
    """See :meth:`rpcmq.Client.cast`."""
    client().cast(ctx, topic, msg, **options)


def fanout_cast(ctx: Any, topic: Any, msg: Any, **options: Any) -> int | None:
    """See :meth:`rpcmq.Client.fanout_cast`."""
    return client().fanout_cast(ctx, topic, msg, **options)


def multicall(ctx: Any, topic: Any, msg: Any, timeout: float | None = None) -> Any:
    """See :meth:`rpcmq.Client.multicall`."""
    return client().multicall(ctx, topic, msg, timeout)


def notify(ctx: Any, event_type: str, payload: Any, priority: str = "INFO", **options: Any) -> None:
    """See :meth:`rpcmq.Client.notify`."""
    client().notify(ctx, event_type, payload, priority, **options)


def publish(ctx: Any, topic: str, payload: Any, **options: Any) -> int | None:
    """See :meth:`rpcmq.Client.publish`."""
    return client().publish(ctx, topic, payload, **options)


def subscribe(pattern: str, handler: Any, **options: Any) -> Any:
    """See :meth:`rpcmq.Client.subscribe`."""
    return client().subscribe(pattern, handler, **options)
