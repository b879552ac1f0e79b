"""Text to and from other things."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

TRUE_STRINGS = ("1", "t", "true", "on", "y", "yes")
FALSE_STRINGS = ("0", "f", "false", "off", "n", "no")
_UNITS = {"": 1, "b": 1, "k": 1024, "kb": 1024, "m": 1024**2, "mb": 1024**2, "g": 1024**3, "gb": 1024**3, "t": 1024**4}


def int_from_bool_as_string(subject: Any) -> int:
    """1 or 0 for :func:`bool_from_string`."""
    return int(bool_from_string(subject))


def bool_from_string(subject: Any, strict: bool = False) -> bool:
    """Return whether text such as ``yes`` means true.

    Raises:
        ValueError: with ``strict``, it means neither.
    """
    text = str(subject).strip().lower()
    if strict and text not in TRUE_STRINGS + FALSE_STRINGS:
        raise ValueError(
            f"Unrecognized value '{text}', acceptable values are: {', '.join(TRUE_STRINGS + FALSE_STRINGS)}"
        )
    return text in TRUE_STRINGS


def safe_decode(text: str | bytes, incoming: str | None = None, errors: str = "strict") -> str:
    """Text, of bytes too."""
    return text if isinstance(text, str) else text.decode(incoming or "utf-8", errors)


def safe_encode(
    text: str | bytes, incoming: str | None = None, encoding: str = "utf-8", errors: str = "strict"
) -> bytes:
    """Bytes, of text too."""
    return text if isinstance(text, bytes) else text.encode(encoding, errors)


def to_bytes(text: str, default: int = 0) -> int:
    """The number of bytes that text such as ``10KB`` means.

    Raises:
        TypeError: it has an unknown unit.
    """
    match = re.fullmatch(r"\s*(-?\d+)?\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in _UNITS:
        raise TypeError(f"Invalid string format: {text}")
    return int(match[1]) * _UNITS[match[2]] if match[1] else default


def to_slug(value: Any, incoming: str | None = None, errors: str = "strict") -> str:
    """Words in lower case with dashes between."""
    plain = unicodedata.normalize("NFKD", safe_decode(value, incoming, errors)).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
