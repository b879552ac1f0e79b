"""RPC within the process, and at once: what most of Nova's own tests, and tests of services, ran on.

A call runs the first consumer of its topic, a cast too and before it returns, a fan-out all of them, whether
made for fan-out or not: a service that has registered twice runs twice. Nothing waits in a queue.

Where eras differ:

* ``conf`` comes first from Folsom on; either style is taken at any time;
* a handler's exception reaches the caller as ``RemoteError``, from Folsom on as the object that was raised;
* a cast swallows ``RemoteError``, from Folsom on any exception;
* a call that no consumer takes gives None, from Grizzly on ``Timeout``;
* what is sent must be plain JSON, from Folsom on also what converts to it;
* the handler's context is a ``nova.context.RequestContext``, from Folsom on a ``CommonRpcContext``.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import math
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

import gevent

from compat.nova import primitives

from nova.rpc import common as rpc_common
from nova.rpc.arguments import optional_conf
from nova.rpc.invocation import handler_of, values_of

LOG = logging.getLogger(__name__)

CONSUMERS: dict[str, list[Consumer]] = {}
"""The consumers of each topic, in the order in which they were made."""

_LOOK = 1.0
"""Interval of a caller's timeout checks, in seconds."""

_LISTENERS: dict[str, list[_Listener]] = {}
"""The callbacks that take a topic's notifications."""


def reset() -> None:
    """Forget every consumer: for a test runner, between two tests."""
    CONSUMERS.clear()
    _LISTENERS.clear()


# --- the handler's context ----------------------------------------------------------------------


class _Answers:
    """Values and exceptions a handler has replied so far; shared by all copies of its context."""

    def __init__(self) -> None:
        self.given: list[tuple[Any, Any]] = []
        self.ended = False

    def values(self) -> Iterator[Any]:
        for reply, failure in self.given:
            if failure:
                raise failure[1]
            yield reply


class _Replies:
    """Adds ``reply()`` to a context class."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._answers = _Answers()

    def reply(
        self,
        reply: Any = None,
        failure: Any = None,
        ending: bool = False,
        connection_pool: Any = None,
        log_failure: bool = True,
    ) -> None:
        """Add a value, or an exception (as ``sys.exc_info()`` gives it), to what the caller gets.

        With ``ending`` there is nothing to add, and later replies are dropped.
        """
        self._answers.ended = self._answers.ended or ending
        if not self._answers.ended:
            self._answers.given.append((reply, failure))

    def deepcopy(self) -> Self:
        """A copy whose replies go to the same caller."""
        copied: Self = super().deepcopy()  # type: ignore[misc]
        copied._answers = self._answers
        return copied


@functools.lru_cache(maxsize=8)
def _replying(base: type) -> type:
    return type("RpcContext", (_Replies, base), {"__module__": __name__, "__doc__": "The context of a handler."})


def _context_class() -> Any:
    """The class of handlers' contexts in the era in force."""
    if rpc_common.since("folsom"):
        return _replying(rpc_common.CommonRpcContext)
    return _replying(importlib.import_module("nova.context").RequestContext)


def __getattr__(name: str) -> Any:
    # Which class this is depends on the era, which may not be known yet when this module is loaded.
    if name == "RpcContext":
        return _context_class()
    raise AttributeError(name)


# --- consumers ----------------------------------------------------------------------------------


class Consumer:
    """A proxy that takes the messages of a topic.

    Args:
        topic: the topic.
        proxy: runs them. It is not looked at before a message comes.
        pool_name: the pool whose members take turns; None is no pool.
    """

    def __init__(self, topic: str, proxy: Any, pool_name: str | None = None) -> None:
        self.topic = topic
        self.proxy = proxy
        self.pool_name = pool_name

    def call(self, context: Any, msg: dict[str, Any], timeout: float | None = None) -> list[Any]:
        """Run ``msg`` in a green thread of its own; all the values that it replied.

        Args:
            context: the caller's; the handler gets a copy.
            msg: ``method``, ``args`` and, from Folsom on, ``version`` and ``namespace``.
            timeout: seconds, looked at once a second as Nova did; None or 0 is for ever.

        Raises:
            Timeout: the handler was not ready in time, and was stopped.
            AttributeError: the proxy has no such method.
            Exception: see the module's docstring.
        """
        # As JSON would have made them.
        args = {str(key): value for key, value in (msg.get("args") or {}).items()}
        handler = handler_of(self.proxy, {**msg, "args": args})
        # Its exceptions are results here: gevent would print them.
        job = gevent.spawn(_run, handler, context)
        job.join(_patience(timeout))
        if not job.ready():
            job.kill(block=False)
            raise rpc_common.Timeout(None, self.topic, msg["method"])
        outcome: Any = job.value
        if isinstance(outcome, BaseException):
            raise outcome
        values: list[Any] = outcome
        return values


