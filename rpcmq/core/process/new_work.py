"""The work that a draining router does not accept: it begins now, and nothing that runs waits for it."""

from __future__ import annotations

from rpcmq.wire import KIND_AT, LOW_FLAGS_AT, Flag, Kind, flags_of

__all__ = ["begins_work"]

_REQUEST, _CAST, _PUBLISH = int(Kind.REQUEST), int(Kind.CAST), int(Kind.PUBLISH)
_NESTED, _CONFIRM = Flag.NESTED, Flag.CONFIRM


def begins_work(message: bytes) -> bool:
    """Return whether ``message`` starts new work, which a draining router does not accept."""
    kind = message[KIND_AT]
    if kind == _REQUEST:
        return not flags_of(message) & _NESTED
    if kind == _CAST:
        return flags_of(message) & (_NESTED | _CONFIRM) != _NESTED | _CONFIRM
    return kind == _PUBLISH and not message[LOW_FLAGS_AT] & _CONFIRM
