"""Text of values and exceptions at a bounded cost, whatever their sender made them.

``repr()`` writes out what is shared: a list that holds another one twice, that one the next twice, and so on, is some
hundred bytes of a pickle and a text without end. A peer can send such a value, and a handler put it into an exception.
So nothing here calls ``repr()`` or ``str()`` before :func:`is_printable` has looked how much that would write.

That says nothing of a ``__repr__`` that works for long by itself: the code of a class is its owner's.
"""

from __future__ import annotations

import builtins
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from rpcmq.payload.printed_size import MAX_DEPTH, MAX_INT_BITS, TooMuch, args_of, is_printable

__all__ = [
    "cut",
    "exception_text",
    "exception_traceback",
    "has_small_offsets",
    "printable_exception",
    "raised_from",
    "short_repr",
]

_MAX_CHAIN = 32
_MAX_NOTES = 32
_MAX_FRAMES = 50
_MAX_OFFSET = 100_000

#: ``__str__`` of these shows arguments and nothing else of what an exception holds.
_STR_OF_ARGS = frozenset(
    cls.__str__ for cls in vars(builtins).values() if isinstance(cls, type) and issubclass(cls, BaseException)
)


def short_repr(value: object, limit: int = 80) -> str:
    """``repr(value)`` cut to ``limit`` characters, without making more of it; never raises an ``Exception``."""
    pieces: list[str] = []
    try:
        _write(value, pieces, [limit + 1], 0)
    except TooMuch:
        pass  # it is cut below
    except Exception as error:
        return f"<{type(value).__qualname__[:100]}: repr() raised {type(error).__qualname__[:100]}>"
    text = "".join(pieces)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _write(value: Any, pieces: list[str], left: list[int], depth: int) -> None:
    """Adds the text of ``value``; raises ``TooMuch`` when nothing is left of the room for it."""
    kind = type(value)
    if kind in _BRACKETS:
        begin, end = _BRACKETS[kind] if value or kind in (list, dict, tuple) else (f"{kind.__name__}(", ")")
        _add(begin, pieces, left)
        if depth > MAX_DEPTH:
            _add("...", pieces, left)
        elif kind is dict:
            _write_dict(value, pieces, left, depth)
        else:
            _write_items(value, pieces, left, depth)
            if kind is tuple and len(value) == 1:
                _add(",", pieces, left)
        _add(end, pieces, left)
    elif kind in (str, bytes):
        _add(repr(value[: left[0]]), pieces, left)
    elif kind is int and value.bit_length() > MAX_INT_BITS:
        _add(f"<int of {value.bit_length()} bits>", pieces, left)
    elif kind in (int, float, bool, type(None)) or is_printable(value):
        _add(f"{value!r}", pieces, left)
    else:
        _add(f"<{kind.__module__}.{kind.__qualname__} object>", pieces, left)


_BRACKETS: dict[Any, tuple[str, str]] = {
    list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}"), set: ("{", "}"), frozenset: ("frozenset({", "})"),
}  # fmt: skip


def _write_items(items: Iterable[Any], pieces: list[str], left: list[int], depth: int) -> None:
    for number, item in enumerate(items):
        if number:
            _add(", ", pieces, left)
        _write(item, pieces, left, depth + 1)


def _write_dict(value: dict[Any, Any], pieces: list[str], left: list[int], depth: int) -> None:
    for number, (key, item) in enumerate(value.items()):
        if number:
            _add(", ", pieces, left)
        _write(key, pieces, left, depth + 1)
        _add(": ", pieces, left)
        _write(item, pieces, left, depth + 1)


def _add(text: str, pieces: list[str], left: list[int]) -> None:
    pieces.append(text)
    left[0] -= len(text)
    if left[0] <= 0:
        raise TooMuch


# --- exceptions ----------------------------------------------------------------------------------


