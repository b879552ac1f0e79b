"""Figures as SVG inside a page: in the page's colours and font, with ids of their own."""

from __future__ import annotations

import re
from io import BytesIO, StringIO
from xml.etree import ElementTree

from matplotlib import rc_context
from matplotlib.figure import Figure

from rpcmq.latency.report.colours import LIGHT
from rpcmq.latency.report.draw import RC

__all__ = ["inline", "png"]

_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"
_VARIABLES = {colour: f"var(--{name})" for name, colour in LIGHT.items()}


def png(figure: Figure, density: float = 2) -> bytes:
    """``figure`` as PNG.

    Args:
        density: pixels of the picture for one of the page.
    """
    for each in [image for axes in figure.axes for image in axes.images]:
        each.set_visible("dark" not in (each.get_gid() or ""))
    buffer = BytesIO()
    with rc_context(RC):
        figure.savefig(buffer, format="png", dpi=density * figure.dpi)
    return buffer.getvalue()


def inline(figure: Figure, name: str, text: str) -> str:
    """``figure`` as an SVG element.

    Colours of the light scheme become those of the page's variables. Images for a dark or a light background have the
    class ``dark`` or ``light``.

    Args:
        name: what ids begin with; each figure of a page needs another one.
        text: what it shows, for those who do not see it.
    """
    buffer = StringIO()
    with rc_context(RC | {"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    _prune(root)
    for element in root.iter():
        _adapt(element, name)
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    root.set("role", "img")
    root.set("aria-label", text)
    root.set("class", "plot")
    ElementTree.register_namespace("", _SVG)
    return ElementTree.tostring(root, "unicode")


def _prune(parent: ElementTree.Element) -> None:
    """Take out what shows nothing, and the style sheet, which would be the whole page's."""
    for child in list(parent):
        _prune(child)
        kind = child.tag.removeprefix(f"{{{_SVG}}}")
        if kind in ("metadata", "style") or (kind in ("g", "defs") and not len(child)):
            parent.remove(child)


def _adapt(element: ElementTree.Element, name: str) -> None:
    scheme = re.match("heat-(light|dark)", element.get("id", ""))
    if scheme:
        element.set("class", scheme[1])
    for key, value in list(element.attrib.items()):
        if key == "id":
            element.set(key, f"{name}-{value}")
        elif key == _LINK:
            # Parsers of HTML know the attribute without a namespace only.
            del element.attrib[key]
            element.set("href", f"#{name}-{value[1:]}" if value.startswith("#") else value)
        elif "url(#" in value:
            element.set(key, value.replace("url(#", f"url(#{name}-"))
        if key in ("style", "fill", "stroke"):
            element.set(key, re.sub("#[0-9a-f]{6}", _variable, element.get(key, "")))


def _variable(colour: re.Match[str]) -> str:
    return _VARIABLES.get(colour[0], colour[0])
