"""The diagrams of the pages, as the site has them."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.site.diagrams import svg_of
from docs.site.markdown import for_the_site

DOCS = Path(__file__).parents[2] / "docs"
DIAGRAMS = {
    f"{page.relative_to(DOCS)}-{number}": text
    for page in sorted(DOCS.rglob("*.md"))
    for number, text in enumerate(re.findall(r"^```mermaid\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE), 1)
}


def drawn(diagram: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg_of(diagram))


def of_kind(svg: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return svg.findall(f"{{http://www.w3.org/2000/svg}}{name}")


@pytest.mark.parametrize("name", DIAGRAMS)
def test_each_of_the_pages_is_drawn_with_all_its_labels_within_the_picture(name: str) -> None:
    svg = drawn(DIAGRAMS[name])
    texts = {text.text: float(text.get("x", 0)) for text in of_kind(svg, "text")}
    labels = re.findall(r"^ +[^\s\"]+(?: --> |--?>>)[^\s\":]+: (.+)$", DIAGRAMS[name], re.MULTILINE)
    labels += re.findall(r'-- "(.+?)" -->', DIAGRAMS[name])
    assert labels and set(labels) <= set(texts)
    assert all(0 < x < float(svg.get("width", 0)) for x in texts.values())


def test_states_are_columns_and_transitions_are_rows() -> None:
    svg = drawn(
        "stateDiagram-v2\n    [*] --> off\n    off --> on: <pressed> & held\n    on --> on: again\n    on --> [*]\n"
    )
    assert [text.text for text in of_kind(svg, "text")] == ["off", "on", "<pressed> & held", "again"]
    assert len(of_kind(svg, "circle")) == 2, "where it begins, and ends"
    heights = [float(text.get("y", 0)) for text in of_kind(svg, "text")]
    assert heights[0] == heights[1] < heights[2] < heights[3]


def test_a_line_that_is_not_understood_is_named() -> None:
    with pytest.raises(ValueError, match="this line of a stateDiagram-v2 cannot be drawn: note right of a"):
        svg_of("stateDiagram-v2\n    a --> b\n    note right of a\n")


def test_a_page_of_the_site_has_the_picture_in_its_place() -> None:
    page = "before\n\n```mermaid\nstateDiagram-v2\n    a --> b: go\n```\n\nafter"
    text = for_the_site("x", page, DOCS.parent, {})
    assert "mermaid" not in text and "<svg " in text and text.startswith("before\n\n```{raw} html\n")
