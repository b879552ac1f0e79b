"""Directives of Cache-Control (RFC 9111 section 5.2), and of the fields that stand above it (RFC 9213)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache

import http_sf
from http_sf.types import Token

from rpcmq.proxy.caching.policy import CachePolicy
from rpcmq.proxy.messages import Headers, list_members

__all__ = ["MOST_SECONDS", "NO_DIRECTIVES", "Directives", "parse_seconds", "request_directives", "response_directives"]

MOST_SECONDS = 2**31
"""A longer time counts as this one (RFC 9111 section 1.2.2)."""

_SHORT = 200
_DIGITS = re.compile(r"[0-9]+")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class Directives:
    """Directives by name in small letters, with their argument where they have one; of several the first counts."""

    __slots__ = ("_arguments",)

    def __init__(self, arguments: Mapping[str, str | None]) -> None:
        self._arguments = arguments

    def seconds(self, name: str, *, invalid: float | None) -> float | None:
        """Return the argument of the directive ``name``; None: it is not there; ``invalid``: it is no number of
        seconds.
        """
        if name not in self._arguments:
            return None
        seconds = parse_seconds(self._arguments[name])
        return invalid if seconds is None else seconds

    def is_bare(self, name: str) -> bool:
        """Return whether the directive ``name`` is there, and about the whole message rather than some fields."""
        return name in self._arguments and not self.fields(name)

    def fields(self, name: str) -> frozenset[str]:
        """Return the names of fields, in small letters, that are the argument of the directive ``name``."""
        return frozenset(field.lower() for field in list_members(self._arguments.get(name)))

    def has_no_argument(self, name: str) -> bool:
        """Return whether the directive ``name`` is there without an argument."""
        return name in self._arguments and self._arguments[name] is None

    def __contains__(self, name: str) -> bool:
        return name in self._arguments

    def __bool__(self) -> bool:
        return bool(self._arguments)


NO_DIRECTIVES = Directives({})


def parse_seconds(text: str | None) -> int | None:
    """Return ``text`` as seconds (RFC 9111 section 1.2.2), at most :data:`MOST_SECONDS`; None: it is no such number."""
    if text is None or not _DIGITS.fullmatch(text):
        return None
    # Longer digits are not converted: that takes time with the square of their number.
    return MOST_SECONDS if len(text) > 20 else min(int(text), MOST_SECONDS)


def request_directives(headers: Headers, policy: CachePolicy) -> Directives:
    """Return the directives of a request, none where the policy does not let them count."""
    value = headers.joined("cache-control") if policy.request_directives else None
    return _parsed(value) if value else NO_DIRECTIVES


def response_directives(headers: Headers, policy: CachePolicy) -> tuple[Directives, bool]:
    """Return the directives that count in a response, and whether they are from a field above Cache-Control.

    Where they are, Cache-Control and Expires do not count (RFC 9213 section 2.2).
    """
    for target in policy.targets:
        value = headers.joined(target)
        if value is not None and (directives := _targeted(value)) is not None:
            return directives, True
    value = headers.joined("cache-control")
    return (_parsed(value) if value else NO_DIRECTIVES), False


def _parsed(value: str) -> Directives:
    # Most values are short, and the same again and again.
    return _parsed_short(value) if len(value) <= _SHORT else _parsed_anew(value)


@lru_cache(maxsize=1024)
def _parsed_short(value: str) -> Directives:
    return _parsed_anew(value)


def _parsed_anew(value: str) -> Directives:
    members = list_members(value)
    if members and members[-1].replace('\\"', "").count('"') % 2:
        # A quote that is never closed would hide the directives after it.
        members = [member for each in value.split(",") if (member := each.strip())]
    arguments: dict[str, str | None] = {}
    for member in members:
        name, equals, argument = member.partition("=")
        # Space beside the equals sign makes the argument invalid, which for a time means none.
        text = argument if name == name.rstrip() else " "
        arguments.setdefault(name.strip().lower(), _unquoted(text) if equals else None)
    return Directives(arguments)


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return _ESCAPED.sub(r"\1", text[1:-1])
    return text


def _targeted(value: str) -> Directives | None:
    """Return the directives of a Dictionary (RFC 8941); None: it is none, or empty, and so the field does not count."""
    try:
        members = http_sf.parse(value.encode("latin-1"), tltype="dictionary")
    except Exception:
        # A field that no parser accepts is as good as not there (RFC 9213 section 2.1), whatever the library raises.
        return None
    if not isinstance(members, dict) or not members:
        return None
    arguments: dict[str, str | None] = {}
    for name, member in members.items():
        # Parameters of a directive mean nothing.
        item = member[0] if isinstance(member, tuple) else member
        match item:
            case bool():
                if item:
                    arguments[name] = None
            case int() | str() | Token():
                arguments[name] = str(item)
            case Decimal() | float():
                arguments[name] = " "
    return Directives(arguments)
