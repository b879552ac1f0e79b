"""The names of an address's consumers, for KNOWS: as many as fit into one message, or none."""

from __future__ import annotations

from collections.abc import Iterable

from rpcmq.wire.consumer_name import ORIGIN_BYTES, ConsumerName

__all__ = ["in_one_message"]

#: Most bytes of the names in one KNOWS: a longer one would be refused.
_MOST_BYTES = 1_000_000


def in_one_message(names: Iterable[ConsumerName]) -> list[ConsumerName] | None:
    """Return each of ``names`` once, in the order of their origins; None: they are too many for one message."""
    seen: dict[ConsumerName, None] = {}
    size_bytes = 0
    for name in names:
        if name not in seen:
            seen[name] = None
            size_bytes += 2 * ORIGIN_BYTES + 3 + _json_bytes(name.identity)
            if size_bytes > _MOST_BYTES:
                return None
    return sorted(seen)


def _json_bytes(name: str) -> int:
    """The bytes of ``name`` in JSON at most, with quotes and a comma."""
    escaped = name.count('"') + name.count("\\") if name.isascii() else 11 * len(name)
    return len(name) + escaped + 3
