"""Unpickling of numpy's arrays and scalars, without passing the sender's memory layout to numpy.

``dtype.__setstate__`` and ``ndarray.__setstate__`` believe what they are given: flags and sizes of a sender's choice
make numpy take bytes for pointers. So none of numpy's own functions is called with the state of a pickle. The names
that arrays pickle to stand for functions of this module, which read a dtype into a :class:`_Dtype`, check it, and make
arrays of bytes by ``frombuffer``. Objects (dtype ``O``) are refused: they would be a pickle within the pickle.

A dtype on its own is refused: no such array has used up its :class:`_Dtype`. Send ``dtype.str``.
"""

from __future__ import annotations

import functools
import math
import re
from contextvars import ContextVar
from typing import Any, Final
from weakref import ref

from rpcmq.errors import PayloadRefused
from rpcmq.payload.stand_in import stand_in

__all__ = ["dtypes_read", "numpy_globals", "take_dtypes"]

#: numpy 1 and 2 name their modules differently.
_CORES: Final = ("numpy.core", "numpy._core")
_KIND = re.compile(r"[?bBhHiIlLqQefdgFDG]|[biufcSUVMm][0-9]{1,9}")
_UNIT = re.compile(r"Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as|generic")
_MAX_DIMENSIONS = 32
#: In all, those of fields with them.
_MAX_FIELDS = 2000
_MAX_DEPTH = 8


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise PayloadRefused(
            f"allow-list entry 'numpy' cannot be used: numpy cannot be imported here: {error}"
        ) from None
    return numpy


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise PayloadRefused(f"pickle has {what} that no array or scalar of numpy pickles to")


class _Dtype:
    """A dtype as a pickle describes it, unchecked; ``real`` makes one of it."""

    __slots__ = ("__weakref__", "_fields", "_height", "_kind", "_made", "_state")

    def __init__(self, *args: Any) -> None:
        _require(len(args) == 3 and type(args[0]) is str and args[1:] == (False, True), "a dtype")
        self._kind: str = args[0]
        self._state: tuple[Any, ...] = ()
        self._made: Any = None
        #: Fields of what is made, those of parts with them; a part that is there twice counts twice.
        self._fields = 1
        self._height = 0
        made = _made.get()
        if made is None:
            _made.set(made := [])
        made.append(ref(self))

    def __setstate__(self, state: Any) -> None:
        _require(type(state) is tuple and len(state) in (8, 9) and not self._state, "a state of a dtype")
        self._state = state

    def real(self, depth: int = 0) -> Any:
        """The dtype. Made once, however often it is part of others.

        Raises:
            PayloadRefused: it holds objects, or is malformed.
        """
        if self._made is None:
            self._made = self._new(depth)
        return self._made

    def _new(self, depth: int) -> Any:
        numpy = _numpy()
        if self._kind.startswith("O"):
            raise PayloadRefused(
                "pickle has a numpy array of objects (dtype O); send a list, or an array of another dtype"
            )
        _require(_KIND.fullmatch(self._kind) is not None and depth < _MAX_DEPTH, f"a dtype {self._kind[:20]!r}")
        if not self._state:
            return numpy.dtype(self._kind)
        order, subarray, names, fields = self._state[1:5]
        _require(type(order) is str and order in ("<", ">", "|", "="), "a byte order")
        if names is not None:
            return self._structured(names, fields, depth)
        if subarray is not None:
            _require(type(subarray) is tuple and len(subarray) == 2 and type(subarray[0]) is _Dtype, "a subarray")
            return numpy.dtype((self._part(subarray[0], depth), _shape(subarray[1])))
        if self._kind[0] in "Mm":
            return numpy.dtype(f"{order}{self._kind}{self._unit()}")
        return numpy.dtype(self._kind).newbyteorder(order)

    def _part(self, part: _Dtype, depth: int) -> Any:
        real = part.real(depth + 1)
        self._fields += part._fields
        self._height = max(self._height, part._height + 1)
        _require(self._fields <= _MAX_FIELDS and self._height < _MAX_DEPTH, "so many fields")
        return real

    def _unit(self) -> str:
        metadata: Any = self._state[8] if len(self._state) == 9 else None
        _require(type(metadata) is tuple and len(metadata) == 2 and type(metadata[1]) is tuple, "a unit of time")
        unit = metadata[1]
        _require(len(unit) == 4 and type(unit[0]) is bytes and all(type(n) is int for n in unit[1:]), "a unit of time")
        name = unit[0].decode("ascii", "replace")
        _require(_UNIT.fullmatch(name) is not None and 0 < unit[1] < 1 << 31 and unit[2:] == (1, 1), "a unit of time")
        return "" if name == "generic" else f"[{unit[1]}{name}]"

    def _structured(self, names: Any, fields: Any, depth: int) -> Any:
        _require(type(names) is tuple and type(fields) is dict and 0 < len(names) <= _MAX_FIELDS, "fields")
        _require(self._kind[0] == "V" and {*names} == fields.keys(), "fields")
        typed = [fields[name] for name in names]
        fit = all(type(field) is tuple and len(field) >= 2 and type(field[0]) is _Dtype for field in typed)
        _require(fit and all(type(field[1]) is int for field in typed), "fields")
        made = {
            "names": list(names),
            "formats": [self._part(field[0], depth) for field in typed],
            "offsets": [field[1] for field in typed],
            "itemsize": int(self._kind[1:]),
        }
        return _numpy().dtype(made, align=bool(self._state[7] & 128) if type(self._state[7]) is int else False)


