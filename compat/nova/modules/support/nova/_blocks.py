"""The part of ``nova.utils`` that stands around functions and blocks, or walks classes."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from nova.openstack.common.excutils import save_and_reraise_exception

LOG = logging.getLogger(__name__)


def timefunc(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: log how long it takes."""

    @functools.wraps(func)
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.monotonic()
        try:
            return func(*args, **kwargs)
        finally:
            LOG.debug("timefunc: '%s' took %.2f secs", func.__name__, time.monotonic() - start)

    return timed


@contextlib.contextmanager
def logging_error(message: str) -> Iterator[None]:
    """Log an exception, which goes no further."""
    try:
        yield
    except Exception:
        LOG.exception("%s", message)


@contextlib.contextmanager
def temporary_mutation(obj: Any, **kwargs: Any) -> Iterator[None]:
    """Have these attributes, or items of a dict, for a while."""
    items = isinstance(obj, dict)
    missing = object()
    old = {name: obj.get(name, missing) if items else getattr(obj, name, missing) for name in kwargs}

    def put(values: dict[str, Any]) -> None:
        for name, value in values.items():
            if items:
                obj.pop(name, None) if value is missing else obj.__setitem__(name, value)
            elif value is missing:
                delattr(obj, name)
            else:
                setattr(obj, name, value)

    put(kwargs)
    try:
        yield
    finally:
        put(old)


def walk_class_hierarchy(clazz: type, encountered: list[Any] | None = None) -> Iterator[Any]:
    """All classes below, the deepest first."""
    encountered = [] if encountered is None else encountered
    below: list[Any] = clazz.__subclasses__()
    for each in below:
        if each not in encountered:
            encountered.append(each)
            yield from walk_class_hierarchy(each, encountered)
            yield each


class UndoManager:
    """Undo steps to run, last first, if a later step fails."""

    def __init__(self) -> None:
        self.undo_stack: list[Callable[[], Any]] = []

    def undo_with(self, undo_func: Callable[[], Any]) -> None:
        """Remember one more step."""
        self.undo_stack.append(undo_func)

    def rollback_and_reraise(self, msg: str | None = None, **kwargs: Any) -> None:
        """In an ``except`` block: undo it all, and raise the exception again."""
        with save_and_reraise_exception():
            if msg:
                LOG.error("%s", msg, exc_info=sys.exc_info())
            for undo in reversed(self.undo_stack):
                undo()
