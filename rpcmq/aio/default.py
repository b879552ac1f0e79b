"""The module-level verbs: those of one default :class:`~rpcmq.aio.Client` for all event loops of the process.

It shares the connection of :mod:`rpcmq.rpc`, and so its settings, where that lives in plain threads, as it does in any
program that does not use gevent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, Unpack

from rpcmq import rpc
from rpcmq.aio.client import Client
from rpcmq.client.default_verbs import DefaultVerbs
from rpcmq.client.sender import Target
from rpcmq.client.stubs import StubOptions, make_stub
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr
from rpcmq.transport.thread_shell import ThreadShell

__all__ = ["call", "cast", "client", "configure", "fanout_cast", "multicall", "notify", "publish", "stub", "subscribe"]

S = TypeVar("S")

#: As it was configured; and else as it was made last, over a client of :mod:`rpcmq.rpc` or one of its own.
_configured: Client | None = None
_made: Client | None = None


def client() -> Client:
    """The default client."""
    global _made
    if _configured is not None:
        return _configured
    plain = rpc.client()
    made = _made
    if isinstance(plain.shell, ThreadShell):
        if made is None or made.threads is not plain:
            made = _made = Client(client=plain)
    elif made is None or made.closed or not made.threads.usable:
        made = _made = Client()
    return made


def configure(new_client: Client | None) -> Client | None:
    """Make ``new_client`` the default; None: one over that of :mod:`rpcmq.rpc`. Returns the one before, still open.

    Raises:
        UsageError: it is no client.
    """
    if new_client is not None and not isinstance(new_client, Client):
        raise UsageError(f"aio.configure takes an rpcmq.aio.Client or None, not {short_repr(new_client)}")
    global _configured
    old, _configured = _configured, new_client
    return old


def stub(service: Callable[..., S], topic: Target, **options: Unpack[StubOptions]) -> S:
    """The methods of a service, to be awaited as if it were here; see :meth:`Client.stub`.

    Each call is one of the client that is the default then. So a module can make its stubs while it is imported.
    """
    return make_stub(service, topic, client, options, awaitable=True)


_default = DefaultVerbs(client)
call = _default.function(Client.call)
cast = _default.function(Client.cast)
fanout_cast = _default.function(Client.fanout_cast)
multicall = _default.function(Client.multicall)
notify = _default.function(Client.notify)
publish = _default.function(Client.publish)
subscribe = _default.function(Client.subscribe)
