"""Paths within a message, and the search for the object that could not be pickled.

A path reads as the Python expression that reaches the object: ``args['disk'][2].lock``. A first
key that is an identifier stands bare. All of this runs only after an encoder has failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from rpcmq.payload.bounded_text import short_repr

__all__ = ["ROOT", "as_key", "at_index", "at_key", "describe", "find_unpicklable"]

ROOT = ""
"""The path of the message itself."""

_MAX_STEPS = 100
_SEQUENCES = (list, tuple, deque)
_SETS = (set, frozenset)


def at_key(path: str, key: object) -> str:
    """The path of the value under ``key`` of the mapping at ``path``."""
    if path == ROOT and type(key) is str and key.isidentifier():
        return key
    return f"{path}[{short_repr(key)}]"


def at_index(path: str, index: int) -> str:
    """The path of element ``index`` of the sequence at ``path``."""
    return f"{path}[{index}]"


def as_key(path: str, key: object) -> str:
    """Return the path of ``key`` itself, in the mapping at ``path``."""
    return f"{describe(path)}, key {short_repr(key)}"


def describe(path: str) -> str:
    """``path`` as the subject of an error message."""
    return path or "the message"


def find_unpicklable(value: object, error: Exception, dumps: Callable[[Any], bytes]) -> tuple[str, object, Exception]:
    """The innermost part of ``value`` that ``dumps`` refuses.

    Args:
        value: what ``dumps`` refused.
        error: what ``dumps`` raised for it.
        dumps: the encoder.

    Returns:
        The path, the object there, and what ``dumps`` raised for that object.
    """
    path = ROOT
    seen: set[int] = set()
    for _ in range(_MAX_STEPS):
        seen.add(id(value))
        for child_path, child in _children(path, value):
            if id(child) in seen:
                continue
            refusal = _refusal(child, dumps)
            if refusal is not None:
                path, value, error = child_path, child, refusal
                break
        else:
            break
    return path, value, error


def _refusal(value: object, dumps: Callable[[Any], bytes]) -> Exception | None:
    try:
        dumps(value)
    except Exception as error:
        return error
    return None


def _children(path: str, value: object) -> Iterator[tuple[str, object]]:
    """The parts of ``value``, each with its path, in the order in which pickle visits them."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield as_key(path, key), key
            yield at_key(path, key), item
    elif isinstance(value, _SEQUENCES):
        for index, item in enumerate(value):
            yield at_index(path, index), item
    elif isinstance(value, _SETS):
        for item in value:
            yield f"{describe(path)}, member {short_repr(item)}", item
    if not isinstance(value, type):
        yield from _reduced(path, value)


def _reduced(path: str, value: object) -> Iterator[tuple[str, object]]:
    """Iterate over the parts that pickle would write for an object: class, arguments and state."""
    try:
        reduced: Any = value.__reduce_ex__(5)
    except Exception:
        # The object refuses to be taken apart; its attributes may still say why.
        yield from _attributes(path, getattr(value, "__dict__", None))
        return
    yield f"{path}.__class__" if path else "class of the message", type(value)
    if not isinstance(reduced, tuple) or len(reduced) < 2:
        return
    state = reduced[2] if len(reduced) > 2 else None
    for part in state if isinstance(state, tuple) else (state,):
        yield from _attributes(path, part)
    for index, argument in enumerate(reduced[1]):
        yield f"{describe(path)}, constructor argument {index}", argument


def _attributes(path: str, state: object) -> Iterator[tuple[str, object]]:
    if isinstance(state, dict):
        for name, item in state.items():
            yield f"{path}.{name}", item
