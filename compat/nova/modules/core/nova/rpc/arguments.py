"""The two styles in which legacy code calls a driver: with a configuration object first, or without."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def optional_conf(topic_at: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a driver's function ``f(conf, ...)`` so that callers of before Folsom may leave ``conf`` out.

    What tells the styles apart is where the topic, a text, stands. Left out, ``conf`` is None.

    Args:
        topic_at: position of the topic where there is no ``conf``.
    """

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def either(*args: Any, **kwargs: Any) -> Any:
            if "conf" in kwargs or _has_conf(args, kwargs, topic_at):
                return func(*args, **kwargs)
            return func(None, *args, **kwargs) if kwargs else func(None, *args)

        return either

    return decorate


def _has_conf(args: tuple[Any, ...], kwargs: dict[str, Any], topic_at: int) -> bool:
    if len(args) > topic_at + 1 and isinstance(args[topic_at + 1], str):
        return True
    if len(args) > topic_at:
        return not isinstance(args[topic_at], str) and not hasattr(args[0], "to_dict")
    # The rest is given by name: conf is there if what comes after it is.
    return bool(args) and "context" in kwargs
