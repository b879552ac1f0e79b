"""Turn a message into a call of the consumer's proxy.

* to Essex: ``proxy.method(context=ctxt, **args)``;
* Folsom, Grizzly: ``proxy.dispatch(ctxt, version, method, **args)``;
* Havana: ``proxy.dispatch(ctxt, version, method, namespace, **args)``.

It is decided when a message comes, by the message and the proxy as well as by the era: a program that
mixes the forms works. Nothing here touches a proxy before that.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nova.rpc import common


def handler_of(proxy: Any, message: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return a function that, given the context, runs ``message`` on ``proxy``.

    Raises:
        AttributeError: ``proxy`` has neither the method nor ``dispatch``.
    """
    method = message["method"]
    args = message.get("args") or {}
    versioned = common.since("folsom") or "version" in message
    dispatch = getattr(proxy, "dispatch", None) if versioned else None
    if not callable(dispatch):
        try:
            return functools.partial(_by_keyword, getattr(proxy, method), args)
        except AttributeError:
            dispatch = getattr(proxy, "dispatch", None)
            if not callable(dispatch):
                raise
    place = [message.get("version"), method]
    if _takes_namespace(dispatch):
        place.append(message.get("namespace"))
    return functools.partial(_by_dispatch, dispatch, place, args)


def values_of(items: Iterator[Any]) -> Iterator[Any]:
    """Iterate over a handler's generator. One written for Python 2 may end itself with ``raise StopIteration``."""
    try:
        yield from items
    except RuntimeError as error:
        if not isinstance(error.__cause__, StopIteration):
            raise


def _by_keyword(method: Callable[..., Any], args: dict[str, Any], context: Any) -> Any:
    return method(context=context, **args)


def _by_dispatch(dispatch: Callable[..., Any], place: list[Any], args: dict[str, Any], context: Any) -> Any:
    return dispatch(context, *place, **args)


def _takes_namespace(dispatch: Callable[..., Any]) -> bool:
    """Return whether ``dispatch`` takes the namespace as its fourth argument."""
    function = getattr(dispatch, "__func__", None)
    if function is None:
        return _has_fourth(dispatch, 4)
    return _function_has_fourth(function)


@functools.lru_cache(maxsize=256)
def _function_has_fourth(function: Callable[..., Any]) -> bool:
    # A plain function also has self.
    return _has_fourth(function, 5)


def _has_fourth(function: Callable[..., Any], places: int) -> bool:
    try:
        kinds = [each.kind for each in inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return common.since("havana")
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return inspect.Parameter.VAR_POSITIONAL in kinds or sum(kind in by_position for kind in kinds) >= places
