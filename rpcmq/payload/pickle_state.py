"""The state that a pickle gives an object after it was made (BUILD), set by rules of our own.

The C unpickler takes any state for any object: into the dict of an enum member that the whole process shares, past the
constructor of a path or an address, into a UUID whose number is then a tuple that takes years to hash. So
``pickle_scan`` turns each BUILD into a call of :func:`give_state`. Objects of classes that were allowed get their state
as pickle gives it; values of the standard library get what their own pickles bring, and nothing else.
"""

from __future__ import annotations

import ipaddress
import pathlib
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from enum import Enum
from fractions import Fraction
from functools import partial
from time import struct_time
from typing import Any, Final
from uuid import UUID

from rpcmq.errors import PayloadRefused

__all__ = ["give_state", "state_size"]

#: Their pickles bring no state: it would get past what their constructors check.
_WITHOUT_STATE: Final = frozenset(
    {
        pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath,
        ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network,
        ipaddress.IPv4Interface, ipaddress.IPv6Interface, Fraction, deque, defaultdict, struct_time,
    }
)  # fmt: skip
#: Theirs bring the attributes that somebody has set on them.
_WITH_ATTRIBUTES: Final = frozenset({OrderedDict, Counter})
_ENTRY_BYTES: Final = 8
#: Attributes of exceptions that are no state, though some of Python's own pickles bring ``args`` again.
_NOT_OF_EXCEPTIONS: Final = frozenset(dir(BaseException)) - {"__notes__"}


def state_size(state: Any) -> int:
    """The cost of setting ``state``, about in bytes of the pickle that it is in."""
    if type(state) is dict:
        return _ENTRY_BYTES * len(state)
    if type(state) is tuple:
        return sum(len(part) for part in state if isinstance(part, (dict, list, tuple, bytes, bytearray)))
    return len(state) if isinstance(state, list) else 1


def give_state(target: Any, state: Any) -> Any:
    """``target`` with ``state``.

    Raises:
        PayloadRefused: no pickle of such an object brings that.
    """
    # A partial is what a pickle holds for some classes (``safe_pickle``): another function could be put into it.
    kind = type(target)
    if kind is UUID:
        _uuid(target, state)
    elif kind in _WITHOUT_STATE or isinstance(target, (Enum, type, partial)) or kind.__module__ == "numpy":
        raise _refusal(kind)
    elif isinstance(target, BaseException) and kind.__setstate__ is BaseException.__setstate__:
        _exception(target, state)
    elif kind in _WITH_ATTRIBUTES:
        if type(state) is not dict:
            raise _refusal(kind)
        _attributes(target, state)
    else:
        _as_pickle_does(target, state)
    return target


def _refusal(kind: type) -> PayloadRefused:
    name = f"{kind.__module__}:{kind.__qualname__}"
    return PayloadRefused(f"pickle sets a state on a {name[:200]} that no such object pickles to")


def _uuid(target: UUID, state: Any) -> None:
    if type(state) is not dict or not state.keys() <= {"int", "is_safe"}:
        raise _refusal(UUID)
    number, safe = state.get("int"), state.get("is_safe", 0)
    if type(number) is not int or not 0 <= number < 1 << 128 or type(safe) is not int:
        raise _refusal(UUID)
    target.__setstate__(state)  # type: ignore[attr-defined]


def _exception(target: BaseException, state: Any) -> None:
    if type(state) is not dict:
        raise _refusal(type(target))
    for name, value in state.items():
        if type(name) is not str or (name.startswith("__") and name != "__notes__"):
            raise _refusal(type(target))
        if name not in _NOT_OF_EXCEPTIONS:
            setattr(target, name, value)


def _attributes(target: Any, state: dict[Any, Any]) -> None:
    held, intern = target.__dict__, sys.intern
    for name, value in state.items():
        # As pickle does, so that all objects of a class share the names.
        held[intern(name) if type(name) is str else name] = value


def _as_pickle_does(target: Any, state: Any) -> None:
    own = getattr(target, "__setstate__", None)
    if own is not None:
        own(state)
        return
    slots = None
    if type(state) is tuple and len(state) == 2:
        state, slots = state
    if state is not None:
        if not isinstance(state, dict):
            raise _refusal(type(target))
        _attributes(target, state)
    if slots is None:
        return
    if not isinstance(slots, dict):
        raise _refusal(type(target))
    for name, value in slots.items():
        if type(name) is not str or (name.startswith("__") and name.endswith("__")):
            raise _refusal(type(target))  # its class, or its dict
        setattr(target, name, value)
