"""Find the methods of an endpoint that are served; refuse endpoints and event handlers that cannot run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from types import AsyncGeneratorType, CoroutineType, ModuleType
from typing import Any

from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr

__all__ = [
    "ASYNC",
    "ASYNC_RESULTS",
    "check_endpoint",
    "check_handler",
    "find_method",
    "is_async",
    "not_awaited",
    "public_methods",
]

#: Types of async results, which cannot be served.
ASYNC_RESULTS = (CoroutineType, AsyncGeneratorType)


def find_method(endpoint: Any, name: str) -> Callable[..., Any] | None:
    """The public method ``name`` of ``endpoint``; None if there is none.

    Of a module that is each name in its ``__all__`` or, without one, each function that it defines itself: what it has
    imported is not served. Of any other object it is each callable attribute but classes. Names that begin with an
    underscore are not public.
    """
    if name.startswith("_"):
        return None
    found: Any = getattr(endpoint, name, None)
    if not callable(found) or isinstance(found, type):
        return None
    if isinstance(endpoint, ModuleType):
        exported = getattr(endpoint, "__all__", None)
        own = name in exported if exported is not None else getattr(found, "__module__", "") == endpoint.__name__
        if not own:
            return None
    method: Callable[..., Any] = found
    return method


def public_methods(endpoint: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Name and method of all that is served, in the order of the names."""
    for name in sorted(dir(endpoint)):
        method = find_method(endpoint, name)
        if method is not None:
            yield name, method


def check_endpoint(endpoint: Any, *, may_be_async: bool = False) -> None:
    """Refuse an endpoint with methods that could not be run, or without any.

    Args:
        may_be_async: whether ``async`` methods can be run.

    Raises:
        UsageError: one is ``async``, or there is none; or it is a class whose methods need an instance.
    """
    if not _may_have_methods(endpoint):
        raise UsageError(f"endpoint {short_repr(endpoint)} has no public method, so nothing could be called on it")
    if isinstance(endpoint, type) and any(
        inspect.isfunction(inspect.getattr_static(endpoint, name)) for name in dir(endpoint) if not name.startswith("_")
    ):
        raise UsageError(
            f"endpoint is the class {endpoint.__name__}, whose methods need an instance; "
            f"give an instance of it: {endpoint.__name__}(...)"
        )
    if may_be_async:
        return
    for name in dir(endpoint):
        # A property is not to be computed for this.
        method = inspect.getattr_static(endpoint, name, None)
        if name.startswith("_") or not is_async(method):
            continue
        if isinstance(endpoint, ModuleType) and find_method(endpoint, name) is None:
            continue
        raise UsageError(f"{_name_of(endpoint)}: method {name!r} cannot be served: {ASYNC}")


def _may_have_methods(endpoint: Any) -> bool:
    if isinstance(endpoint, ModuleType):
        return any(True for _ in public_methods(endpoint))
    # One that makes its methods as they are asked for lists none. A property is not to be computed for this.
    return hasattr(type(endpoint), "__getattr__") or any(not name.startswith("_") for name in dir(endpoint))


def check_handler(handler: Any) -> None:
    """Refuse a handler of events that could not be run.

    Raises:
        UsageError: it cannot be called, or is ``async``.
    """
    if not callable(handler):
        raise UsageError(f"handler must be callable, not {short_repr(handler)}")
    if is_async(handler) or is_async(type(handler).__call__):
        raise UsageError(f"handler {short_repr(handler)} cannot be run: {ASYNC}")


#: The reason that async methods are refused, and the ways to do without, and with.
ASYNC = (
    "it is async, and what rpcmq runs, in a greenlet or a thread, has no asyncio event loop. Write it with plain "
    "'def': what waits there (sockets, sleep, other calls) waits for this request only; or use rpcmq.aio, whose "
    "Service and Client run async methods and handlers in an event loop"
)


def not_awaited(method: str, result: Any) -> UsageError:
    """Build the error for ``method``, which has returned one of ``ASYNC_RESULTS``."""
    is_coroutine = isinstance(result, CoroutineType)
    if is_coroutine:
        # Python need not complain as well that it was never awaited.
        result.close()
    return UsageError(f"{method!r} returned {'a coroutine' if is_coroutine else 'an async generator'}: {ASYNC}")


def is_async(method: Any) -> bool:
    """Return whether ``method`` is ``async``, or wraps one that is."""
    if isinstance(method, (staticmethod, classmethod)):
        method = method.__func__
    while isinstance(method, partial):
        method = method.func
    if not (inspect.isroutine(method) or inspect.isfunction(method)):
        return False
    method = inspect.unwrap(method)
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


def _name_of(endpoint: Any) -> str:
    return endpoint.__name__ if isinstance(endpoint, ModuleType) else type(endpoint).__qualname__
