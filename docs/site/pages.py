"""A Sphinx extension: pages that are generated, and Markdown that is changed on its way into the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

import rpcmq
from docs.site.generated import GENERATED
from docs.site.markdown import for_the_site

__all__ = ["setup"]

_PUBLIC = frozenset(rpcmq.__all__)
_TOP = Path(__file__).parents[2]


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_lexer("rpcmq-bytes", TextLexer)
    app.connect("source-read", _changed)
    app.connect("missing-reference", _of_the_package)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _changed(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = for_the_site(page, source[0], _TOP, GENERATED)


def _of_the_package(app: Sphinx, env: Any, node: Any, contents: Any) -> Any:
    """The link to ``rpcmq.Client``, where an annotation or a docstring names the module that has it."""
    name = node.get("reftarget", "").rpartition(".")[2]
    if node.get("refdomain") != "py" or name not in _PUBLIC:
        return None
    return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, "class", f"rpcmq.{name}", node, contents)
