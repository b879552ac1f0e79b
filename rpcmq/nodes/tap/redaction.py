"""Payloads for people: JSON only, without what is secret by its name.

The router knows nothing of payloads, and decodes no pickle. JSON is what it can look into without running anything: the
values of members whose names match are replaced, at any depth. What it cannot look into is withheld as a whole.

Typed JSON has some mappings as lists of pairs, and items of mappings as tuples: a list of two, of which the first is
such a name, is taken for one. A name can be bytes there, too.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Any

__all__ = ["REDACTED", "shown_payload"]

#: The text in place of a value.
REDACTED = "(redacted)"
_MAX_DEPTH = 64


def shown_payload(form: str, payload: bytes | memoryview, names: Sequence[str], most: int) -> tuple[Any, str]:
    """The payload as a JSON value, and why it is withheld; empty: it is not.

    Args:
        form: its format.
        names: patterns of the names of members whose values are not shown, in lower case.
        most: bytes beyond which it is not looked into.
    """
    if form != "json":
        return None, f"format {form}: only JSON is looked into"
    if len(payload) > most:
        return None, f"{len(payload)} bytes: more than payload_bytes = {most}"
    try:
        return _redacted(json.loads(bytes(payload)), _matcher(tuple(names)), _MAX_DEPTH), ""
    except (ValueError, RecursionError):
        return None, "no JSON"


_IsSecret = Callable[[str], object]


@lru_cache(maxsize=32)
def _matcher(patterns: tuple[str, ...]) -> _IsSecret:
    """A function that says whether a name in lower case matches one of ``patterns``: in one look, however many."""
    return re.compile("|".join(map(translate, patterns)) or r"(?!)").match


def _redacted(value: Any, is_secret: _IsSecret, depth: int) -> Any:
    if not depth:
        return REDACTED
    if isinstance(value, dict):
        return {
            name: REDACTED if is_secret(name.lower()) else _redacted(each, is_secret, depth - 1)
            for name, each in value.items()
        }
    if isinstance(value, list):
        if len(value) == 2 and is_secret(_name_of(value[0]).lower()):
            return [value[0], REDACTED]
        return [_redacted(each, is_secret, depth - 1) for each in value]
    return value


def _name_of(key: Any) -> str:
    """The key of a pair as text; empty: it is no name."""
    if isinstance(key, dict) and key.get("$") == "bytes":
        try:
            return b64decode(key.get("v", "")).decode(errors="replace")
        except (TypeError, ValueError):
            return ""
    return key if isinstance(key, str) else ""
