"""Data of a green thread's own."""

from __future__ import annotations

from greenlet import getcurrent

from compat.nova.greenlet_local import local

__all__ = ["get_ident", "local"]


def get_ident() -> int:
    """Give a number that no other living green thread has."""
    return id(getcurrent())
