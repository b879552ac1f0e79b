"""What the drivers of all brokers share, on rpcmq: the verbs, contexts, replies and pools.

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
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Self
from weakref import WeakSet

import compat.nova
from compat.nova import options, transport
from rpcmq import Address
from rpcmq.adapters.untrusted_values import printable_exception
from rpcmq.errors import CallTimeout, LinkLost, NoConsumer, RpcError

import eventlet.pools
from nova.rpc import common
from nova.rpc.arguments import optional_conf
from nova.rpc.invocation import handler_of, values_of

LOG = logging.getLogger(__name__)

#: A consumer recognises so many of the latest messages when they come again.
_REMEMBERED = 16
#: The key of a message by which it does.
UNIQUE_ID = "_unique_id"


def exchange(conf: Any, name: str | None = None) -> str:
    """The exchange that topics belong to."""
    return name or str(options.value("control_exchange", conf))


@functools.lru_cache(maxsize=4096)
def _address(topic: str, where: str) -> Address:
    return Address(topic, "", where)


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


class MsgIdCache:
    """The messages that a consumer has had, to recognise one that comes again (Grizzly)."""

    def __init__(self) -> None:
        self.prev_msgids: deque[str] = deque(maxlen=_REMEMBERED)

    def check_duplicate_message(self, message: dict[str, Any]) -> None:
        """Remember ``message``.

        Raises:
            DuplicateMessageError: it is among those remembered.
        """
        msg_id = message.pop(UNIQUE_ID, None)
        if msg_id is None:
            return
        if msg_id in self.prev_msgids:
            raise common.DuplicateMessageError(msg_id=msg_id)
        self.prev_msgids.append(msg_id)


def _add_unique_id(msg: dict[str, Any]) -> None:
    """Mark ``msg`` so that consumers recognise it when it comes again."""
    msg[UNIQUE_ID] = uuid.uuid4().hex


_MsgIdCache = MsgIdCache


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
    """A handler's green thread knows its context. Nova's own does that by itself, as it is made."""
    if common.since("folsom"):
        update_store = getattr(ctxt, "update_store", None)
        if callable(update_store):
            update_store()


# --- the caller -----------------------------------------------------------------------------------


class MulticallWaiter:
    """The replies to a multicall, once: iterate over it.

    Each wait raises ``Timeout`` when no reply comes in time, and the remote error when the method raised.
    """

    def __init__(self, conf: Any, stream: Iterator[Any], topic: str, method: Any) -> None:
        self._conf = conf
        self._stream = stream
        self._topic = topic
        self._method = method

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with _nova_errors(self._conf, self._topic, self._method):
            return next(self._stream)

    def done(self) -> None:
        """Take no more."""
        close: Any = getattr(self._stream, "close", None)
        if close is not None:
            close()


class _nova_errors:
    """Raises rpcmq's errors, and those from the other end, as Nova's."""

    __slots__ = ("_conf", "_method", "_topic")

    def __init__(self, conf: Any, topic: str, method: Any) -> None:
        self._conf = conf
        self._topic = topic
        self._method = method

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if isinstance(error, transport.Failure | RpcError):
            _raise_as_nova(error, self._conf, self._topic, self._method)


def _raise_as_nova(error: transport.Failure | RpcError, conf: Any, topic: str, method: Any) -> NoReturn:
    if isinstance(error, transport.Failure):
        raise common.exception_from(conf, error.failure) from None
    if isinstance(error, CallTimeout | LinkLost | NoConsumer):
        raise common.Timeout(str(error), topic, method) from error
    raise common.RPCException(str(error)) from error


@optional_conf(topic_at=1)
def multicall(conf: Any, context: Any, topic: str, msg: dict[str, Any], timeout: Any = None, *others: Any) -> Any:
    """Call one consumer of ``topic``; iterate over what is returned for its replies.

    Args:
        timeout: seconds to wait for each reply; default: the option ``rpc_response_timeout``.
        others: connection pools, which some eras pass.
    """
    ctx, message = _packed(context, msg)
    to, seconds = _address(topic, exchange(conf)), _seconds(conf, timeout)
    with _nova_errors(conf, topic, msg.get("method")):
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
    """As :func:`call`, through the router at ``url``."""
    return _call(None, {"hostname": url, "rpcmq_router": url}, context, topic, msg, timeout)


def _call(conf: Any, server_params: Any, context: Any, topic: str, msg: dict[str, Any], timeout: Any) -> Any:
    ctx, message = _packed(context, msg)
    to, seconds = _address(topic, exchange(conf)), _seconds(conf, timeout)
    # No `with`: this one is for each call.
    try:
        return transport.client(conf, server_params).call(ctx, to, message, seconds)
    except (transport.Failure, RpcError) as error:
        _raise_as_nova(error, conf, topic, msg.get("method"))


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
    """As :func:`cast`, through the router of another cell."""
    with ConnectionContext(conf, connection_pool, pooled=False, server_params=server_params) as conn:
        conn.topic_send(topic, _message(context, msg))


@optional_conf(topic_at=2)
def fanout_cast_to_server(
    conf: Any, context: Any, server_params: Any, topic: str, msg: dict[str, Any], connection_pool: Any = None
) -> None:
    """As :func:`fanout_cast`, through the router of another cell."""
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
    """Give the router a message that nobody replies to.

    Args:
        ttl: seconds that it may wait; None is as long as the router keeps it. Not of a fan-out.

    Raises:
        RPCException: there is no router, or no room.
    """
    client = transport.client(conf, server_params)
    with _nova_errors(conf, topic, message.get("method")):
        if fanout:
            client.fanout_cast(ctx, fanout_address(conf, topic, where), message)
        else:
            client.cast(ctx, _address(topic, exchange(conf, where)), message, ttl=ttl or None)


def fanout_address(conf: Any, topic: str, where: str | None = None) -> Address:
    """Where those listen who were made with ``fanout=True``: apart from the topic's own consumers.

    Args:
        where: the exchange; None is that of topics.
    """
    return Address(f"{topic}_fanout", "", exchange(conf, where))


@optional_conf(topic_at=1)
def notify(
    conf: Any, context: Any, topic: str, msg: dict[str, Any], connection_pool: Any = None, envelope: bool = False
) -> None:
    """Send a notification. It waits for a consumer though there has never been one."""
    packed = _message(context, msg)
    with _nova_errors(conf, topic, None):
        transport.declare(transport.client(conf), _address(topic, exchange(conf)))
    wrapped = common.serialize_msg(packed, force_envelope=bool(envelope) or connection_pool is True)
    send(conf, None, topic, *transport.to_wire(wrapped), fanout=False)


def cleanup(*others: Any) -> None:
    """Forget the pooled connections, and leave the router where nothing is consumed. A later call works again."""
    for pool in list(_pools):
        pool.empty()
    transport.close()


# --- connections ----------------------------------------------------------------------------------


class Pool(eventlet.pools.Pool):
    """Connections that were closed, for use again.

    ``Pool([conf, connection_cls,] max_size=..., order_as_stack=...)``
    """

    def __init__(self, conf: Any = None, connection_cls: Any = None, **kwargs: Any) -> None:
        self.conf = conf
        self.connection_cls = connection_cls
        self.reply_proxy = None
        kwargs.setdefault("max_size", int(options.value("rpc_conn_pool_size", conf)))
        kwargs.setdefault("order_as_stack", False)
        super().__init__(min_size=0, **kwargs)
        _pools.add(self)

    def create(self) -> Any:
        """A new connection."""
        cls = self.connection_cls or importlib.import_module("nova.rpc.connection").Connection
        return cls(self.conf)

    def empty(self) -> None:
        """Close those that nobody uses."""
        while self.free_items:
            self.get().close()
            self.current_size -= 1


_pools: WeakSet[Pool] = WeakSet()


def get_connection_pool(conf: Any = None, connection_cls: Any = None) -> Pool:
    """The pool of a class of connections."""
    cls = connection_cls or importlib.import_module("nova.rpc.connection").Connection
    if getattr(cls, "pool", None) is None:
        cls.pool = Pool(conf, cls, order_as_stack=True)
    return cls.pool  # type: ignore[no-any-return]


class ConnectionContext(common.Connection):
    """A connection as programs hold it: pooled, or (``pooled=False``) of its own.

    ``ConnectionContext([conf, connection_pool,] pooled=True, server_params=None)``

    Attributes:
        connection: the real one; None once this was closed.
    """

    def __init__(
        self, conf: Any = None, connection_pool: Any = None, pooled: bool = True, server_params: Any = None
    ) -> None:
        self.connection: Any = None
        self.connection_pool = connection_pool or get_connection_pool(conf)
        self.pooled = pooled
        if pooled:
            self.connection = self.connection_pool.get()
        else:
            cls = self.connection_pool.connection_cls or importlib.import_module("nova.rpc.connection").Connection
            self.connection = cls(conf, server_params=server_params)

    def close(self) -> None:
        """Give a pooled connection back, clean; close any other."""
        connection, self.connection = self.connection, None
        if connection is None:
            return
        if not self.pooled:
            with contextlib.suppress(RpcError):
                connection.close()
            return
        connection.reset()
        self.connection_pool.put(connection)

    def __del__(self) -> None:
        # A connection that consumes goes on; one that was only forgotten goes back.
        if self.connection is not None and self.pooled:
            self.close()

    def _real(self) -> Any:
        if self.connection is None:
            raise common.InvalidRPCConnectionReuse()
        return self.connection

    def create_consumer(self, topic: str, proxy: Any, fanout: bool = False) -> Any:
        """As the connection's."""
        return self._real().create_consumer(topic, proxy, fanout)

    def create_worker(self, topic: str, proxy: Any, pool_name: str) -> Any:
        """As the connection's."""
        return self._real().create_worker(topic, proxy, pool_name)

    def join_consumer_pool(
        self, callback: Callable[[Any], Any], pool_name: str, topic: str, exchange_name: str, ack_on_error: bool = True
    ) -> Any:
        """As the connection's."""
        return self._real().join_consumer_pool(callback, pool_name, topic, exchange_name, ack_on_error)

    def consume_in_thread(self) -> Any:
        """As the connection's."""
        return self._real().consume_in_thread()

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__") or key in ("connection", "connection_pool", "pooled"):
            raise AttributeError(key)
        return getattr(self._real(), key)


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


