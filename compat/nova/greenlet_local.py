"""``local``: attributes that each greenlet has for itself, in plain Python.

gevent's own, written in C, calls ``self.__init__`` when another greenlet first touches it. Nova's ``WeakLocal``
derives from ``local`` and overrides ``__getattribute__`` to call whatever it finds, so there that is a call of None,
in every handler. This one asks nothing of the subclass: it finds its state and its ``__init__`` by the type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self
from weakref import WeakKeyDictionary, WeakSet

from greenlet import getcurrent, greenlet

__all__ = ["local"]


class _State:
    """The values of each greenlet, and the arguments by which a greenlet's are initialised."""

    __slots__ = ("__weakref__", "arguments", "values")

    def __init__(self, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
        self.arguments = arguments
        self.values: WeakKeyDictionary[greenlet, dict[str, Any]] = WeakKeyDictionary()

    def begin(self, current: greenlet) -> dict[str, Any]:
        """The values of a greenlet that has none; they go when it ends."""
        values: dict[str, Any] = {}
        self.values[current] = values
        # The end of a greenlet that is not gevent's is not signalled: its values go with the object.
        if rawlink := getattr(current, "rawlink", None):
            states = _in_use.get(current)
            if states is None:
                states = _in_use[current] = WeakSet()
                rawlink(_forget)
            states.add(self)
        return values


#: Ends of greenlets -> the values they hold; one callback for all, because a greenlet may outlive many locals.
_in_use: WeakKeyDictionary[greenlet, WeakSet[_State]] = WeakKeyDictionary()


def _forget(ended: greenlet) -> None:
    for state in _in_use.pop(ended, ()):
        state.values.pop(ended, None)


class local:
    """An object whose attributes are of the running greenlet; in a native thread, of that thread.

    In a subclass, ``__init__`` runs again for each further greenlet, with the same arguments, at the first access.

    Raises:
        TypeError: there are arguments, and no ``__init__`` that takes them.
    """

    __slots__ = ("__weakref__", "_local__state")

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:  # noqa: D102
        if (args or kwargs) and cls.__init__ is object.__init__:
            raise TypeError("Initialization arguments are not supported")
        self = object.__new__(cls)
        state = _State((args, kwargs))
        _set_state(self, state)
        # What makes it runs __init__ itself.
        state.begin(getcurrent())
        return self

    def __getattribute__(self, name: str) -> Any:
        values = _values(self)
        if name == "__dict__":
            return values
        if name in values and not _is_data_descriptor(type(self), name):
            return values[name]
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__dict__":
            raise AttributeError(f"{type(self).__name__!r} object attribute '__dict__' is read-only")
        values = _values(self)
        if _is_data_descriptor(type(self), name):
            object.__setattr__(self, name, value)
        else:
            values[name] = value

    def __delattr__(self, name: str) -> None:
        values = _values(self)
        if name in values and not _is_data_descriptor(type(self), name):
            del values[name]
        else:
            object.__delattr__(self, name)


#: The slot, past whatever a subclass does with attributes.
_state: Callable[[local], _State] = vars(local)["_local__state"].__get__
_set_state: Callable[[local, _State], None] = vars(local)["_local__state"].__set__


def _values(self: local) -> dict[str, Any]:
    """The attributes of the running greenlet."""
    state = _state(self)
    current = getcurrent()
    values = state.values.get(current)
    if values is not None:
        return values
    values = state.begin(current)
    args, kwargs = state.arguments
    try:
        type(self).__init__(self, *args, **kwargs)
    except BaseException:
        # The next access tries it again.
        state.values.pop(current, None)
        raise
    return values


def _is_data_descriptor(cls: type, name: str) -> bool:
    """Return whether the class decides on the attribute, as with a property or a slot."""
    for base in cls.__mro__:
        if name in vars(base):
            return hasattr(type(vars(base)[name]), "__set__")
    return False
