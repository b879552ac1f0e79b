"""The specification of the protocol: docs/protocol.md and its further pages."""

from __future__ import annotations

from pathlib import Path

__all__ = ["protocol_text"]

_DOCS = Path(__file__).parent.parent / "docs"


def protocol_text() -> str:
    """All pages, one behind the other."""
    pages = [_DOCS / "protocol.md", *sorted((_DOCS / "protocol").glob("*.md"))]
    return "".join(page.read_text(encoding="utf-8") for page in pages)
