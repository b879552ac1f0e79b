"""The globals that a pickle may name unless configured otherwise: values of the standard library.

Lists, dicts, sets, frozensets, tuples, bytes, bytearrays, strings and numbers (except ``complex``)
have opcodes of their own in protocol 5 and need no entry.

Left out on purpose, each for what a sender could do with it:

* ``range``: iterates nearly without end, and several constructors iterate.
* ``functools.partial``, ``operator.*``, ``getattr``, ``type`` and their like: see ``never_allowed``.
* exceptions that steer control flow (``StopIteration``, ``SystemExit``...), exception groups
  (they iterate their argument), those whose traceback does what their attributes say (``ImportError`` imports,
  ``SyntaxError`` draws lines of any length), and classes as values.

A constructor that would take more shapes than its type's pickle has is wrapped by a function that
takes only those, so that a sender cannot reach, for example, quadratic number parsing.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import http
import ipaddress
import pathlib
import re
import time
import uuid
import zoneinfo
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

from rpcmq.errors import PayloadRefused
from rpcmq.payload.allow_list import AllowList
from rpcmq.payload.exception_registry import plain_builtin_exceptions
from rpcmq.payload.stand_in import real_class, stand_in

__all__ = ["DEFAULT_ALLOW_LIST", "FACTORIES"]

_MAX_FRACTION_BITS = 1 << 16  # gcd is quadratic: at this size it takes well below a millisecond.
_ZONE_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+\-]*(?:/[A-Za-z0-9_+\-]+)*")


def _require(fits: bool, entry: str) -> None:
    if not fits:
        raise PayloadRefused(f"pickle calls {entry} with arguments that no {entry} pickles to")


def _from_one(entry: str, build: Callable[[Any], object], *kinds: type) -> type:
    """A stand-in for a class that is made from one argument, of exactly one of ``kinds``."""

    def construct(*args: Any) -> object:
        _require(len(args) == 1 and type(args[0]) in kinds, entry)
        return build(args[0])

    return stand_in(entry, construct, copies=str in kinds)


def _path(entry: str, build: Callable[..., object]) -> type:
    def construct(*parts: Any) -> object:
        _require(all(type(part) is str for part in parts), entry)
        return build(*parts)

    return stand_in(entry, construct, copies=True)


def _uuid(*args: Any) -> uuid.UUID:
    _require(len(args) == 1 and type(args[0]) is str, "uuid:UUID")
    return uuid.UUID(*args)


def _unicode_decode_error(*args: Any) -> UnicodeDecodeError:
    _require(len(args) == 5 and type(args[1]) is bytes, "builtins:UnicodeDecodeError")  # of others it takes a copy
    return UnicodeDecodeError(*args)


def _complex(*args: Any) -> complex:
    _require(len(args) == 2 and all(type(part) is float for part in args), "builtins:complex")
    return complex(*args)


def _fraction(*args: Any) -> fractions.Fraction:
    fits = len(args) == 2 and all(type(part) is int and part.bit_length() <= _MAX_FRACTION_BITS for part in args)
    _require(fits, "fractions:Fraction")
    return fractions.Fraction(*args)


def _ordered_dict(*args: Any) -> collections.OrderedDict[Any, Any]:
    _require(not args, "collections:OrderedDict")  # its items follow by SETITEMS
    return collections.OrderedDict()


def _deque(*args: Any) -> collections.deque[Any]:
    fits = not args or (len(args) == 2 and args[0] == () and type(args[1]) is int)
    _require(fits, "collections:deque")  # its items follow by APPENDS
    return collections.deque(*args)


def _counter(*args: Any) -> collections.Counter[Any]:
    _require(len(args) == 1 and type(args[0]) is dict, "collections:Counter")
    return collections.Counter(args[0])


def _defaultdict(*args: Any) -> collections.defaultdict[Any, Any]:
    """Its items follow by SETITEMS. Its factory is a class that is allowed, too, or a builtin type, or None."""
    _require(len(args) <= 1, "collections:defaultdict")
    factory = args[0] if args else None
    if factory is not None:
        factory = real_class(factory)
        _require(factory is not None, "collections:defaultdict")
    return collections.defaultdict(factory)


def _factory(kind: type) -> type:
    """A builtin type as the factory of a defaultdict: it cannot be called by the pickle itself."""
    entry = f"builtins:{kind.__name__}"

    def refuse(*args: Any) -> NoReturn:
        raise PayloadRefused(f"pickle calls {entry}, which it may only name as the factory of a defaultdict")

    return stand_in(entry, refuse, factory=kind)


def _status(*args: Any) -> http.HTTPStatus:
    _require(len(args) == 1 and type(args[0]) is int, "http:HTTPStatus")
    return http.HTTPStatus(args[0])


def _struct_time(*args: Any) -> time.struct_time:
    _require(len(args) == 2 and type(args[0]) is tuple and type(args[1]) is dict, "time:struct_time")
    return time.struct_time(*args)


def _zone_info(*args: Any) -> zoneinfo.ZoneInfo:
    fits = len(args) == 2 and type(args[0]) is str and len(args[0]) < 100
    _require(fits and _ZONE_KEY.fullmatch(args[0]) is not None, "zoneinfo:ZoneInfo")
    return zoneinfo.ZoneInfo(args[0])


_ZONE_CLASS = stand_in("zoneinfo:ZoneInfo", _zone_info)
_ZONE_UNPICKLE = stand_in("zoneinfo:ZoneInfo._unpickle", _zone_info)


def _zone_method(*args: Any) -> type:
    """The one use of ``getattr`` in pickles of plain values: a ZoneInfo's constructor."""
    if args != (_ZONE_CLASS, "_unpickle"):
        raise PayloadRefused(
            "pickle asks for an attribute (builtins:getattr), as for an object whose __reduce__ returns "
            "a method; let it return its class or a function, and list that"
        )
    return _ZONE_UNPICKLE


