"""A message whose payload is not in it. A module of its own, because a compiled one can have no subclass of bytes."""

from __future__ import annotations

__all__ = ["Detached"]


class Detached(bytes):
    """A message (header and variable part) whose payload travels in a frame of its own."""

    payload: bytes | memoryview

    @classmethod
    def of(cls, head: bytes, payload: bytes | memoryview) -> Detached:
        """Attach ``payload`` to ``head``, which must have the DETACHED flag set."""
        made = cls(head)
        made.payload = payload
        return made
