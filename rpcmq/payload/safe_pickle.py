"""Pickle, protocol 5: written by C's pickler, read through an allow-list.

Reading refuses every global that is not listed (``allow_list``) and everything that pickle can do
besides making values (``pickle_scan``). A pickle that was checked and has no global makes nothing but
built-in values, and needs no list. An allow-list keeps a sender from running code; it does not make an
unknown sender safe: whoever may send large pickles can waste memory and time.
"""

from __future__ import annotations

import pickle
import types
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any, Final, NoReturn

from rpcmq.errors import PayloadError, PayloadRefused
from rpcmq.payload.allow_list import AllowList
from rpcmq.payload.bounded_text import exception_text
from rpcmq.payload.default_allow_list import DEFAULT_ALLOW_LIST, FACTORIES
from rpcmq.payload.numpy_pickle import dtypes_read, take_dtypes
from rpcmq.payload.paths import ROOT, describe, find_unpicklable
from rpcmq.payload.pickle_scan import check
from rpcmq.payload.pickle_state import give_state, state_size
from rpcmq.payload.stand_in import copies

__all__ = ["PROTOCOL", "RestrictedLoader", "dumps", "explain_refusal", "refused_by_pickle"]

PROTOCOL: Final = 5
#: Names of folders, which all paths share, are copied more often than they are sent; hence more than once.
_COPIED_TIMES: Final = 32
_COPIED_MIN: Final = 1 << 16
_ENTRY_BYTES: Final = 32

_dumps = pickle.dumps
_loads = pickle.loads
#: The only opcode for a global that ``check`` lets through.
_GLOBAL: Final = pickle.STACK_GLOBAL[0]


def dumps(value: object) -> bytes:
    """``value`` as a pickle.

    Raises:
        PayloadError: names the path and the object that cannot be pickled.
    """
    try:
        return _dumps(value, PROTOCOL)
    except Exception as error:
        explain_refusal(value, error)


def refused_by_pickle(error: Exception) -> bool:
    """Return whether ``error`` says that pickle cannot handle this kind of object, which dill may."""
    return isinstance(error, (pickle.PicklingError, TypeError, AttributeError))


def explain_refusal(
    value: object,
    error: Exception,
    encode: Callable[[Any], bytes] = lambda value: _dumps(value, PROTOCOL),
    name: str = "pickle",
) -> NoReturn:
    """Raises ``PayloadError`` that says which part of ``value`` was refused and why.

    If ``value`` can be encoded after all, the exception came from elsewhere, such as a signal's handler, and is raised.

    Args:
        value: what ``encode`` refused.
        error: what it raised.
        encode: the encoder.
        name: how to call the encoder in the error.
    """
    path, culprit = ROOT, value
    if not isinstance(error, (RecursionError, MemoryError)):
        if not refused_by_pickle(error) and _is_encoded(encode, value):
            raise error
        path, culprit, error = find_unpicklable(value, error, encode)
    if isinstance(error, RecursionError):
        reason = f"nested too deeply for {name}"
    else:
        reason = str(error)[:300] or type(error).__name__
        if not refused_by_pickle(error):
            reason = f"{type(error).__name__} from its own pickling: {reason}"
    if name == "pickle" and isinstance(culprit, (types.FunctionType, type)):
        reason += " (dill carries functions and local classes, where both ends switch it on)"
    raise PayloadError(f"{describe(path)}: {reason}") from error


def _is_encoded(encode: Callable[[Any], bytes], value: object) -> bool:
    try:
        encode(value)
    except Exception:
        return False
    return True


class _Unpickler(pickle.Unpickler):
    """Loads one pickle whose bytes were checked. A subclass for each list sets ``find``."""

    __slots__ = ("copier", "room")

    find: Callable[[str, str], object]
    #: The remaining budget for setting states and copying arguments: a pickle can hold one once and use it often.
    room: int
    copier: _Copier

    def find_class(self, module: str, qualname: str) -> Any:
        """The object that the pickle gets for a global."""
        found: Any = self.find(module, qualname)
        if not copies(found):
            return found
        try:
            copier = self.copier
        except AttributeError:
            copier = self.copier = _Copier(self.room)
        return partial(copier.call, found)

    def persistent_load(self, built: Any) -> Any:
        """The object of a BUILD, with its state (``pickle_scan``)."""
        if type(built) is not tuple:
            raise PayloadRefused("pickle has a persistent id")
        target, state = built
        self.room -= state_size(state)
        if self.room < 0:
            raise PayloadRefused("pickle has the same large state set on many objects")
        return give_state(target, state)


class _Copier:
    """Calls what copies its arguments, as long as there is room for them.

    No method of the unpickler, which holds what it gave the pickle: only the garbage collector would free them.
    """

    __slots__ = ("_room",)

    def __init__(self, room: int) -> None:
        self._room = room

    def call(self, construct: Callable[..., object], *args: Any) -> object:
        for arg in args:
            if isinstance(arg, (str, bytes, bytearray)):
                self._room -= len(arg)
            elif isinstance(arg, dict):
                self._room -= _ENTRY_BYTES * len(arg)
        if self._room < 0:
            raise PayloadRefused("pickle has the same large part copied into many objects")
        return construct(*args)


def _unpickler(find: Callable[[str, str], object]) -> type[_Unpickler]:
    return type("RestrictedUnpickler", (_Unpickler,), {"__slots__": (), "find": staticmethod(find)})


class RestrictedLoader:
    """Loads pickles that name only what ``allow`` lists."""

    __slots__ = ("_unpickler", "_with_factories", "allow")

    def __init__(self, allow: AllowList = DEFAULT_ALLOW_LIST) -> None:
        self.allow = allow
        # A class for each list, so that nothing has to be set up for each payload.
        self._unpickler = _unpickler(allow.find)
        self._with_factories = _unpickler(
            lambda module, qualname: FACTORIES.get((module, qualname)) or allow.find(module, qualname)
        )

    def loads(self, data: bytes) -> Any:
        """The value that ``data`` encodes.

        Raises:
            PayloadRefused: malformed, or names a global that is not allowed; says which and how
                to allow it.
        """
        checked = check(data)
        try:
            # Most messages: without that byte anywhere, and no state to set, nothing is looked up or called.
            if checked is data and _GLOBAL not in data:
                return _loads(data)
            data = checked
            try:
                value = self._loaded(self._unpickler, data)
            except PayloadRefused:
                # Only a defaultdict may name list or int, so that no stand-in for them becomes a value.
                if b"defaultdict" not in data:
                    raise
                value = self._loaded(self._with_factories, data)
        except Exception as error:
            take_dtypes()
            if isinstance(error, PayloadRefused):
                raise
            # A constructor's error or the unpickler's own: to the caller the payload is bad.
            text = exception_text(error, 300)
            raise PayloadRefused(f"pickle cannot be loaded: {type(error).__name__}: {text}") from error
        if dtypes_read() is not None and any(dtype() is not None for dtype in take_dtypes()):
            raise PayloadRefused("pickle holds a dtype of numpy on its own, which is not carried; send its .str")
        return value

    @staticmethod
    def _loaded(kind: type[_Unpickler], data: bytes) -> Any:
        unpickler = kind(BytesIO(data))
        unpickler.room = _COPIED_MIN + _COPIED_TIMES * len(data)
        return unpickler.load()
