"""Unpatched originals of the standard library."""

from __future__ import annotations

from .patcher import original

__all__ = ["__original_socket__"]

__original_socket__ = original("socket").socket
