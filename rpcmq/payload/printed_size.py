"""The length of a value's ``repr()``, estimated at a cost that whoever made the value cannot choose.

A value that holds another one twice, that one the next twice, and so on, is some hundred bytes and a text without end;
a ``Decimal``, a time zone or an array shows what Python sees no parts of. Both are counted before anything is written.

That says nothing of a ``__repr__`` in Python that works for long by itself: the code of a class is its owner's.
"""

from __future__ import annotations

import array
import datetime
import decimal
import functools
import gc
import math
import sys
import types
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

__all__ = ["MAX_DEPTH", "MAX_INT_BITS", "TooMuch", "args_of", "is_printable", "slots_of"]

MAX_PRINTED: Final = 1_000_000
"""Default limit of a printed value, in estimated characters."""

MAX_DEPTH: Final = 200
"""The deepest nesting of values that are printed."""

MAX_INT_BITS: Final = 14_000
"""Largest integer that is printed: Python refuses those of more than 4300 digits."""

_MAX_OBJECTS = 50_000
_PLAIN_DEPTH = 2
"""The same within objects of classes whose ``__repr__`` is their own: they rarely show all they hold."""

_ITERATORS: dict[type, Any] = {
    list: list.__iter__, tuple: tuple.__iter__, set: set.__iter__, frozenset: frozenset.__iter__, deque: deque.__iter__,
}  # fmt: skip

#: Shown by their names.
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
#: Written in C, so that their parts are no attributes, and shown with all that they refer to.
_SHOWN_WITH_REFERENTS: Final[tuple[type, ...]] = (
    slice, functools.partial, types.MethodType, types.MappingProxyType, types.GenericAlias, types.UnionType,
    type({}.keys()), type({}.values()), type({}.items()),
)  # fmt: skip

_EMPTY_DECIMAL = decimal.Decimal().__sizeof__()
_DECIMAL_DIGITS_PER_BYTE = 2.5
_ARRAY_CHARACTERS_PER_BYTE = 6
#: numpy shows the three first and last along each axis of arrays that are larger than this.
_NUMPY_WHOLE = 1000
_NUMPY_EDGES = 7


class TooMuch(Exception):
    """More than can be counted, or than is to be printed."""


def is_printable(value: object, most: int = MAX_PRINTED) -> bool:
    """Return whether ``repr(value)`` writes about ``most`` characters at most, and takes no longer than that needs."""
    if _is_small(value):
        return True
    try:
        return _Printed(most).size(value, 0, 0) <= most
    except Exception:
        return False


def _is_small(value: Any) -> bool:
    """Return whether ``value`` is what most values are. It may say no of others."""
    kind = type(value)
    if kind is tuple:
        return len(value) < 16 and all(type(part) is not tuple and _is_small(part) for part in value)
    return (kind is str and len(value) < 500) or (kind is int and -1 << 63 < value < 1 << 63) or value is None


