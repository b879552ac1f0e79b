"""The part common to all broker drivers, on rpcmq: verbs, contexts, replies and pools.

In Diablo m4 this is itself the backend (``rpc_backend = nova.rpc.amqp``); from 2011.3 on the drivers
``impl_carrot``, ``impl_kombu``, ``impl_qpid`` and ``impl_zmq`` are this module under their names. Every
function takes a configuration object first, as from Folsom on, or none, as before.

Where eras differ: a handler gets a ``RequestContext`` with ``reply()`` to Essex, from Folsom on a
``CommonRpcContext``. Programs replace ``unpack_context`` and its kin while they run, so they are looked up
for each message.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import sys
from collections.abc import Callable
from typing import Any, Self

import compat.nova
from compat.nova import options, transport
from rpcmq.adapters.untrusted_values import printable_exception
from rpcmq.errors import RpcError

from nova.rpc import common
from nova.rpc.addresses import address_of
from nova.rpc.addresses import exchange as exchange
from nova.rpc.addresses import fanout_address as fanout_address
from nova.rpc.arguments import optional_conf
from nova.rpc.attachable import create_consumer as create_consumer
from nova.rpc.attachable import create_consumer_set as create_consumer_set
from nova.rpc.duplicates import UNIQUE_ID as UNIQUE_ID
from nova.rpc.duplicates import MsgIdCache, add_unique_id
from nova.rpc.invocation import handler_of, values_of
from nova.rpc.pooling import ConnectionContext as ConnectionContext
from nova.rpc.pooling import Pool as Pool
from nova.rpc.pooling import get_connection_pool as get_connection_pool
from nova.rpc.pooling import pools
from nova.rpc.waiting import MulticallWaiter, nova_errors, raise_as_nova

LOG = logging.getLogger(__name__)


# --- context --------------------------------------------------------------------------------------


def pack_context(msg: dict[str, Any], context: Any) -> None:
    """Add ``context`` to ``msg``, each of its values under a key that begins with ``_context_``."""
    values = context.to_dict() if hasattr(context, "to_dict") else context or {}
    for key, value in values.items():
        msg[f"_context_{key}"] = value


_pack_context = pack_context


def unpack_context(*arguments: Any) -> Any:
    """The context of a message, whose keys are taken out of it. ``unpack_context([conf,] msg)``."""
    msg = arguments[-1]
    values = msg.context if type(msg) is transport.Message else None
    if values is None:
        values = {}
        for key in [key for key in msg if str(key).startswith("_context_")]:
            values[str(key)[len("_context_") :]] = msg.pop(key)
    context: Any = context_class().from_dict(values)
    context.msg_id = msg.pop("_msg_id", None)
    context.conf = arguments[0] if len(arguments) > 1 else None
    return context


class _Replies:
    """The part of a context by which its handler replies."""

    msg_id: str | None = None
    conf: Any = None

    def reply(
        self, reply: Any = None, failure: Any = None, ending: bool = False, *others: Any, log_failure: bool = True
    ) -> None:
        """Send a value, or what ``sys.exc_info()`` gave, to the caller; a cast has none.

        Args:
            ending: there are no more; after it nothing is sent.
            others: connection pools, which some eras pass.
        """
        if self.msg_id is None:
            return
        msg_reply(self.msg_id, reply=reply, failure=failure, ending=ending)
        if ending:
            self.msg_id = None


class RpcContext(_Replies, common.CommonRpcContext):
    """The context that a handler gets from Folsom on."""

    def __init__(self, **kwargs: Any) -> None:
        self.msg_id = kwargs.pop("msg_id", None)
        self.conf = kwargs.pop("conf", None)
        super().__init__(**kwargs)

    def deepcopy(self) -> Self:
        """One that shares nothing with this one, and replies to the same call."""
        copy = super().deepcopy()
        copy.msg_id, copy.conf = self.msg_id, self.conf
        return copy


def context_class() -> Any:
    """The class of the contexts that handlers get."""
    return _context_class(compat.nova.era())


@functools.lru_cache(maxsize=8)
def _context_class(era: str) -> Any:
    if not common.since("folsom"):
        # A tree's own may need libraries that are not installed; programs of RPC alone do without it.
        with contextlib.suppress(ImportError):
            return _request_context(importlib.import_module("nova.context").RequestContext)
    return RpcContext


@functools.lru_cache(maxsize=4)
def _request_context(base: Any) -> Any:
    """Nova's own context with ``reply()``."""
    return type("RpcContext", (_Replies, base), {"__module__": __name__})


# --- replies --------------------------------------------------------------------------------------


