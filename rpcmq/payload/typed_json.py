"""Typed JSON: the format that every process and every language can decode.

The encoding
------------
A payload is one JSON text (RFC 8259) in UTF-8, without a byte order mark. Writers emit ASCII only
(other characters as ``\\uXXXX``) and no white space; readers accept both.

These stand for themselves: ``null``, ``true``, ``false``, strings, arrays, numbers, and objects
that have no member named ``"$"``. A number without fraction and exponent is an integer; with one
of them it is a double. Writers write integers as numbers only between -(2^53 - 1) and 2^53 - 1;
readers accept longer ones.

Everything else is a *tagged value*, an object of exactly two members, in any order::

    {"$": TAG, "v": CONTENT}

======================  =========================================================================
TAG                     CONTENT
======================  =========================================================================
``"int"``               hexadecimal digits of an integer, lower case, ``-`` before a negative one
``"float"``             ``"nan"``, ``"inf"`` or ``"-inf"``
``"bytes"``             base64 with padding (RFC 4648 section 4)
``"decimal"``           decimal text: ``"1.50"``, ``"-3E+10"``, ``"NaN"``, ``"Infinity"``
``"datetime"``          ``YYYY-MM-DDTHH:MM:SS[.ffffff][+HH:MM[:SS[.ffffff]]]`` (ISO 8601); with
                        no offset it is naive; readers accept ``Z`` for ``+00:00`` and one to
                        six digits of a second's fraction
``"date"``              ``YYYY-MM-DD``
``"time"``              ``HH:MM:SS[.ffffff]``, with an offset as for ``"datetime"``
``"timedelta"``         ``[days, seconds, microseconds]``, integers; days may be negative,
                        0 <= seconds < 86400, 0 <= microseconds < 1000000
``"uuid"``              ``xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx``, lower case
``"tuple"``             array of the elements
``"set"``               array of the members in any order, none twice
``"frozenset"``         likewise
``"dict"``              array of ``[key, value]`` pairs, no key twice. For a mapping with a key
                        that is not a string, and for one with the key ``"$"``: so no value of a
                        user can be mistaken for a tag
``"exception"``         ``{"type": "module:Name", "args": [...]}``: an exception of a class that
                        both sides registered; if it has any, with ``"attributes"``, an object
======================  =========================================================================

Refused by readers: unknown tags, a tagged value of any other shape, an object with the same member
twice, ``NaN`` and ``Infinity`` as numbers, anything after the value, and nesting of arrays and
objects (those of tagged values included) deeper than the limit, 100 unless configured.

What does not come back as it was: a ``datetime`` whose zone is a named one comes back with that
moment's offset. Subclasses (enums, named tuples, ordered dicts, strings with behaviour) are
refused, because the other side could not tell them from what they derive from.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import is_dataclass
from enum import Enum
from itertools import accumulate
from pathlib import PurePath
from typing import Any, Final

from rpcmq.errors import PayloadError, PayloadRefused
from rpcmq.payload.bounded_text import short_repr
from rpcmq.payload.exception_registry import ExceptionRegistry, exception_state, plain_args, wire_name
from rpcmq.payload.paths import as_key, at_index, at_key, describe
from rpcmq.payload.tags import COLLECTIONS, READERS, SCALARS, Malformed, Unencodable

__all__ = ["DEFAULT_MAX_DEPTH", "TypedJson", "check_depth"]

DEFAULT_MAX_DEPTH: Final = 100
"""Levels of arrays and objects in the JSON text."""

_TAG = "$"
_CONTENT = "v"
_MAX_PLAIN_INT = (1 << 53) - 1
_AS_IS = frozenset({str, bool, type(None)})


_MANY: Final = 1_000_000
"""Number of parts above which a value is checked for sharing: members, and texts by length."""
_LONG = 1024


class _TooManyParts(Exception):
    pass


def _count(left: list[int], parts: int) -> None:
    left[0] -= parts
    if left[0] < 0:
        raise _TooManyParts


def _parts_held(value: object) -> int:
    """The parts of ``value``, each counted once."""
    seen: set[int] = set()
    rest: list[Any] = [value]
    total = 0
    while rest:
        each = rest.pop()
        kind = type(each)
        if kind in (str, bytes):
            parts = len(each) // _LONG
        elif kind is dict or kind is list or kind in COLLECTIONS or isinstance(each, BaseException):
            parts = 1
        else:
            continue
        if id(each) in seen:
            continue
        seen.add(id(each))
        total += parts
        if kind is dict:
            total += len(each)
            rest.extend(each.keys())
            rest.extend(each.values())
        elif isinstance(each, BaseException):
            rest.extend((each.args, vars(each)))
        elif parts and kind not in (str, bytes):
            total += len(each)
            rest.extend(each)
    return total


class TypedJson:
    """Encodes and decodes typed JSON.

    Args:
        exceptions: the exception classes that may be values in a message.
        max_depth: deepest nesting of arrays and objects in the text.
    """

    def __init__(self, exceptions: ExceptionRegistry | None = None, max_depth: int = DEFAULT_MAX_DEPTH) -> None:
        self._exceptions = exceptions or ExceptionRegistry()
        self._max_depth = max_depth
        self._write = json.JSONEncoder(check_circular=False, allow_nan=False, separators=(",", ":")).encode
        self._read = json.JSONDecoder(object_pairs_hook=self._object, parse_constant=_refuse_constant).decode

    def encode(self, value: object) -> bytes:
        """``value`` as typed JSON.

        Raises:
            PayloadError: names the path and the object that cannot be encoded.
        """
        try:
            try:
                lowered = self._lower(value, self._max_depth, [_MANY])
            except _TooManyParts:
                lowered = self._lower_large(value)
            return self._write(lowered).encode("ascii")
        except Unencodable as refusal:
            subject = describe(refusal.path())
            raise PayloadError(f"{subject}: {refusal.reason}") from None

    def decode(self, data: bytes) -> Any:
        """The value that ``data`` encodes.

        Raises:
            PayloadRefused: ``data`` is not typed JSON within the limits.
        """
        try:
            check_depth(data, self._max_depth)
            return self._read(data.decode("utf-8"))
        except ValueError as error:
            raise PayloadRefused(f"malformed typed JSON: {str(error)[:300]}") from None
        except Exception as error:
            raise PayloadRefused(f"typed JSON not decoded: {short_repr(error, 300)}") from error

    def _lower_large(self, value: object) -> Any:
        """Lower a large value; refuse one that would grow too much because JSON writes shared parts each time."""
        limit = 4 * _parts_held(value)
        if limit > _MANY:
            try:
                return self._lower(value, self._max_depth, [limit])
            except _TooManyParts:
                pass  # refused below
        raise Unencodable("parts of it are shared so often that JSON, which writes them out each time, is too large")

    # Encoding: values that JSON has are returned as they are, others replaced by tagged values.
    # ``room`` is how many levels of nesting are left, and ``left`` how many parts.

    def _lower(self, value: Any, room: int, left: list[int]) -> Any:
        kind = type(value)
        if kind in _AS_IS:
            if kind is str and len(value) > _LONG:
                _count(left, len(value) // _LONG)
            return value
        if kind is int:
            if -_MAX_PLAIN_INT <= value <= _MAX_PLAIN_INT:
                return value
            # Hexadecimal is linear in both directions and has no limit on digits.
            return self._tagged("int", format(value, "x"), room - 1)
        if kind is float:
            return value if math.isfinite(value) else self._tagged("float", str(value), room - 1)
        if room <= 0:
            raise Unencodable(f"nested more than {self._max_depth} levels deep, or in itself")
        if kind is dict:
            return self._lower_dict(value, room, left)
        if kind is list:
            return self._lower_items(value, room - 1, left)
        return self._lower_tagged(kind, value, room, left)

    def _lower_dict(self, value: dict[Any, Any], room: int, left: list[int]) -> dict[str, Any]:
        left[0] -= len(value)
        if left[0] < 0:
            raise _TooManyParts
        if _TAG in value:
            return self._lower_pairs(value, room, left)
        lowered = {}
        for key, item in value.items():
            if type(key) is not str:
                return self._lower_pairs(value, room, left)
            if type(item) in _AS_IS and (type(item) is not str or len(item) <= _LONG):
                lowered[key] = item
                continue
            try:
                lowered[key] = self._lower(item, room - 1, left)
            except Unencodable as refusal:
                raise refusal.inside(at_key, key) from None
        return lowered

    def _lower_pairs(self, value: dict[Any, Any], room: int, left: list[int]) -> dict[str, Any]:
        pairs = []
        for key, item in value.items():
            try:
                lowered_key = self._lower(key, room - 3, left)
            except Unencodable as refusal:
                raise refusal.inside(as_key, key) from None
            try:
                pairs.append([lowered_key, self._lower(item, room - 3, left)])
            except Unencodable as refusal:
                raise refusal.inside(at_key, key) from None
        return self._tagged("dict", pairs, room - 3)

    def _lower_items(self, items: Any, room: int, left: list[int]) -> list[Any]:
        lowered = []
        left[0] -= len(items)
        if left[0] < 0:
            raise _TooManyParts
        for index, item in enumerate(items):
            try:
                lowered.append(self._lower(item, room, left))
            except Unencodable as refusal:
                raise refusal.inside(at_index, index) from None
        return lowered

    def _lower_tagged(self, kind: type, value: Any, room: int, left: list[int]) -> dict[str, Any]:
        scalar = SCALARS.get(kind)
        if scalar is not None:
            tag, content = scalar
            if kind is bytes:
                _count(left, len(value) // _LONG)
            return self._tagged(tag, content(value), room - 1 - (tag == "timedelta"))
        tag = COLLECTIONS.get(kind, "")
        if tag:
            return self._tagged(tag, self._lower_items(value, room - 2, left), room - 2)
        if kind in self._exceptions:
            record: dict[str, Any] = {
                "type": wire_name(kind),
                "args": self._lower_items(plain_args(value), room - 3, left),
            }
            state = exception_state(value)
            if state:
                record["attributes"] = self._lower_dict(state, room - 3, left)
            return self._tagged("exception", record, room - 3)
        raise Unencodable(_why_not(kind, value))

    def _tagged(self, tag: str, content: Any, room: int) -> dict[str, Any]:
        if room < 0:
            raise Unencodable(f"nested more than {self._max_depth} levels deep")
        return {_TAG: tag, _CONTENT: content}

    # Decoding: the JSON parser hands over each object as its list of members, innermost first.

    def _object(self, members: list[tuple[str, Any]]) -> Any:
        made = dict(members)
        if len(made) != len(members):
            raise Malformed("an object has the same member twice")
        if _TAG not in made:
            return made
        tag = made[_TAG]
        if len(made) != 2 or _CONTENT not in made or type(tag) is not str:
            raise Malformed(f"{short_repr(made)} is not a tagged value")
        content = made[_CONTENT]
        if tag == "exception":
            return self._exception(content)
        reader = READERS.get(tag)
        if reader is None:
            raise Malformed(f"unknown tag {short_repr(tag)}")
        try:
            return reader(content)
        except (Malformed, ValueError, TypeError, ArithmeticError) as error:
            raise Malformed(f"{short_repr(content)} is no {tag}: {error}") from None

    def _exception(self, record: Any) -> Exception:
        if (
            type(record) is not dict
            or not {"type", "args"} <= record.keys() <= {"type", "args", "attributes"}
            or type(record["type"]) is not str
            or type(record["args"]) is not list
            or type(record.get("attributes", {})) is not dict
        ):
            raise Malformed(f"{short_repr(record)} is no exception")
        made = self._exceptions.rebuild(record["type"], tuple(record["args"]), record.get("attributes"))
        if made is None:
            raise Malformed(
                f"exception class {short_repr(record['type'])} is not registered here, "
                "or refuses its arguments; see ExceptionRegistry.register"
            )
        return made


def _why_not(kind: type, value: object) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    text = f"cannot encode {name} {short_repr(value)} as typed JSON"
    if isinstance(value, Enum):
        return f"{text}; send its .name or .value"
    if isinstance(value, BaseException):
        return f"{text}; register its class with ExceptionRegistry.register"
    if is_dataclass(kind):
        return f"{text}; send dataclasses.asdict() of it"
    if hasattr(kind, "tolist"):
        return f"{text}; send .tolist() of it"
    if issubclass(kind, PurePath) or kind.__module__ == "ipaddress":
        return f"{text}; send str() of it"
    for base in kind.__mro__[1:]:
        if base in _CARRIED:
            return f"{text}; convert it to {base.__name__} first"
    return f"{text}; send plain values"


_CARRIED = frozenset({*SCALARS, *COLLECTIONS, str, int, float, dict, list})


def _refuse_constant(name: str) -> None:
    raise Malformed(f"{name} is not a JSON number")


# A string, or what is left of the text where a string does not end: there is always one way to
# match, so this takes linear time on any input.
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
#: Up one level, and down one: signed bytes.
_TO_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_PAIR = b"\x01\xff"
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
#: Levels that are taken off the ends of the branches first, which is quick where there are no more; and steps that are
#: then looked at together.
_QUICK_LEVELS = 4
_STEPS_AT_ONCE = 1 << 16


def check_depth(data: bytes, limit: int) -> None:
    """Refuses text nested deeper than ``limit``, before the recursive parser sees it.

    It takes time in proportion to the brackets that there are up to the first one that is too deep.

    Raises:
        Malformed: it is, or closes what it has not opened.
    """
    if data.count(b"[") + data.count(b"{") <= limit:
        return
    steps = _STRINGS.sub(b"", data).translate(_TO_STEPS, _NO_BRACKETS)
    removed = 0
    while steps and removed < min(limit, _QUICK_LEVELS):
        steps = steps.replace(_PAIR, b"")
        removed += 1
    if not steps:
        return
    level = 0
    for start in range(0, len(steps), _STEPS_AT_ONCE):
        levels = list(accumulate(memoryview(steps)[start : start + _STEPS_AT_ONCE].cast("b"), initial=level))
        if max(levels) + removed > limit or min(levels) < 0:
            break
        level = levels[-1]
    else:
        if not level:
            return
    raise Malformed(f"nested more than {limit} levels deep, or brackets that do not match")
