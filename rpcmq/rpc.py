"""The module-level API: the verbs of one default :class:`~rpcmq.client.Client` for the whole process.

The default client is made at first use, from the environment (``RPCMQ_ROUTER`` and its kin), or set
with :func:`configure`. All threads and greenlets share it, and so one connection; the child of a fork has its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rpcmq.client import Client, Retry, Subscription
from rpcmq.client.client import Target
from rpcmq.transport.home import allocate_lock

__all__ = ["call", "cast", "client", "configure", "fanout_cast", "multicall", "notify", "publish", "subscribe"]

_client: Client | None = None
_choosing = allocate_lock()


def client() -> Client:
    """The default client."""
    current = _client
    return current if current is not None and current.usable else _new_client(current)


def _new_client(unusable: Client | None) -> Client:
    global _client
    made = Client()
    with _choosing:
        if _client is unusable:
            _client = made
        return _client if _client is not None else made


def configure(new_client: Client | None) -> Client | None:
    """Make ``new_client`` the default; None: a fresh one at next use. Returns the one before, still open."""
    global _client
    with _choosing:
        old, _client = _client, new_client
    return old


def _after_fork_in_child() -> None:
    global _choosing
    _choosing = allocate_lock()


os.register_at_fork(after_in_child=_after_fork_in_child)


def call(
    ctx: Any,
    topic: Target,
    msg: Mapping[str, Any],
    timeout: float | None = None,
    *,
    idempotent: bool = False,
    mandatory: bool = False,
    sign_of_life: float | None = None,
    on_progress: Callable[[Any], None] | None = None,
    retry: Retry | int | bool | None = None,
    direct: bool = False,
    traceparent: str | None = None,
) -> Any:
    """See :meth:`rpcmq.Client.call`."""
    return client().call(
        ctx,
        topic,
        msg,
        timeout,
        idempotent=idempotent,
        mandatory=mandatory,
        sign_of_life=sign_of_life,
        on_progress=on_progress,
        retry=retry,
        direct=direct,
        traceparent=traceparent,
    )


def cast(
    ctx: Any,
    topic: Target,
    msg: Mapping[str, Any],
    *,
    confirm: bool = False,
    idempotent: bool = False,
    mandatory: bool = False,
    ttl: float | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> None:
    """See :meth:`rpcmq.Client.cast`."""
    client().cast(
        ctx,
        topic,
        msg,
        confirm=confirm,
        idempotent=idempotent,
        mandatory=mandatory,
        ttl=ttl,
        timeout=timeout,
        traceparent=traceparent,
    )


def fanout_cast(
    ctx: Any,
    topic: Target,
    msg: Mapping[str, Any],
    *,
    confirm: bool = False,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> int | None:
    """See :meth:`rpcmq.Client.fanout_cast`."""
    return client().fanout_cast(ctx, topic, msg, confirm=confirm, timeout=timeout, traceparent=traceparent)


def multicall(ctx: Any, topic: Target, msg: Mapping[str, Any], timeout: float | None = None) -> Iterator[Any]:
    """See :meth:`rpcmq.Client.multicall`."""
    return client().multicall(ctx, topic, msg, timeout)


def notify(
    ctx: Any,
    event_type: str,
    payload: Any,
    priority: str = "INFO",
    *,
    publisher_id: str | None = None,
    confirm: bool = False,
) -> int | None:
    """See :meth:`rpcmq.Client.notify`."""
    return client().notify(ctx, event_type, payload, priority, publisher_id=publisher_id, confirm=confirm)


def publish(ctx: Any, topic: str, payload: Any, *, confirm: bool = False) -> int | None:
    """See :meth:`rpcmq.Client.publish`."""
    return client().publish(ctx, topic, payload, confirm=confirm)


def subscribe(pattern: str, handler: Callable[[Any, str, Any], None], *, window: int = 1000) -> Subscription:
    """See :meth:`rpcmq.Client.subscribe`."""
    return client().subscribe(pattern, handler, window=window)
