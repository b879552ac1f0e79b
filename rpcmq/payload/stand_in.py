"""Stand-ins: what a pickle gets for a class or function that it may name.

A pickle may set attributes on whatever it holds, classes included. So a class written in Python is never handed over: a
*stand-in* is, which only constructs. (Classes written in C whose attributes cannot be set are handed over as they are.)
"""

from __future__ import annotations

import types
from collections.abc import Callable
from enum import Enum, Flag
from ipaddress import IPv4Network, IPv6Network
from typing import Any, NoReturn

from rpcmq.errors import PayloadRefused
from rpcmq.payload.exception_registry import pickled_without_constructor
from rpcmq.payload.printed_size import is_printable

__all__ = ["copies", "for_pickle", "real_class", "stand_in"]

#: Characters of the value of an enum member, printed; and bounds for flags.
_MAX_MEMBER = 100_000
_MAX_COMBINATIONS = 65_536
_MAX_FLAG_BITS = 4096

_IMMUTABLE_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: setting an attribute raises TypeError.


class _StandIn(type):
    """The type of stand-ins: calling one constructs, and nothing can be set on it."""

    _build: Callable[..., Any]
    _real: type | None
    _copies: bool

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._build(*args, **kwargs)

    def __setattr__(cls, name: str, value: object) -> NoReturn:
        raise PayloadRefused(f"pickle sets attribute {name[:80]!r} on {cls!r}")

    def __delattr__(cls, name: str) -> NoReturn:
        raise PayloadRefused(f"pickle deletes attribute {name[:80]!r} of {cls!r}")

    def __repr__(cls) -> str:
        return f"<stand-in for {cls.__module__}:{cls.__qualname__}>"


def stand_in(
    entry: str,
    build: Callable[..., Any],
    new: type | None = None,
    factory: type | None = None,
    *,
    copies: bool = False,
) -> type:
    """Return the stand-in that a pickle gets for ``entry``, a mutable class or a function.

    Args:
        entry: ``"module:qualname"``.
        build: called where the pickle calls the global.
        new: the class whose ``__new__`` makes the object where the pickle asks for an object
            without calling the constructor; None refuses that.
        factory: the class that a defaultdict gets for it; default: ``new``.
        copies: calling it makes a copy of what it is called with.
    """
    module, _, qualname = entry.partition(":")

    def make(_cls: type, *args: Any, **kwargs: Any) -> Any:
        if new is None:
            raise PayloadRefused(f"pickle makes a {entry} without calling it")
        _refuse_endless(entry, args)
        return new.__new__(new, *args, **kwargs)

    namespace = {
        "__slots__": (),
        "__module__": module,
        "__qualname__": qualname,
        "__new__": make,
        "_build": staticmethod(build),
        "_real": factory or new,
        "_copies": copies,
    }
    return _StandIn(qualname, (), namespace)


def real_class(held: object) -> type | None:
    """Return the class that ``held``, a pickle's global, is or stands for; None if it is not a class."""
    if isinstance(held, _StandIn):
        real: type | None = held._real
        return real
    return held if isinstance(held, type) else None


def copies(held: object) -> bool:
    """Return whether calling ``held`` copies its arguments: a pickle can hold one once and have it copied often."""
    return isinstance(held, _StandIn) and held._copies


def for_pickle(entry: str, value: object) -> object:
    """``value``, which ``entry`` names, in the form in which a pickle may hold it."""
    if isinstance(value, type):
        if value.__flags__ & _IMMUTABLE_TYPE:
            return value
        if issubclass(value, Enum):
            return stand_in(entry, lambda *args: _member(entry, value, args), factory=value)
        return stand_in(entry, _builder(entry, value), new=value)
    if callable(value):
        return stand_in(entry, value)
    raise PayloadRefused(f"allow-list entry {entry!r} names neither a class nor a function")


#: Types that iterate nearly without end when a constructor consumes them.
_ENDLESS = (IPv4Network, IPv6Network, range, types.GeneratorType)


def _refuse_endless(entry: str, args: tuple[Any, ...]) -> None:
    if any(isinstance(arg, _ENDLESS) for arg in args):
        raise PayloadRefused(f"pickle makes a {entry} of an argument that hardly ends")


def _builder(entry: str, cls: type) -> Callable[..., Any]:
    make = pickled_without_constructor(cls) or cls

    def build(*args: Any, **kwargs: Any) -> Any:
        _refuse_endless(entry, args)
        return make(*args, **kwargs)

    return build


def _member(entry: str, cls: type[Enum], args: tuple[Any, ...]) -> Enum:
    if len(args) != 1:
        raise PayloadRefused(f"pickle calls {entry} with arguments that no member pickles to")
    value = args[0]
    if not is_printable(value, _MAX_MEMBER):
        raise PayloadRefused(f"pickle asks for a member of {entry} by a value that is none")  # it would be printed
    if issubclass(cls, Flag) and type(value) is int:
        # Python keeps each combination that it was asked for.
        known = cls._value2member_map_
        if value not in known and (len(known) >= _MAX_COMBINATIONS or value.bit_length() > _MAX_FLAG_BITS):
            raise PayloadRefused(f"pickle asks for a combination of {entry} that is too large, or for too many of them")
    return cls(value)