class _Printed:
    """Measures the length of ``repr()`` with shared parts written out, in time bounded by the size of the value."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sizes: dict[int, int] = {}
        # An id is that of one value for as long as it is alive, and some parts are made when they are asked for.
        self._alive: list[Any] = []

    def size(self, value: Any, depth: int, plain: int) -> int:
        """Return the approximate number of characters; ``plain`` is the depth in objects of unknown form.

        Raises:
            TooMuch: more than can be looked at, or than can be printed.
        """
        own = _own_size(value)
        if own is not None:
            return own
        known = self._sizes.get(id(value))
        if known is not None:
            return known
        if depth > MAX_DEPTH or len(self._sizes) >= _MAX_OBJECTS:
            raise TooMuch
        # In itself it is shown as "...".
        self._sizes[id(value)] = total = 24 + len(type(value).__qualname__)
        self._alive.append(value)
        shown = _is_shown_whole(value)
        if shown or plain < _PLAIN_DEPTH:
            for part in _parts(value):
                total += self.size(part, depth + 1, plain if shown else plain + 1)
                if total > self._most:
                    raise TooMuch
        self._sizes[id(value)] = total
        return total


def _own_size(value: Any) -> int | None:
    """Characters of a value that has no parts; None: it may have some."""
    if isinstance(value, int):
        bits = int.bit_length(value)
        if bits > MAX_INT_BITS:
            raise TooMuch
        return 24 + bits // 3
    if isinstance(value, (str, bytes, bytearray)):
        return 3 + len(value)
    if isinstance(value, (float, complex, types.NoneType)):
        return 24
    if isinstance(value, _NAMED):
        return 24 + len(value.__name__) + len(getattr(value, "__qualname__", ""))
    if isinstance(value, decimal.Decimal):
        return 24 + int(_DECIMAL_DIGITS_PER_BYTE * max(0, decimal.Decimal.__sizeof__(value) - _EMPTY_DECIMAL))
    if isinstance(value, array.array):
        return 24 + _ARRAY_CHARACTERS_PER_BYTE * len(value) * value.itemsize
    return None


def _is_shown_whole(value: object) -> bool:
    """Return whether ``repr()`` is known to show all that the value holds."""
    known = (dict, *_ITERATORS, BaseException, *_SHOWN_WITH_REFERENTS)
    return isinstance(value, known) or hasattr(type(value), "__dataclass_fields__")


def _parts(value: Any) -> Iterator[Any]:
    """The values shown within ``value``, as far as they are known."""
    if isinstance(value, dict):
        for key, item in dict.items(value):
            yield key
            yield item
    for kind, iterate in _ITERATORS.items():
        if isinstance(value, kind):
            yield from iterate(value)
    if isinstance(value, BaseException):
        yield from args_of(value)
    yield from _parts_in_c(value)
    held = getattr(value, "__dict__", None)
    if type(held) is dict:
        yield from held.values()
    for slot in slots_of(type(value)):
        with suppress(AttributeError):  # a slot that was never set
            yield slot.__get__(value)


def _parts_in_c(value: Any) -> Iterator[Any]:
    if isinstance(value, _SHOWN_WITH_REFERENTS):
        yield from gc.get_referents(value)
    elif isinstance(value, range):
        yield from (value.start, value.stop, value.step)
    elif isinstance(value, (datetime.datetime, datetime.time)):
        yield value.tzinfo
    elif isinstance(value, datetime.timezone):
        yield value.tzname(None)
    elif numpy := sys.modules.get("numpy"):
        yield from _parts_in_numpy(numpy, value)


def _parts_in_numpy(numpy: Any, value: Any) -> Iterator[Any]:
    if isinstance(value, numpy.dtype):
        yield value.names
        yield value.subdtype
        for field in (value.fields or {}).values():
            yield field[0]
    elif isinstance(value, (numpy.ndarray, numpy.generic)):
        yield value.dtype
        whole = value.size <= _NUMPY_WHOLE
        items = value.size if whole else math.prod(min(length, _NUMPY_EDGES) for length in value.shape)
        # As long as its characters, so that it counts as much.
        yield bytes(min(items * (24 + 4 * value.itemsize), MAX_PRINTED + 1))


def slots_of(cls: type) -> tuple[types.MemberDescriptorType, ...]:
    """Return the slots that ``__slots__`` of Python classes made: those in C hold nothing that is printed."""
    known = _slots.get(cls)
    if known is not None:
        return known
    found = _slots[cls] = tuple(
        member
        for base in cls.__mro__
        if "__slots__" in vars(base)
        for member in vars(base).values()
        if type(member) is types.MemberDescriptorType
    )
    return found


_slots: WeakKeyDictionary[type, tuple[types.MemberDescriptorType, ...]] = WeakKeyDictionary()


def args_of(exc: BaseException) -> tuple[Any, ...]:
    """The arguments of an exception, whatever its class calls ``args``."""
    found: tuple[Any, ...] = BaseException.args.__get__(exc)  # type: ignore[attr-defined]
    return found
