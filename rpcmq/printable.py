"""Texts that others chose, as they can do no harm in a terminal or a log."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str, instead: str = "") -> str:
    """Return ``text`` with characters that cannot be seen escaped, or each replaced by ``instead``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else instead or repr(c)[1:-1] for c in text)
