"""The registry of exception classes that are rebuilt from a message.

A remote exception names its class. The name is looked up here and nowhere else: it is never
imported or walked, so a sender can choose among the registered classes and nothing more.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from rpcmq import errors
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import exception_text, has_small_offsets, short_repr
from rpcmq.payload.printed_size import slots_of

__all__ = ["ExceptionRegistry", "NotRebuilt", "exception_state", "plain_args", "rebuild", "wire_name"]

E = TypeVar("E", bound="type[Exception] | types.ModuleType")

STEERS_CONTROL_FLOW = (StopIteration, StopAsyncIteration)
"""Raised in a caller, they would silently end a loop."""


CALLED = "_rpcmq_called"
"""Attribute with the called topic and method, on a call's own error."""

NOT_RUN = "_rpcmq_not_run"
"""Attribute that says that the request was refused before its method was run."""

MARKS = frozenset({"remote_traceback", "remote_host", "remote_causes", "remote_hops", CALLED, NOT_RUN})
"""Attributes that this library sets on exceptions; they do not travel as theirs."""


class NotRebuilt(Exception):
    """Raised with the reason why an exception cannot be rebuilt."""


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
        if not issubclass(value, (*STEERS_CONTROL_FLOW, BaseExceptionGroup)):
            yield value


def plain_args(exception: BaseException) -> tuple[Any, ...]:
    """The arguments that make ``exception`` again: its ``args``, and file names for OSError."""
    if isinstance(exception, OSError):
        # args leaves out the file names; what pickle would take does not.
        reduced: Any = OSError.__reduce__(exception)
        return tuple(reduced[1])
    return tuple(exception.args)


def exception_state(exc: BaseException) -> dict[str, Any]:
    """The attributes of ``exc``, those in ``__slots__`` too."""
    state = {name: value for name, value in vars(exc).items() if name not in MARKS}
    for slot in slots_of(type(exc)):
        try:
            state[slot.__name__] = slot.__get__(exc)
        except AttributeError:
            continue  # a slot that was never set
    return state


def rebuild(cls: type[E2], args: tuple[Any, ...], attributes: Mapping[str, Any] | None = None) -> E2:
    """An instance of ``cls`` with ``args`` as its ``args``.

    Args:
        attributes: all that the exception had. Its state is set then, and its constructor not called, whose arguments
            nobody knows. None: the constructor is called with ``args``.

    Raises:
        NotRebuilt: it cannot be made.
    """
    if issubclass(cls, SyntaxError) and not has_small_offsets(args):
        args = args[:1]
    try:
        made = None if attributes is None or not _has_constructor(cls) else _without_constructor(cls, args)
        if made is None:
            made = cls(*args)
        if not isinstance(made, OSError):
            # A constructor that formats its message would otherwise format it twice.
            made.args = args
        if not isinstance(made, cls):
            raise NotRebuilt(f"its constructor makes a {type(made).__qualname__[:100]}")
        set_state(made, attributes or {})
    except NotRebuilt:
        raise
    except Exception as error:
        text = f"{type(error).__qualname__[:100]}: {exception_text(error, 300)}"
        raise NotRebuilt(f"it cannot be made of its arguments: {text}") from None
    return made


E2 = TypeVar("E2", bound=Exception)


def _builtin_base(cls: type) -> Any:
    return next(base for base in cls.__mro__ if base.__module__ == "builtins")


def _has_constructor(cls: Any) -> bool:
    """Return whether it overrides the constructor of Python's own exceptions."""
    base = _builtin_base(cls)
    return cls.__init__ is not base.__init__ or cls.__new__ is not base.__new__


def _without_constructor(cls: type[E2], args: tuple[Any, ...]) -> E2 | None:
    """An instance as pickle would make it: what Python's own class keeps is set from ``args``, nothing else.

    None: there is a class in C between, which must be called.
    """
    base = _builtin_base(cls)
    try:
        made: Any = base.__new__(cls, *args)
        base.__init__(made, *args)
    except TypeError:
        return None
    return made  # type: ignore[no-any-return]


def pickled_without_constructor(cls: type) -> Callable[..., Any] | None:
    """Return the function that rebuilds ``cls`` from its pickle; None: its constructor, or it is no exception.

    Python's own exceptions pickle as a call with their ``args``, whatever their constructor takes, and their state.
    """
    if (
        not issubclass(cls, Exception)
        or cls.__reduce__ is not _builtin_base(cls).__reduce__
        or not _has_constructor(cls)
    ):
        return None
    return lambda *args: _without_constructor(cls, args) or cls(*args)


