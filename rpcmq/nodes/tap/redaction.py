"""Payloads for people: JSON only, without what is secret by its name.

The router knows nothing of payloads, and decodes no pickle. JSON is what it can look into without running anything: the
values of members whose names match are replaced, at any depth. What it cannot look into is withheld as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
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
        return _redacted(json.loads(bytes(payload)), names, _MAX_DEPTH), ""
    except (ValueError, RecursionError):
        return None, "no JSON"


def _redacted(value: Any, names: Sequence[str], depth: int) -> Any:
    if not depth:
        return REDACTED
    if isinstance(value, dict):
        return {
            name: REDACTED if _is_secret(name, names) else _redacted(each, names, depth - 1)
            for name, each in value.items()
        }
    if isinstance(value, list):
        # Typed JSON has some mappings as lists of pairs.
        return [_redacted_pair(each, names, depth - 1) for each in value]
    return value


def _redacted_pair(value: Any, names: Sequence[str], depth: int) -> Any:
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and _is_secret(value[0], names):
        return [value[0], REDACTED]
    return _redacted(value, names, depth)


def _is_secret(name: str, names: Sequence[str]) -> bool:
    return any(fnmatchcase(name.lower(), pattern) for pattern in names)