# --- Diablo m4 ------------------------------------------------------------------------------------


class _Attachable:
    """What ``create_consumer`` of Diablo m4 gives: it consumes once it is attached."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def attach_to_eventlet(self) -> Any:
        """Consume in a green thread; returns what stops it."""
        return self._connection.consume_in_thread()

    def close(self) -> None:
        """Stop."""
        self._connection.close()


def create_consumer(conn: Any, topic: str, proxy: Any, fanout: bool = False) -> _Attachable:
    """Diablo m4: a consumer of ``topic`` on ``conn``."""
    conn.create_consumer(topic, proxy, fanout)
    return _Attachable(conn)


class _ConsumerSet(_Attachable):
    def __init__(self, connection: Any, consumers: list[Any]) -> None:
        super().__init__(connection)
        self.consumer_list = consumers

    def wait(self, limit: int | None = None) -> None:
        """Consume in this green thread, so many messages at most."""
        self._connection.consume(limit)


def create_consumer_set(conn: Any, consumers: list[Any]) -> _ConsumerSet:
    """Diablo m4: consumers that are waited for together."""
    return _ConsumerSet(conn, consumers)


def __getattr__(name: str) -> Any:
    # The classes of the releases before, which this module had in Diablo m4; they are made of what is here.
    classes = importlib.import_module("nova.rpc.classes")
    if name in classes.__all__:
        return getattr(classes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


this: Any = sys.modules[__name__]
