"""Remote calls, as Nova knew them from Cactus to Havana, on rpcmq. In 2012.2 this became ``nova.openstack.common.rpc``.

The verbs are those of the module that the option ``rpc_backend`` names: all but ``impl_fake`` are rpcmq.

Where eras differ: from Folsom on the backend is given the configuration first; Cactus to Diablo m3 use the
classes of :mod:`nova.rpc.classes`, which are found here.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import logging
from typing import Any

from compat.nova import options, shadow

from nova.rpc import common
from nova.rpc.common import RemoteError as RemoteError

LOG = logging.getLogger(__name__)

options.register()
if common.since("folsom"):
    # It brought ``debug`` and ``verbose`` with it.
    with contextlib.suppress(ImportError):
        importlib.import_module("nova.openstack.common.log")

#: The options of RPC, as the program's own kind of option.
rpc_opts = options.opts()

_RPCIMPL: Any = None
_SHADOW: shadow.Shadow | None = None


def _get_impl() -> Any:
    """The backend, chosen at first use and kept; with it the second one that read-only calls are compared with."""
    global _RPCIMPL, _SHADOW
    if _RPCIMPL is None:
        options.log_ignored()
        _SHADOW = shadow.current()
        # The same modules; and a program that does not use the later name is not to be taken for a later one.
        name = str(options.value("rpc_backend")).replace("nova.openstack.common.rpc.", "nova.rpc.")
        _RPCIMPL = importlib.import_module(name)
    return _RPCIMPL


get_impl = _get_impl


def _conf() -> tuple[Any, ...]:
    """Return the leading arguments of a backend call: the configuration, from Folsom on."""
    return tuple(options.configurations()[:1]) if common.since("folsom") else ()


def set_defaults(control_exchange: str) -> None:
    """Change the default of the exchange that topics belong to."""
    options.set_default("control_exchange", control_exchange)


def create_connection(new: bool = True) -> Any:
    """A connection to consume by.

    Args:
        new: of its own; False may take one from the pool.
    """
    return _get_impl().create_connection(*_conf(), new=new)


def call(context: Any, topic: str, msg: dict[str, Any], timeout: Any = None, check_for_lock: bool = False) -> Any:
    """Ask one consumer of ``topic``, and wait for its last reply.

    Args:
        context: who asks.
        topic: ``"compute"``, or ``"compute.host"`` for one of them.
        msg: ``{"method": name, "args": {name: value}}``.
        timeout: seconds for each reply; default: the option ``rpc_response_timeout``.
        check_for_lock: with the option ``debug``, warn where a lock is held meanwhile.

    Raises:
        Timeout: no reply came in time.
        RemoteError: the method raised; from Folsom on, an exception of an allowed module is itself raised.
    """
    if check_for_lock:
        _check_for_lock()
    impl = _get_impl()
    arguments = (*_conf(), context, topic, msg) if timeout is None else (*_conf(), context, topic, msg, timeout)
    if _SHADOW is not None and _SHADOW.wants(topic, msg):
        return _SHADOW.call(lambda: impl.call(*arguments), context, topic, msg, timeout)
    return impl.call(*arguments)


def multicall(context: Any, topic: str, msg: dict[str, Any], timeout: Any = None, check_for_lock: bool = False) -> Any:
    """Ask one consumer of ``topic``; iterate over its replies. As :func:`call` otherwise."""
    if check_for_lock:
        _check_for_lock()
    return _get_impl().multicall(*_conf(), context, topic, msg, *_given(timeout))


def cast(context: Any, topic: str, msg: dict[str, Any]) -> None:
    """Tell one consumer of ``topic``; no reply."""
    _get_impl().cast(*_conf(), context, topic, msg)


def fanout_cast(context: Any, topic: str, msg: dict[str, Any]) -> None:
    """Tell every consumer of ``topic`` that was made with ``fanout=True``."""
    _get_impl().fanout_cast(*_conf(), context, topic, msg)


def notify(context: Any, topic: str, msg: dict[str, Any], envelope: bool = False) -> None:
    """Send a notification, which waits for a consumer though there has never been one."""
    _get_impl().notify(*_conf(), context, topic, msg, **({"envelope": True} if envelope else {}))


def cleanup() -> None:
    """Give up what the backend keeps; a later call works again."""
    _get_impl().cleanup()


def cast_to_server(context: Any, server_params: Any, topic: str, msg: dict[str, Any]) -> None:
    """Like :func:`cast`, in another cell: ``server_params`` names its ``hostname``."""
    _get_impl().cast_to_server(*_conf(), context, server_params, topic, msg)


def fanout_cast_to_server(context: Any, server_params: Any, topic: str, msg: dict[str, Any]) -> None:
    """Like :func:`fanout_cast`, in another cell."""
    _get_impl().fanout_cast_to_server(*_conf(), context, server_params, topic, msg)


def queue_get_for(context: Any, topic: str, host: str | None) -> str:
    """The topic of one host's server."""
    if not host and common.since("grizzly"):
        return topic
    return f"{topic}.{host}"


def create_consumer(conn: Any, topic: str, proxy: Any, fanout: bool = False) -> Any:
    """Diablo m4: a consumer of ``topic``, which ``attach_to_eventlet()`` starts."""
    return _get_impl().create_consumer(conn, topic, proxy, fanout)


def create_consumer_set(conn: Any, consumers: list[Any]) -> Any:
    """Diablo m4: consumers that are waited for together."""
    return _get_impl().create_consumer_set(conn, consumers)


def _given(timeout: Any) -> tuple[Any, ...]:
    return () if timeout is None else (timeout,)


def _check_for_lock() -> bool | None:
    """Warn where a lock is held; whether one is. None without the option ``debug``."""
    try:
        if not options.value("debug"):
            return None
    except KeyError:
        return None
    store = importlib.import_module("nova.openstack.common.local").strong_store
    locks = getattr(store, "locks_held", None)
    if locks:
        stack = " :: ".join(frame.function for frame in inspect.stack()[2:])
        LOG.warning("an RPC is made while these locks are held: %s; stack: %s", ", ".join(map(str, locks)), stack)
    return bool(locks)


from nova.rpc.classes import *  # noqa: E402, F403
