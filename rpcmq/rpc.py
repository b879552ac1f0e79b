"""The module-level API: the verbs of one default :class:`~rpcmq.client.Client` for the whole process.

The default client is made at first use, from the environment (``RPCMQ_ROUTER`` and its kin), or set
with :func:`configure`; after ``rpc.client().close()`` the next use makes another one. All threads and greenlets share
it, and so one connection; the child of a fork has its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar, Unpack

from rpcmq.client import Client
from rpcmq.client.default_verbs import DefaultVerbs
from rpcmq.client.stubs import StubOptions, make_stub
from rpcmq.client.verbs import ClientVerbs
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr
from rpcmq.transport.originals import allocate_lock
from rpcmq.wire import Address

__all__ = [
    "call",
    "cast",
    "client",
    "configure",
    "declare_periodic",
    "declare_queue",
    "fanout_cast",
    "multicall",
    "notify",
    "publish",
    "put",
    "put_many",
    "receipt",
    "remove_periodic",
    "stub",
    "subscribe",
]

S = TypeVar("S")

_client: Client | None = None
#: The last one that was made here, and not set.
_made: Client | None = None
_choosing = allocate_lock()


def client() -> Client:
    """The default client. One that was closed is made anew, unless it was set with :func:`configure`."""
    current = _client
    if current is None or not current.usable or (current.was_closed and current is _made):
        return _new_client(current)
    return current


def _new_client(unusable: Client | None) -> Client:
    global _client, _made
    made = Client()
    with _choosing:
        if _client is unusable:
            _client = _made = made
        return _client if _client is not None else made


def configure(new_client: Client | None) -> Client | None:
    """Make ``new_client`` the default; None: a fresh one at next use. Returns the one before, still open.

    Raises:
        UsageError: it is no client.
    """
    if new_client is not None and not isinstance(new_client, ClientVerbs):
        raise UsageError(f"rpc.configure takes a Client or None, not {short_repr(new_client)}")
    global _client
    with _choosing:
        old, _client = _client, new_client
    return old


def stub(service: Callable[..., S], topic: str | Address, **options: Unpack[StubOptions]) -> S:
    """The methods of a service, to be called as if it were here; see :meth:`rpcmq.Client.stub`.

    Each call is one of the client that is the default then. So a module can make its stubs while it is imported.
    """
    return make_stub(service, topic, client, options)


def _after_fork_in_child() -> None:
    global _choosing
    _choosing = allocate_lock()


os.register_at_fork(after_in_child=_after_fork_in_child)


_default = DefaultVerbs[ClientVerbs](client)
call = _default.function(ClientVerbs.call)
cast = _default.function(ClientVerbs.cast)
declare_periodic = _default.function(ClientVerbs.declare_periodic)
declare_queue = _default.function(ClientVerbs.declare_queue)
fanout_cast = _default.function(ClientVerbs.fanout_cast)
multicall = _default.function(ClientVerbs.multicall)
notify = _default.function(ClientVerbs.notify)
publish = _default.function(ClientVerbs.publish)
put = _default.function(ClientVerbs.put)
put_many = _default.function(ClientVerbs.put_many)
receipt = _default.function(ClientVerbs.receipt)
remove_periodic = _default.function(ClientVerbs.remove_periodic)
subscribe = _default.function(ClientVerbs.subscribe)
