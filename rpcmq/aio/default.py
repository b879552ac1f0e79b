"""The module-level verbs: those of one default :class:`~rpcmq.aio.Client` for all event loops of the process.

It shares the connection of :mod:`rpcmq.rpc`, and so its settings, where that lives in plain threads, as it does in any
program that does not use gevent.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar, Unpack

from rpcmq import rpc
from rpcmq.aio.client import Client
from rpcmq.client import Client as PlainClient
from rpcmq.client.default_verbs import DefaultVerbs
from rpcmq.client.sender import Target
from rpcmq.client.stubs import StubOptions, make_stub
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr
from rpcmq.transport.originals import allocate_lock
from rpcmq.transport.thread_shell import ThreadShell

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

#: As it was configured; and else as it was made last, over a client of :mod:`rpcmq.rpc` or one of its own.
_configured: Client | None = None
_made: Client | None = None
_choosing = allocate_lock()


def client() -> Client:
    """The default client."""
    if _configured is not None:
        return _configured
    plain, made = rpc.client(), _made
    return made if made is not None and _suits(made, plain) else _new_client(made, plain)


def configure(new_client: Client | None) -> Client | None:
    """Make ``new_client`` the default; None: one over that of :mod:`rpcmq.rpc`. Returns the one before, still open.

    Raises:
        UsageError: it is no client.
    """
    if new_client is not None and not isinstance(new_client, Client):
        raise UsageError(f"aio.configure takes an rpcmq.aio.Client or None, not {short_repr(new_client)}")
    global _configured
    with _choosing:
        old, _configured = _configured, new_client
    return old


def stub(service: Callable[..., S], topic: Target, **options: Unpack[StubOptions]) -> S:
    """The methods of a service, to be awaited as if it were here; see :meth:`Client.stub`.

    Each call is one of the client that is the default then. So a module can make its stubs while it is imported.
    """
    return make_stub(service, topic, client, options, awaitable=True)


def _suits(made: Client, plain: PlainClient) -> bool:
    """Return whether ``made`` can be the default beside ``plain``, that of :mod:`rpcmq.rpc`."""
    if isinstance(plain.shell, ThreadShell):
        return made.threads is plain
    return not made.closed and made.threads.usable


def _new_client(unsuitable: Client | None, plain: PlainClient) -> Client:
    """Replace ``unsuitable``, unless another thread has done so meanwhile; return the one for all."""
    global _made
    new = Client(client=plain) if isinstance(plain.shell, ThreadShell) else Client()
    with _choosing:
        if _made is None or _made is unsuitable:
            _made = new
        return _made


def _after_fork_in_child() -> None:
    global _choosing
    _choosing = allocate_lock()


os.register_at_fork(after_in_child=_after_fork_in_child)


_default = DefaultVerbs(client)
call = _default.function(Client.call)
cast = _default.function(Client.cast)
declare_periodic = _default.function(Client.declare_periodic)
declare_queue = _default.function(Client.declare_queue)
fanout_cast = _default.function(Client.fanout_cast)
multicall = _default.function(Client.multicall)
notify = _default.function(Client.notify)
publish = _default.function(Client.publish)
put = _default.function(Client.put)
put_many = _default.function(Client.put_many)
receipt = _default.function(Client.receipt)
remove_periodic = _default.function(Client.remove_periodic)
subscribe = _default.function(Client.subscribe)