def msg_reply(*arguments: Any, reply: Any = None, failure: Any = None, ending: bool = False, **others: Any) -> None:
    """Reply to the call ``msg_id``: ``msg_reply([conf,] msg_id, [connection_pool,] reply, failure, ending)``.

    Nobody hears it if the call has ended. Before Essex a reply of None says that there are no more.
    """
    at = next(i for i, each in enumerate(arguments) if isinstance(each, str))
    rest = [each for each in arguments[at + 1 :] if not isinstance(each, Pool)]
    given = dict(zip(("reply", "failure", "ending"), rest, strict=False))
    reply, failure, ending = given.get("reply", reply), given.get("failure", failure), given.get("ending", ending)
    call = transport.calls.get(arguments[at])
    if call is None:
        return
    if failure is not None:
        error = failure[1] if isinstance(failure, tuple) else failure
        call.fail(error)
    elif not (ending or (reply is None and not common.since("essex"))):
        call.send_item(reply)
    elif reply is None:
        call.end()
    else:
        call.reply(reply)


_MsgIdCache = MsgIdCache
_add_unique_id = add_unique_id


class ProxyCallback:
    """Runs messages on a consumer's proxy. The proxy is not touched before one comes.

    ``ProxyCallback([conf,] proxy, [connection_pool])``
    """

    #: Each message is run in a green thread of its own.
    threaded = True

    def __init__(self, *arguments: Any) -> None:
        # Not isinstance(): that looks at the proxy's __class__.
        given = [each for each in arguments if not issubclass(type(each), Pool)]
        self.conf = given[0] if len(given) > 1 else None
        self.proxy = given[-1]
        self.msg_id_cache = MsgIdCache()

    def __call__(self, message_data: dict[str, Any]) -> None:
        """Run one message, and reply to it if it is a call."""
        msg_id = message_data.get("_msg_id")
        common.clear_store()
        if LOG.isEnabledFor(logging.DEBUG):
            common._safe_log(LOG.debug, "received %s", message_data)
        self.msg_id_cache.check_duplicate_message(message_data)
        given = (message_data,) if self.conf is None else (self.conf, message_data)
        ctxt = this.unpack_context(*given)
        method = message_data.get("method")
        if not method:
            LOG.warning("no method for message: %s", message_data)
            ctxt.reply(f"No method for message: {message_data}")
            ctxt.reply(ending=True)
            return
        _enter(ctxt)
        try:
            self._run(ctxt, msg_id, handler_of(self.proxy, message_data))
        except Exception as error:
            if msg_id is None:
                if not isinstance(error, common.ClientException):
                    LOG.error("cast %s failed", method, exc_info=printable_exception(error))
                return
            call = transport.calls.get(msg_id)
            if call is not None:
                call.fail(error)

    def _run(self, ctxt: Any, msg_id: str | None, handler: Callable[[Any], Any]) -> None:
        result = handler(ctxt)
        call = transport.calls.get(msg_id) if msg_id is not None else None
        if hasattr(result, "__next__"):
            for value in values_of(result):
                if call is not None:
                    call.send_item(value)
        elif call is not None and not (result is None and call.items_sent):
            call.reply(result)
        if call is not None:
            call.end()


def _enter(ctxt: Any) -> None:
    """Store the context of a handler's green thread. Nova's own context does so when it is made."""
    if common.since("folsom"):
        update_store = getattr(ctxt, "update_store", None)
        if callable(update_store):
            update_store()


# --- the caller -----------------------------------------------------------------------------------


@optional_conf(topic_at=1)
def multicall(conf: Any, context: Any, topic: str, msg: dict[str, Any], timeout: Any = None, *others: Any) -> Any:
    """Call one consumer of ``topic``; iterate over what is returned for its replies.

    Args:
        timeout: seconds to wait for each reply; default: the option ``rpc_response_timeout``.
        others: connection pools, which some eras pass.
    """
    ctx, message = _packed(context, msg)
    to, seconds = address_of(topic, exchange(conf)), _seconds(conf, timeout)
    with nova_errors(conf, topic, msg.get("method")):
        stream = transport.client(conf).multicall(ctx, to, message, seconds)
    return MulticallWaiter(conf, stream, topic, msg.get("method"))


def _seconds(conf: Any, timeout: Any) -> float:
    # What is no number is a connection pool, which some eras pass.
    given = timeout if timeout and isinstance(timeout, (int, float)) else None
    return float(given or options.value("rpc_response_timeout", conf))


@optional_conf(topic_at=1)
def call(conf: Any, context: Any, topic: str, msg: dict[str, Any], timeout: Any = None, *others: Any) -> Any:
    """The last of what :func:`multicall` gives; None if it gives nothing."""
    return _call(conf, None, context, topic, msg, timeout)


def call_elsewhere(url: str, context: Any, topic: str, msg: dict[str, Any], timeout: Any = None) -> Any:
    """Like :func:`call`, through the router at ``url``."""
    return _call(None, {"hostname": url, "rpcmq_router": url}, context, topic, msg, timeout)


