"""Changes to the Markdown of a page on its way into the site, so that a code host can show the same page without them.

* ``<!-- here: NAME -->``, up to ``<!-- end -->``: a file of the checkout's top, or a generated text, instead.
* A link to a file of the checkout's top leads to the page that has it.
* A diagram is drawn.
* The pages that the README of a folder links to are below it in the menu, in that order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from docs.site.diagrams import svg_of

__all__ = ["for_the_site"]

#: Files at the top of the checkout, and the pages that have them.
_AT_THE_TOP = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/threat-model.md",
}
_DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HERE = re.compile(r"<!-- here: (.+?) -->\n.*?<!-- end -->", re.DOTALL)


def for_the_site(page: str, text: str, top: Path, generated: dict[str, Callable[[], str]]) -> str:
    """The Markdown that is parsed for a page.

    Args:
        page: path within the folder of the docs, without the extension.
        text: its Markdown.
        top: of the checkout.
        generated: makes Markdown, by the name after ``here:``.

    Raises:
        KeyError: there is nothing of that name.
        ValueError: a diagram cannot be drawn.
    """

    def inserted(found: re.Match[str]) -> str:
        name = found[1]
        return _from_the_top(top, name) if name in _AT_THE_TOP else generated[name]()

    text = _DIAGRAM.sub(_drawn, _HERE.sub(inserted, text))
    up = "../" * len(PurePosixPath(page).parts)
    for file, target in _AT_THE_TOP.items():
        text = text.replace(f"]({up}{file}", f"](/{target}")
    return text + _children(text) if PurePosixPath(page).name == "README" else text


def _drawn(diagram: re.Match[str]) -> str:
    return f'```{{raw}} html\n<div style="overflow-x: auto">\n{svg_of(diagram[1])}\n</div>\n```'


def _from_the_top(top: Path, name: str) -> str:
    text = (top / name).read_text(encoding="utf-8").replace("](docs/", "](/")
    for file, target in _AT_THE_TOP.items():
        text = text.replace(f"]({file}", f"](/{target}")
    return text


def _children(text: str) -> str:
    listed = dict.fromkeys(re.findall(r"\]\(([\w-]+)\.md\)", text))
    return "\n".join(["", "```{toctree}", ":hidden:", "", *listed, "```", ""])
