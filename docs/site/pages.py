"""A Sphinx extension: pages that are generated, and Markdown that is changed on its way into the site."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

from docs.site.markdown import for_the_site

__all__ = ["setup"]

_TOP = Path(__file__).parents[2]
_GENERATED: dict[str, Callable[[], str]] = {}


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    # Diagrams are shown as their text: what draws them would be a script from elsewhere.
    app.add_lexer("mermaid", TextLexer)
    app.add_lexer("rpcmq-bytes", TextLexer)
    app.connect("source-read", _changed)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _changed(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = for_the_site(page, source[0], _TOP, _GENERATED)
