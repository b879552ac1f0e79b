"""The tagged values of typed JSON, each tag's writer and reader; ``typed_json`` documents them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import UUID

from rpcmq.payload.paths import ROOT

__all__ = ["COLLECTIONS", "READERS", "SCALARS", "Malformed", "Unencodable"]


class Unencodable(Exception):
    """Raised with the reason why a value cannot be encoded; the path grows as it leaves the containers."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[tuple[Callable[[str, Any], str], Any]] = []

    def inside(self, step: Callable[[str, Any], str], key: object) -> Unencodable:
        """Notes that the refused value is at ``key`` of the value that is being left."""
        self.steps.append((step, key))
        return self

    def path(self) -> str:
        """The path of the refused value within the message."""
        path = ROOT
        for step, key in reversed(self.steps):
            path = step(path, key)
        return path


#: Of the members of a set, or keys of a mapping.
_MAX_OF_ONE_HASH = 1000


class Malformed(ValueError):
    """A received text is not typed JSON."""


def _datetime_text(value: datetime) -> str:
    if value.tzinfo is None:
        if value.fold:
            raise Unencodable("a naive datetime with fold=1 is ambiguous; give it a time zone")
    elif value.utcoffset() is None:
        raise Unencodable("the datetime's time zone gives no offset")
    return value.isoformat()


def _time_text(value: time) -> str:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise Unencodable("the time's zone has no fixed offset; send a datetime")
    if value.fold:
        raise Unencodable("a time with fold=1 has no meaning without its date; send a datetime")
    return value.isoformat()


def _timedelta_fields(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _base64_text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


SCALARS: Mapping[type, tuple[str, Callable[[Any], Any]]] = MappingProxyType(
    {
        datetime: ("datetime", _datetime_text),
        date: ("date", date.isoformat),
        time: ("time", _time_text),
        timedelta: ("timedelta", _timedelta_fields),
        UUID: ("uuid", str),
        Decimal: ("decimal", str),
        bytes: ("bytes", _base64_text),
    }
)
COLLECTIONS: Mapping[type, str] = MappingProxyType({tuple: "tuple", set: "set", frozenset: "frozenset"})
# Readers: content of a tagged value -> value. They raise ValueError, TypeError or ArithmeticError.

_HEX = re.compile(r"0|-?[1-9a-f][0-9a-f]*")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FLOAT = re.compile(r"nan|-?inf")
_DECIMAL = re.compile(r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|Infinity|s?NaN[0-9]*)")
_DATE_FORM = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME_FORM = (
    r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
    r"(?:Z|[+-][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{6})?)?)?"
)
_DATE = re.compile(_DATE_FORM)
_TIME = re.compile(_TIME_FORM)
_DATETIME = re.compile(f"{_DATE_FORM}T{_TIME_FORM}")


def _text(content: Any) -> str:
    if type(content) is not str:
        raise Malformed("its content must be a string")
    return content


def _array(content: Any) -> list[Any]:
    if type(content) is not list:
        raise Malformed("its content must be an array")
    return content


def _matching(pattern: re.Pattern[str], content: Any) -> str:
    text = _text(content)
    if pattern.fullmatch(text) is None:
        raise Malformed("not in the documented form")
    return text


def _read_int(content: Any) -> int:
    return int(_matching(_HEX, content), 16)


def _read_float(content: Any) -> float:
    return float(_matching(_FLOAT, content))


def _read_bytes(content: Any) -> bytes:
    return base64.b64decode(_text(content), validate=True)


def _read_timedelta(content: Any) -> timedelta:
    fields = _array(content)
    if len(fields) != 3 or any(type(field) is not int for field in fields):
        raise Malformed("expected three integers")
    days, seconds, microseconds = fields
    if not (0 <= seconds < 86_400 and 0 <= microseconds < 1_000_000):
        raise Malformed("seconds or microseconds out of range")
    return timedelta(days, seconds, microseconds)


def _check_hashes(keys: Collection[Any]) -> None:
    """Refuse keys with many equal hashes, which make a set or dict quadratic.

    Numbers that differ by a multiple of 2**61 - 1 have the same; 100,000 of them would take a minute.
    """
    if len(keys) > _MAX_OF_ONE_HASH and len(keys) - len(set(map(hash, keys))) > _MAX_OF_ONE_HASH:
        raise Malformed(f"more than {_MAX_OF_ONE_HASH} members or keys have the hash of another")


def _read_set(content: Any) -> set[Any]:
    members = _array(content)
    _check_hashes(members)
    made = set(members)
    if len(made) != len(members):
        raise Malformed("a member occurs twice")
    return made


def _read_dict(content: Any) -> dict[Any, Any]:
    made = {}
    pairs = _array(content)
    if any(type(pair) is not list or len(pair) != 2 for pair in pairs):
        raise Malformed("expected pairs")
    _check_hashes([key for key, _ in pairs])
    for key, value in pairs:
        if key in made:
            raise Malformed("a key occurs twice")
        made[key] = value
    return made


READERS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "int": _read_int,
        "float": _read_float,
        "bytes": _read_bytes,
        "decimal": lambda content: Decimal(_matching(_DECIMAL, content)),
        "datetime": lambda content: datetime.fromisoformat(_matching(_DATETIME, content)),
        "date": lambda content: date.fromisoformat(_matching(_DATE, content)),
        "time": lambda content: time.fromisoformat(_matching(_TIME, content)),
        "timedelta": _read_timedelta,
        "uuid": lambda content: UUID(_matching(_UUID, content)),
        "tuple": lambda content: tuple(_array(content)),
        "set": _read_set,
        "frozenset": lambda content: frozenset(_read_set(content)),
        "dict": _read_dict,
    }
)