def set_state(made: Exception, attributes: Mapping[str, Any]) -> None:
    """Sets what ``exception_state`` gave."""
    slots = {slot.__name__: slot for slot in slots_of(type(made))}
    for name, value in attributes.items():
        if name != "__notes__" and (name.startswith("__") or hasattr(BaseException, name)):
            continue  # what a traceback, or Python itself, looks at
        if name in slots:
            slots[name].__set__(made, value)
        else:
            # Past whatever setters the class has.
            vars(made)[name] = value


def loaded_subclass(name: str, bases: Iterable[type[Exception]]) -> type[Exception] | None:
    """The class named ``name`` among those derived from ``bases`` that this process has loaded."""
    seen: set[type] = set()
    rest = [*bases]
    while rest:
        for cls in rest.pop().__subclasses__():
            if cls not in seen:
                if wire_name(cls) == name:
                    return cls
                seen.add(cls)
                rest.append(cls)
    return None


def _rpcmq_errors() -> Iterator[type[Exception]]:
    for name in errors.__all__:
        value = getattr(errors, name)
        if isinstance(value, type) and issubclass(value, Exception):
            yield value


def _exceptions_of(module: types.ModuleType) -> Iterator[type[Exception]]:
    for name, value in list(vars(module).items()):
        if _is_exception_class(value) and value.__module__ == module.__name__ and value.__qualname__ == name:
            yield value


class ExceptionRegistry:
    """The classes that may be rebuilt, by their name in messages.

    A class that is registered stands for those derived from it, too, as far as this process has loaded them.
    :func:`rpcmq.allow` registers a class or module for all clients of a process.

    Args:
        classes: registered in addition to the builtin exceptions and those of ``rpcmq.errors``: classes, and modules,
            of which the exceptions are taken that they define themselves.
        defaults: False leaves those out.

    Raises:
        UsageError: as ``register``.
    """

    def __init__(self, classes: Iterable[type[Exception] | types.ModuleType] = (), *, defaults: bool = True) -> None:
        self._classes: dict[str, type[Exception]] = {}
        #: The registered exceptions, without the defaults.
        self._own: list[type[Exception]] = []
        if defaults:
            for cls in (*plain_builtin_exceptions(), *_rpcmq_errors()):
                self._classes[wire_name(cls)] = cls
        for each in classes:
            self.register(each)

    def register(self, what: E) -> E:
        """Lets a class be rebuilt, or all exceptions that a module defines; returns it, as a decorator does.

        Raises:
            UsageError: a class is not a subclass of ``Exception``, steers control flow, or another class has its name;
                a module defines none.
        """
        if isinstance(what, types.ModuleType):
            found = [cls for cls in _exceptions_of(what) if not issubclass(cls, STEERS_CONTROL_FLOW)]
            if not found:
                raise UsageError(f"module {what.__name__} cannot be registered: it defines no exception itself")
            for each in found:
                self._register(each)
        else:
            self._register(what)
        return what

    def _register(self, cls: Any) -> None:
        if not _is_exception_class(cls):
            raise UsageError(f"{short_repr(cls)} cannot be registered: it is not a subclass of Exception")
        if issubclass(cls, STEERS_CONTROL_FLOW):
            raise UsageError(
                f"{wire_name(cls)} cannot be registered: raised in a caller, it would end a loop there in silence"
            )
        known = self._classes.get(wire_name(cls))
        if known is None:
            self._classes[wire_name(cls)] = cls
            self._own.append(cls)
        elif known is not cls:
            raise UsageError(f"another class is registered as {wire_name(cls)}")

    def get(self, name: str) -> type[Exception] | None:
        """The class registered as ``name`` (``"module:qualname"``), or None."""
        found = self._classes.get(name)
        return loaded_subclass(name, self._own) if found is None and self._own else found

    def __contains__(self, cls: object) -> bool:
        return isinstance(cls, type) and self.get(wire_name(cls)) is cls

    def rebuild(
        self, name: str, args: tuple[Any, ...], attributes: Mapping[str, Any] | None = None
    ) -> Exception | None:
        """An instance of the class registered as ``name``, as :func:`rebuild` makes it; None: there is none."""
        cls = self.get(name)
        try:
            return None if cls is None else rebuild(cls, args, attributes)
        except NotRebuilt:
            return None