_made: ContextVar[list[ref[_Dtype]] | None] = ContextVar("dtypes of the pickle that is being read", default=None)


#: Called for each pickle, so without a frame of its own. None: no dtype was read.
dtypes_read = _made.get


def take_dtypes() -> list[ref[_Dtype]]:
    """The dtypes of the pickle that was read last, here.

    One that lives on when the unpickler has gone is part of the value.
    """
    made = _made.get()
    _made.set(None)
    return made or []


def _shape(shape: Any) -> tuple[int, ...]:
    _require(type(shape) is tuple and len(shape) <= _MAX_DIMENSIONS, "a shape")
    _require(all(type(n) is int and 0 <= n < 1 << 62 for n in shape), "a shape")
    return shape  # type: ignore[no-any-return]


def _real(dtype: Any) -> Any:
    _require(type(dtype) is _Dtype, "a dtype")
    real = dtype.real()
    _require(not real.hasobject and real.itemsize > 0, "a dtype")
    return real


def _filled(data: Any, dtype: Any, shape: Any, order: Any) -> Any:
    """The array of ``shape`` in which ``data`` are the items."""
    real = _real(dtype)
    _require(type(data) in (bytes, bytearray) and order in ("C", "F"), "an array")
    _require(len(data) == math.prod(_shape(shape)) * real.itemsize, "a shape")
    numpy = _numpy()
    if not data:
        return numpy.zeros(shape, real, order)
    return numpy.frombuffer(data, real).reshape(shape, order=order)


def _frombuffer(*args: Any) -> Any:
    _require(len(args) in (4, 5) and (len(args) == 4 or args[4] is None), "an array")
    return _filled(*args[:4])


def _scalar(*args: Any) -> Any:
    _require(len(args) == 2, "a scalar")
    return _filled(bytes(args[1]) if type(args[1]) is bytearray else args[1], args[0], (), "C")[()]


@functools.cache
def _array_class() -> type:
    numpy = _numpy()

    class Array(numpy.ndarray):  # type: ignore[misc,name-defined]
        """An array that was not contiguous, so that its data come as its state; as any other but for its class."""

        def __setstate__(self, state: Any) -> None:
            _require(type(state) is tuple and len(state) == 5 and state[0] == 1, "an array")
            _require(type(state[3]) is bool and numpy.ndarray.__len__(self) == 0, "an array")
            filled = _filled(state[4], state[2], state[1], "F" if state[3] else "C")
            numpy.ndarray.__setstate__(self, (1, filled.shape, filled.dtype, state[3], state[4]))

        def __reduce_ex__(self, protocol: Any) -> Any:
            return self.view(numpy.ndarray).__reduce_ex__(protocol)

        def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
            return array[()] if return_scalar else array.view(numpy.ndarray)

    return Array


def _reconstruct(*args: Any) -> Any:
    _require(len(args) == 3 and args[0] is numpy_globals()["numpy", "ndarray"], "an array")
    _require(args[1:] == ((0,), b"b"), "an array")
    return _numpy().empty((0,), "b").view(_array_class())


@functools.cache
def numpy_globals() -> dict[tuple[str, str], object]:
    """Return the globals named by pickles of numpy's arrays and scalars, with their replacements.

    Raises:
        PayloadRefused: numpy is not installed.
    """
    numpy = _numpy()

    def refuse(*args: Any) -> Any:
        raise PayloadRefused("pickle calls numpy:ndarray, which it may only name")

    found: dict[tuple[str, str], object] = {
        ("numpy", "dtype"): stand_in("numpy:dtype", _Dtype),
        ("numpy", "ndarray"): stand_in("numpy:ndarray", refuse, factory=numpy.ndarray),
    }
    for core in _CORES:
        found[f"{core}.numeric", "_frombuffer"] = stand_in(f"{core}.numeric:_frombuffer", _frombuffer)
        found[f"{core}.multiarray", "_reconstruct"] = stand_in(f"{core}.multiarray:_reconstruct", _reconstruct)
        found[f"{core}.multiarray", "scalar"] = stand_in(f"{core}.multiarray:scalar", _scalar, copies=True)
    return found