def _patience(timeout: float | None) -> float | None:
    """Seconds to wait: up to the first look after ``timeout``."""
    return math.ceil(timeout / _LOOK) * _LOOK if timeout else None


def _run(handler: Callable[[Any], Any], context: Any) -> list[Any] | BaseException:
    """Return the handler's replies, or the exception that the caller must see instead."""
    try:
        ctxt = _context_class().from_dict(context.to_dict())
        if hasattr(ctxt, "update_store"):
            ctxt.update_store()
        value = handler(ctxt)
        if inspect.isgenerator(value):
            for each in values_of(value):
                ctxt.reply(each)
        elif value is not None or not (ctxt._answers.given or ctxt._answers.ended):
            ctxt.reply(value)
        return list(ctxt._answers.values())
    except BaseException as error:
        return _for_caller(error._exc_info[1] if isinstance(error, rpc_common.ClientException) else error)


def _for_caller(error: BaseException) -> BaseException:
    # What ends a green thread, such as SystemExit, is not to end the caller's.
    if rpc_common.since("folsom") and isinstance(error, Exception):
        return error
    return rpc_common.RemoteError(type(error).__name__, str(error), "".join(traceback.format_exception(error)))


class _Listener:
    """A member of a pool that takes a topic's notifications."""

    def __init__(self, topic: str, callback: Callable[[Any], Any], pool_name: str) -> None:
        self.topic = topic
        self.callback = callback
        self.pool_name = pool_name


_Member = TypeVar("_Member", Consumer, _Listener)


