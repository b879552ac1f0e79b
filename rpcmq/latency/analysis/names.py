"""Names of methods, and patterns for them."""

from __future__ import annotations

from fnmatch import fnmatchcase

from rpcmq.latency.analysis.series import Key

__all__ = ["matches", "method_name"]


def method_name(key: Key) -> str:
    """``topic.method`` of a series; its exchange stands in front if it is not empty: ``exchange/topic.method``."""
    name = f"{key['topic']}.{key['method']}"
    return f"{key['exchange']}/{name}" if key["exchange"] else name


def matches(pattern: str, key: Key) -> bool:
    """Return whether ``pattern`` is for the method of a series.

    In a pattern ``*`` stands for any text, dots too, ``?`` for one character, ``[ab]`` for one of these. It is compared
    with ``topic.method``, whatever the exchange, and with ``exchange/topic.method``.
    """
    name = f"{key['topic']}.{key['method']}"
    return fnmatchcase(name, pattern) or fnmatchcase(f"{key['exchange'] or ''}/{name}", pattern)