def _call(conf: Any, server_params: Any, context: Any, topic: str, msg: dict[str, Any], timeout: Any) -> Any:
    ctx, message = _packed(context, msg)
    to, seconds = address_of(topic, exchange(conf)), _seconds(conf, timeout)
    # No `with`: this one is for each call.
    try:
        return transport.client(conf, server_params).call(ctx, to, message, seconds)
    except (transport.Failure, RpcError) as error:
        raise_as_nova(error, conf, topic, msg.get("method"))


def _packed(context: Any, msg: dict[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    if this.pack_context is _pack_context and transport.is_plain(msg) and hasattr(context, "to_dict"):
        # On rpcmq the context has a place of its own, so there is nothing to pack.
        return context.to_dict(), transport.LegacyMessage(msg)
    return transport.to_wire(_message(context, msg))


def _message(context: Any, msg: dict[str, Any]) -> dict[str, Any]:
    packed = dict(msg)
    this.pack_context(packed, context)
    return packed


@optional_conf(topic_at=1)
def cast(conf: Any, context: Any, topic: str, msg: dict[str, Any], *others: Any) -> None:
    """Tell one consumer of ``topic``."""
    _tell(conf, context, topic, msg)


@optional_conf(topic_at=1)
def fanout_cast(conf: Any, context: Any, topic: str, msg: dict[str, Any], *others: Any) -> None:
    """Tell every consumer that was made with ``fanout=True``."""
    _tell(conf, context, topic, msg, fanout=True)


@optional_conf(topic_at=2)
def cast_to_server(
    conf: Any, context: Any, server_params: Any, topic: str, msg: dict[str, Any], connection_pool: Any = None
) -> None:
    """Like :func:`cast`, through the router of another cell."""
    with ConnectionContext(conf, connection_pool, pooled=False, server_params=server_params) as conn:
        conn.topic_send(topic, _message(context, msg))


@optional_conf(topic_at=2)
def fanout_cast_to_server(
    conf: Any, context: Any, server_params: Any, topic: str, msg: dict[str, Any], connection_pool: Any = None
) -> None:
    """Like :func:`fanout_cast`, through the router of another cell."""
    with ConnectionContext(conf, connection_pool, pooled=False, server_params=server_params) as conn:
        conn.fanout_send(topic, _message(context, msg))


def _tell(conf: Any, context: Any, topic: str, msg: dict[str, Any], fanout: bool = False) -> None:
    ctx, message = _packed(context, msg)
    send(conf, None, topic, ctx, message, fanout)


def send(
    conf: Any,
    server_params: Any,
    topic: str,
    ctx: Any,
    message: dict[str, Any],
    fanout: bool,
    where: str | None = None,
    ttl: float | None = None,
) -> None:
    """Send a message without a reply to the router.

    Args:
        ttl: seconds that it may wait; None is as long as the router keeps it. Not of a fan-out.

    Raises:
        RPCException: there is no router, or no room.
    """
    client = transport.client(conf, server_params)
    with nova_errors(conf, topic, message.get("method")):
        if fanout:
            client.fanout_cast(ctx, fanout_address(conf, topic, where), message)
        else:
            client.cast(ctx, address_of(topic, exchange(conf, where)), message, ttl=ttl or None)


@optional_conf(topic_at=1)
def notify(
    conf: Any, context: Any, topic: str, msg: dict[str, Any], connection_pool: Any = None, envelope: bool = False
) -> None:
    """Send a notification. It waits for a consumer though there has never been one."""
    packed = _message(context, msg)
    with nova_errors(conf, topic, None):
        transport.declare(transport.client(conf), address_of(topic, exchange(conf)))
    wrapped = common.serialize_msg(packed, force_envelope=bool(envelope) or connection_pool is True)
    send(conf, None, topic, *transport.to_wire(wrapped), fanout=False)


def cleanup(*others: Any) -> None:
    """Forget the pooled connections, and leave the router where nothing is consumed. A later call works again."""
    for pool in list(pools):
        pool.empty()
    transport.close()


# --- connections ----------------------------------------------------------------------------------


def create_connection(*arguments: Any, **kwargs: Any) -> ConnectionContext:
    """A connection to consume by: ``create_connection([conf,] new=True)``.

    Args:
        new: of its own; False may take one from the pool.
    """
    conf = kwargs.pop("conf", None)
    given = [each for each in arguments if not isinstance(each, Pool)]
    if given and not isinstance(given[0], bool):
        conf = given.pop(0)
    new = given[0] if given else kwargs.pop("new", True)
    return ConnectionContext(conf, pooled=not new)


def __getattr__(name: str) -> Any:
    # Classes of earlier releases, which this module had in Diablo m4; built on the ones here.
    classes = importlib.import_module("nova.rpc.classes")
    if name in classes.__all__:
        return getattr(classes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


this: Any = sys.modules[__name__]