class Connection(rpc_common.Connection):
    """Holds consumers; there is nothing to connect to."""

    def __init__(self) -> None:
        self.consumers: list[Consumer] = []
        self._listeners: list[_Listener] = []

    def create_consumer(self, topic: str, proxy: Any, fanout: bool = False) -> None:
        """Have ``proxy`` take what comes for ``topic``."""
        self._add(Consumer(topic, proxy))

    def create_worker(self, topic: str, proxy: Any, pool_name: str) -> None:
        """Have ``proxy`` take turns with the other members of a pool; each pool gets each cast."""
        self._add(Consumer(topic, proxy, pool_name))

    def join_consumer_pool(
        self,
        callback: Callable[[Any], Any],
        pool_name: str,
        topic: str,
        exchange_name: str = "",
        ack_on_error: bool = True,
    ) -> None:
        """Have ``callback`` take turns with the other members of a pool; each pool gets each notification."""
        listener = _Listener(topic, callback, pool_name)
        self._listeners.append(listener)
        _LISTENERS.setdefault(topic, []).append(listener)

    def consume_in_thread(self) -> None:
        """Nothing to do: the sender's green thread runs the handlers."""

    def close(self) -> None:
        """Withdraw its consumers."""
        for consumer in self.consumers:
            _remove(CONSUMERS, consumer)
        for listener in self._listeners:
            _remove(_LISTENERS, listener)
        self.consumers, self._listeners = [], []

    def _add(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        CONSUMERS.setdefault(consumer.topic, []).append(consumer)


def _remove(table: dict[str, list[_Member]], member: _Member) -> None:
    # A test may have emptied the table in the meantime.
    members = table.get(member.topic, [])
    if member in members:
        members.remove(member)


def create_connection(*args: Any, **kwargs: Any) -> Connection:
    """A connection: ``create_connection([conf,] new=True)``."""
    return Connection()


# --- sending ------------------------------------------------------------------------------------


def check_serialize(msg: Any) -> None:
    """Refuse what could not be sent by a real backend.

    Raises:
        TypeError: names the first value that has no JSON form.
    """
    if rpc_common.since("folsom"):
        primitives.dumps(msg)
    else:
        primitives.check(msg)


@optional_conf(topic_at=1)
def multicall(conf: Any, context: Any, topic: str, msg: dict[str, Any], timeout: float | None = None) -> list[Any]:
    """All the values that the first consumer of ``topic`` replies.

    Raises:
        TypeError: ``msg`` is not serializable.
        Timeout: it took longer than ``timeout`` seconds; from Grizzly on also if there is no consumer.
        Exception: as ``Consumer.call``.
    """
    check_serialize(msg)
    if not msg.get("method"):
        return []
    consumers = CONSUMERS.get(topic)
    if consumers:
        return consumers[0].call(context, msg, timeout)
    if rpc_common.since("grizzly"):
        raise rpc_common.Timeout("No consumers available")
    return [None]


@optional_conf(topic_at=1)
def call(conf: Any, context: Any, topic: str, msg: dict[str, Any], timeout: float | None = None) -> Any:
    """The last of ``multicall``'s values; None if there is none. Raises the same."""
    values = multicall(conf, context, topic, msg, timeout)
    return values[-1] if values else None


@optional_conf(topic_at=1)
def cast(conf: Any, context: Any, topic: str, msg: dict[str, Any]) -> None:
    """Run the first consumer of ``topic``, and a member of each other pool, now.

    Raises:
        TypeError: ``msg`` is not serializable.
        AttributeError: to Essex, the proxy has no such method.
    """
    check_serialize(msg)
    consumers = CONSUMERS.get(topic, [])
    _run_each([*consumers[:1], *_turns(consumers, consumers[:1])], context, msg)


@optional_conf(topic_at=1)
def fanout_cast(conf: Any, context: Any, topic: str, msg: dict[str, Any]) -> None:
    """Run every consumer of ``topic`` now. Raises as ``cast`` does."""
    check_serialize(msg)
    _run_each([*CONSUMERS.get(topic, [])], context, msg)


@optional_conf(topic_at=2)
def cast_to_server(conf: Any, context: Any, server_params: Any, topic: str, msg: dict[str, Any]) -> None:
    """``cast``: there is no other server."""
    cast(conf, context, topic, msg)


@optional_conf(topic_at=2)
def fanout_cast_to_server(conf: Any, context: Any, server_params: Any, topic: str, msg: dict[str, Any]) -> None:
    """``fanout_cast``: there is no other server."""
    fanout_cast(conf, context, topic, msg)


@optional_conf(topic_at=1)
def notify(conf: Any, context: Any, topic: str, msg: dict[str, Any], envelope: bool = False) -> None:
    """Give ``msg`` to a member of each pool that listens to ``topic``; their exceptions go to the log.

    Raises:
        TypeError: ``msg`` is not serializable.
    """
    check_serialize(msg)
    for listener in _turns(_LISTENERS.get(topic, [])):
        try:
            listener.callback(msg)
        except Exception:
            LOG.exception("a listener of %s failed", topic)


def cleanup() -> None:
    """Nothing is kept that would have to go; consumers stay."""


def _run_each(consumers: list[Consumer], context: Any, msg: dict[str, Any]) -> None:
    if not msg.get("method"):
        return
    swallowed = Exception if rpc_common.since("folsom") else rpc_common.RemoteError
    for consumer in consumers:
        try:
            consumer.call(context, msg)
        except swallowed:
            LOG.debug("a cast to %s failed", consumer.topic, exc_info=True)


def _turns(members: list[_Member], besides: list[_Member] | tuple[()] = ()) -> list[_Member]:
    """One member of each pool, which then goes to the end of its line; none of the pools of ``besides``."""
    first = {each.pool_name: each for each in reversed(members) if each.pool_name is not None}
    chosen = [each for name, each in first.items() if name not in {other.pool_name for other in besides}]
    for each in chosen:
        members.remove(each)
        members.append(each)
    return chosen