def _standard_values() -> Iterator[tuple[str, object]]:
    # Written in C, immutable, with constructors that check their arguments: taken as they are.
    yield "datetime:datetime", datetime.datetime
    yield "datetime:date", datetime.date
    yield "datetime:time", datetime.time
    yield "datetime:timedelta", datetime.timedelta
    yield "datetime:timezone", datetime.timezone
    # Made without a call, then __setstate__ picks 'int' and 'is_safe' out of the state.
    yield "uuid:UUID", stand_in("uuid:UUID", _uuid, new=uuid.UUID)
    # From text only: Decimal(int) is quadratic.
    yield "decimal:Decimal", _from_one("decimal:Decimal", decimal.Decimal, str)
    yield "fractions:Fraction", stand_in("fractions:Fraction", _fraction)
    yield "builtins:complex", stand_in("builtins:complex", _complex)
    # Containers of what the pickle holds anyway.
    yield "collections:OrderedDict", stand_in("collections:OrderedDict", _ordered_dict)
    yield "collections:deque", stand_in("collections:deque", _deque)
    yield "collections:Counter", stand_in("collections:Counter", _counter, copies=True)
    yield "collections:defaultdict", stand_in("collections:defaultdict", _defaultdict)
    yield "http:HTTPStatus", stand_in("http:HTTPStatus", _status)
    yield "time:struct_time", stand_in("time:struct_time", _struct_time)
    # Addresses parse their text or number and touch nothing.
    for address in (ipaddress.IPv4Address, ipaddress.IPv6Address):
        entry = f"ipaddress:{address.__qualname__}"
        yield entry, _from_one(entry, address, int, str)
    for interface in (ipaddress.IPv4Interface, ipaddress.IPv6Interface):
        entry = f"ipaddress:{interface.__qualname__}"
        yield entry, _from_one(entry, interface, str)
    for network in (ipaddress.IPv4Network, ipaddress.IPv6Network):
        entry = f"ipaddress:{network.__qualname__}"
        yield entry, _from_one(entry, network, str)
    # A path is its text: making one touches no disk. Python 3.13 pickles them from pathlib._local.
    for path in (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath):
        for module in ("pathlib", "pathlib._local"):
            entry = f"{module}:{path.__qualname__}"
            yield entry, _path(entry, path)
    # Reads a time zone file of this host whose name is checked twice.
    yield "zoneinfo:ZoneInfo", _ZONE_CLASS
    # Exceptions as values; immutable C classes that keep their arguments and do nothing else.
    for exception in plain_builtin_exceptions():
        if issubclass(exception, (ImportError, SyntaxError)):
            continue
        entry = f"builtins:{exception.__qualname__}"
        if exception is UnicodeDecodeError:
            yield entry, stand_in(entry, _unicode_decode_error, factory=exception)
        else:
            yield entry, exception


_FACTORY_TYPES = (list, dict, set, frozenset, tuple, str, bytes, bytearray, int, float, bool)
FACTORIES: Final = {("builtins", kind.__name__): _factory(kind) for kind in _FACTORY_TYPES}
"""Factories that a pickle with a defaultdict may name, beside the listed classes."""

DEFAULT_ALLOW_LIST: Final = AllowList.guarded(
    _standard_values(),
    # ZoneInfo pickles as getattr(ZoneInfo, "_unpickle")(key, ...): this gives that and only that.
    substitutes=[("builtins:getattr", stand_in("builtins:getattr", _zone_method))],
    extended=True,
)
"""The allow-list of a ``Codec`` that is given no other, with the entries of ``rpcmq.allow``.

Extend it: ``DEFAULT_ALLOW_LIST.allowing(...)``.
"""