def cut(text: str, limit: int) -> str:
    """``text``, or its first quarter and its end where it is longer than ``limit``."""
    if len(text) <= limit:
        return text
    gap = "\n... (cut) ...\n"
    head = limit // 4
    return text[:head] + gap + text[len(text) - (limit - head - len(gap)) :]


def exception_text(exc: BaseException, limit: int) -> str:
    """Return ``str(exc)``, its middle cut out beyond ``limit``; never raises an ``Exception``."""
    args = args_of(exc)
    if not is_printable(_shown_by_str(exc)):
        only = args[0] if len(args) == 1 else args
        return cut(str.__str__(only), limit) if isinstance(only, str) else short_repr(only, limit)
    try:
        return cut(f"{exc!s}", limit)
    except Exception as error:
        return f"(str() of the exception raised {type(error).__qualname__[:100]})"


def exception_traceback(exc: BaseException, limit: int) -> str:
    """The formatted traceback, cut as by :func:`exception_text`; never raises an ``Exception``."""
    try:
        if _is_printable_with_causes(exc):
            return cut("".join(traceback.format_exception(exc)), limit)
        lines = []
        for each in reversed(list(islice(_chain(exc), 8))):
            lines += ["Traceback (most recent call last):\n", *traceback.format_tb(each.__traceback__, -_MAX_FRAMES)]
            lines.append(f"{type(each).__module__}.{type(each).__qualname__}: {exception_text(each, limit // 8)}\n\n")
        return cut("".join(lines), limit)
    except Exception as error:
        return f"(the traceback cannot be formatted: {type(error).__qualname__[:100]})\n"


class Unprintable(Exception):
    """Stands in the log for an exception that cannot be printed as it is."""


def printable_exception(exc: BaseException) -> BaseException:
    """Return ``exc`` for use as ``exc_info``, or a stand-in where printing it would not end."""
    if _is_printable_with_causes(exc):
        return exc
    stand_in = Unprintable(f"{type(exc).__module__}.{type(exc).__qualname__}: {exception_text(exc, 1000)}")
    return stand_in.with_traceback(exc.__traceback__)


def _is_printable_with_causes(exc: BaseException) -> bool:
    chain = list(islice(_chain(exc), _MAX_CHAIN + 1))
    return len(chain) <= _MAX_CHAIN and all(_is_shown_in_bounds(each) for each in chain)


def _is_shown_in_bounds(exc: BaseException) -> bool:
    notes = getattr(exc, "__notes__", ())
    if type(notes) not in (list, tuple) or len(notes) > _MAX_NOTES:
        return False
    if isinstance(exc, SyntaxError) and not has_small_offsets(exc.args):
        return False
    return is_printable(_shown_by_str(exc)) and (not notes or is_printable(notes))


def _shown_by_str(exc: BaseException) -> object:
    if type(exc).__str__ not in _STR_OF_ARGS:
        return exc
    if isinstance(exc, OSError):
        return exc.args, exc.errno, exc.strerror, exc.filename, exc.filename2
    return args_of(exc)


def has_small_offsets(args: tuple[Any, ...]) -> bool:
    """Return whether a SyntaxError of ``args`` marks a place of a sane width: its traceback draws as many marks."""
    place = args[1] if len(args) > 1 else ()
    if not isinstance(place, (tuple, list)):
        return False
    return all(isinstance(n, str | None) or (type(n) is int and abs(n) < _MAX_OFFSET) for n in place)


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """``exc`` and all that a traceback of it shows, nearest first."""
    seen = set()
    found: deque[BaseException | None] = deque((exc,))
    while found:
        each = found.popleft()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        found.append(raised_from(each))
        if isinstance(each, BaseExceptionGroup):
            found.extend(each.exceptions)


def raised_from(exc: BaseException) -> BaseException | None:
    """Return the exception that a traceback shows before ``exc``: its cause or, unless suppressed, its context."""
    if exc.__cause__ is not None or exc.__suppress_context__:
        return exc.__cause__
    return exc.__context__
