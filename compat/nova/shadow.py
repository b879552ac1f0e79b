"""Shadow mode: read-only calls go to a second backend, too, and what the two reply is compared.

An operator watches so before cutting over. It is switched on by the option ``rpcmq_shadow``: the URL of another
rpcmq router, or the name of a module with the functions of an RPC backend. ``rpcmq_shadow_methods`` says which
calls only read.

The caller gets the first backend's reply, when that has it. The second one is called in a green thread of its own
with a copy of the message; whether it fails, differs, or takes for ever is logged by ``compat.nova.shadow`` and
counted, and nothing else. While too many of its calls are under way, further ones are left out and counted.
"""

from __future__ import annotations

import fnmatch
import functools
import importlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import gevent

from compat.nova import options, primitives
from rpcmq.adapters.untrusted_values import exception_text, short_repr

__all__ = ["Shadow", "current"]

LOG = logging.getLogger(__name__)

#: Calls of the second backend that may be under way at once.
_OUTSTANDING = 100
#: Most differences reported for two replies, and their longest text (characters).
_TOLD = 5
_SHOWN = 120
#: Characters of a reply that has no form in JSON which are compared.
_COMPARED = 100_000
_NOTHING = object()


def current() -> Shadow | None:
    """The shadow of this process; None while the option is not set."""
    backend = options.value("rpcmq_shadow")
    return _shadow(str(backend)) if backend else None


@functools.lru_cache(maxsize=4)
def _shadow(backend: str) -> Shadow:
    return Shadow(backend, _router(backend) if "://" in backend else _module(backend))


def _router(url: str) -> Callable[..., Any]:
    from nova.rpc import amqp

    return functools.partial(amqp.call_elsewhere, url)


def _module(name: str) -> Callable[..., Any]:
    from nova import rpc

    module = importlib.import_module(name)

    def call(context: Any, topic: str, msg: dict[str, Any], timeout: Any) -> Any:
        return module.call(*rpc._conf(), context, topic, msg, *(() if timeout is None else (timeout,)))

    return call


class Shadow:
    """Calls a second backend beside the first.

    Args:
        name: of the second backend, for the log.
        second: called with (context, topic, msg, timeout).

    Attributes:
        counts: how many calls were the same, different, failed (in the second only) or left out.
    """

    def __init__(self, name: str, second: Callable[..., Any]) -> None:
        self._name = name
        self._second = second
        self._under_way = 0
        self.counts: Counter[str] = Counter()

    @staticmethod
    def wants(topic: str, msg: Any) -> bool:
        """Return whether this call only reads: its method, or ``topic:method``, is among ``rpcmq_shadow_methods``."""
        method = str(msg.get("method")) if isinstance(msg, dict) else ""
        names = method, f"{topic}:{method}"
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in _patterns() for name in names)

    def call(self, first: Callable[[], Any], context: Any, topic: str, msg: dict[str, Any], timeout: Any) -> Any:
        """Return or raise the outcome of ``first()``; the second backend's reply is compared with it later."""
        try:
            beside = self._start(context, topic, msg, timeout)
        except Exception:
            # Whatever is wrong with the second must not be seen by who calls the first.
            LOG.exception("shadow %s: not called", self._name)
            self.counts["failed"] += 1
            return first()
        if beside is None:
            return first()
        where = f"{topic}:{msg.get('method')}"
        try:
            result = first()
        except BaseException as error:
            gevent.spawn(self._compare, where, error, beside)
            raise
        gevent.spawn(self._compare, where, result, beside)
        return result

    def _start(self, context: Any, topic: str, msg: dict[str, Any], timeout: Any) -> gevent.Greenlet[..., Any] | None:
        if self._under_way >= _OUTSTANDING:
            self.counts["left out"] += 1
            return None
        copy = json.loads(primitives.dumps(msg))
        self._under_way += 1
        return gevent.spawn(self._outcome, context, topic, copy, timeout)

    def _outcome(self, context: Any, topic: str, msg: dict[str, Any], timeout: Any) -> Any:
        try:
            return self._second(context, topic, msg, timeout)
        except BaseException as error:
            return error
        finally:
            self._under_way -= 1

    def _compare(self, where: str, first: Any, beside: gevent.Greenlet[..., Any]) -> None:
        beside.join()
        second = beside.value
        failed = isinstance(second, BaseException)
        if failed and not isinstance(first, BaseException):
            self.counts["failed"] += 1
            LOG.warning("shadow %s: %s failed: %s: %s", self._name, where, type(second).__name__, _short(second))
            return
        found = list(_differences(_plain(first), _plain(second)))
        self.counts["different" if found else "same"] += 1
        if found:
            more = f" and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
            LOG.warning("shadow %s: %s differs: %s%s", self._name, where, "; ".join(found[:_TOLD]), more)


def _patterns() -> list[str]:
    return list(options.value("rpcmq_shadow_methods") or ())


def _plain(reply: Any) -> Any:
    """Return a reply, or the exception raised instead, in its wire form."""
    if isinstance(reply, BaseException):
        kind = getattr(reply, "exc_type", None) or type(reply).__name__.removesuffix("_Remote")
        return {"raised": kind}
    try:
        return json.loads(primitives.dumps(reply))
    except (TypeError, ValueError):
        return short_repr(reply, _COMPARED)


def _differences(first: Any, second: Any, path: str = "reply") -> Iterator[str]:
    """Iterate over the differences of two replies, depth first."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in sorted({*first, *second}, key=str):
            yield from _differences(first.get(key, _NOTHING), second.get(key, _NOTHING), f"{path}.{key}")
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for index, pair in enumerate(zip(first, second, strict=True)):
            yield from _differences(*pair, f"{path}[{index}]")
    elif first != second:
        yield f"{path} is {_short(first)}, there {_short(second)}"


def _short(value: Any) -> str:
    if isinstance(value, BaseException):
        return exception_text(value, _SHOWN)
    return "missing" if value is _NOTHING else short_repr(value, _SHOWN)
