"""What the standard library had before it was patched."""

from __future__ import annotations

from .patcher import original

__all__ = ["__original_socket__"]

__original_socket__ = original("socket").socket
