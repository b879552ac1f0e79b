"""Which exception classes are rebuilt from a message.

A remote exception names its class. The name is looked up here and nowhere else: it is never
imported or walked, so a sender can choose among the registered classes and nothing more.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from rpcmq import errors
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import brief, has_small_offsets

__all__ = ["ExceptionRegistry", "plain_args", "plain_builtin_exceptions", "wire_name"]

E = TypeVar("E", bound=Exception)

_STEERS_CONTROL_FLOW = (StopIteration, StopAsyncIteration)


def wire_name(cls: type) -> str:
    """``"module:qualname"``, the name of ``cls`` in messages."""
    return f"{cls.__module__}:{cls.__qualname__}"


def _is_exception_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def plain_builtin_exceptions() -> Iterator[type[Exception]]:
    """The builtin exceptions that are safe to raise in another process.

    Not among them: those that would end the caller's loop in silence (``StopIteration``), those
    that would end its process (``SystemExit``, not an ``Exception``), and exception groups.
    """
    seen = set()
    for value in vars(builtins).values():
        if not (isinstance(value, type) and issubclass(value, Exception)) or value in seen:
            continue
        seen.add(value)
        if not issubclass(value, (*_STEERS_CONTROL_FLOW, BaseExceptionGroup)):
            yield value


def plain_args(exception: BaseException) -> tuple[Any, ...]:
    """The arguments that make ``exception`` again: its ``args``, and file names for OSError."""
    if isinstance(exception, OSError):
        # args leaves out the file names; what pickle would take does not.
        reduced: Any = OSError.__reduce__(exception)
        return tuple(reduced[1])
    return tuple(exception.args)


def _rpcmq_errors() -> Iterator[type[Exception]]:
    for name in errors.__all__:
        value = getattr(errors, name)
        if isinstance(value, type) and issubclass(value, Exception):
            yield value


class ExceptionRegistry:
    """The classes that may be rebuilt, by their name in messages.

    Args:
        classes: registered in addition to the builtin exceptions and those of ``rpcmq.errors``.
        defaults: False leaves those out.

    Raises:
        UsageError: as ``register``.
    """

    def __init__(self, classes: Iterable[type[Exception]] = (), *, defaults: bool = True) -> None:
        self._classes: dict[str, type[Exception]] = {}
        if defaults:
            for cls in (*plain_builtin_exceptions(), *_rpcmq_errors()):
                self._classes[wire_name(cls)] = cls
        for cls in classes:
            self.register(cls)

    def register(self, cls: type[E]) -> type[E]:
        """Lets ``cls`` be rebuilt; returns it, so that this can be a class decorator.

        Raises:
            UsageError: ``cls`` is not a subclass of ``Exception``, steers control flow, or another
                class has its name.
        """
        if not _is_exception_class(cls):
            raise UsageError(f"{brief(cls)} cannot be registered: it is not a subclass of Exception")
        if issubclass(cls, _STEERS_CONTROL_FLOW):
            raise UsageError(
                f"{wire_name(cls)} cannot be registered: raised in a caller, it would end a loop there in silence"
            )
        known = self._classes.setdefault(wire_name(cls), cls)
        if known is not cls:
            raise UsageError(f"another class is registered as {wire_name(cls)}")
        return cls

    def get(self, name: str) -> type[Exception] | None:
        """The class registered as ``name`` (``"module:qualname"``), or None."""
        return self._classes.get(name)

    def __contains__(self, cls: object) -> bool:
        return isinstance(cls, type) and self._classes.get(wire_name(cls)) is cls

    def rebuild(self, name: str, args: tuple[Any, ...]) -> Exception | None:
        """An instance of the class registered as ``name``, with ``args`` as its ``args``.

        None where the name is not registered or the constructor refuses ``args``.
        """
        cls = self._classes.get(name)
        if cls is None:
            return None
        if issubclass(cls, SyntaxError) and not has_small_offsets(args):
            args = args[:1]
        try:
            made = cls(*args)
            if not isinstance(made, OSError):
                # A constructor that formats its message would otherwise format it twice.
                made.args = args
        except Exception:
            return None
        return made if isinstance(made, cls) else None
