"""Cache-Status (RFC 9211): the field in which a cache says how it treated a request."""

from __future__ import annotations

import re
from functools import lru_cache

from rpcmq.proxy.caching.decisions import ForwardReason
from rpcmq.proxy.messages import Headers

__all__ = ["forwarded", "hit", "with_status"]

_TOKEN = re.compile(r"[A-Za-z*][!#$%&'*+\-.^_`|~0-9A-Za-z:/]*")
_UNPRINTABLE = re.compile(r"[^ -~]")


def hit(name: str, remaining: float, detail: str = "") -> str:
    """Return the value for a request that the cache ``name`` answered, with a response fresh for ``remaining`` seconds.

    ``detail`` is a token, ``collapsed``... of this cache only; empty: none.
    """
    # Whole seconds towards less: a response that is stale by less than a second is not fresh for 0.
    return f"{_item(name)}; hit; ttl={int(remaining // 1)}{f'; detail={detail}' if detail else ''}"


def forwarded(
    name: str,
    reason: ForwardReason,
    *,
    status: int | None = None,
    is_stored: bool = False,
    is_collapsed: bool = False,
    remaining: float | None = None,
    detail: str = "",
) -> str:
    """Return the value for a request that the cache ``name`` sent to the origin, whose response had ``status``.

    Args:
        remaining: seconds for which the response is fresh, where it is stored.
        detail: a token of this cache only; empty: none.
    """
    value = f"{_item(name)}; fwd={reason.value}"
    if status is not None:
        value += f"; fwd-status={status}"
    if remaining is not None:
        value += f"; ttl={int(remaining // 1)}"
    if is_stored:
        value += "; stored"
    if is_collapsed:
        value += "; collapsed"
    return f"{value}; detail={detail}" if detail else value


def with_status(headers: Headers, value: str) -> Headers:
    """Return ``headers`` with ``value`` after what caches nearer to the origin said (RFC 9211 section 2)."""
    return Headers((*headers.fields, ("Cache-Status", value)))


@lru_cache(maxsize=16)
def _item(name: str) -> str:
    if _TOKEN.fullmatch(name):
        return name
    text = _UNPRINTABLE.sub("?", name).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
