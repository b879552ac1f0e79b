"""Pages on their way into the site."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.site.markdown import for_the_site

TOP = Path(__file__).parents[2]


def test_a_file_of_the_top_takes_the_place_of_the_link_to_it() -> None:
    page = (TOP / "docs" / "project" / "changelog.md").read_text()
    text = for_the_site("project/changelog", page, TOP, {})
    assert text.startswith("# Changelog\n")
    assert "](docs/" not in text and "](/events.md)" in text and "](/project/threat-model.md)" in text


def test_links_to_files_of_the_top_lead_to_their_pages() -> None:
    assert for_the_site("security", "[x](../SECURITY.md#a)", TOP, {}) == "[x](/project/threat-model.md#a)"
    assert for_the_site("a/b", "[x](../../README.md)", TOP, {}) == "[x](/index.md)"


def test_generated_texts_are_put_in() -> None:
    page = "before\n<!-- here: table -->\nSee `rpcmq --help`.\n<!-- end -->\nafter"
    assert for_the_site("x", page, TOP, {"table": lambda: "| a |"}) == "before\n| a |\nafter"
    with pytest.raises(KeyError, match="table"):
        for_the_site("x", page, TOP, {})


def test_what_a_readme_lists_is_below_it_in_the_menu() -> None:
    text = for_the_site("decisions/README", "[1](0001-a.md), [2](0002-b.md), [1](0001-a.md), [x](../x.md)", TOP, {})
    assert "```{toctree}\n:hidden:\n\n0001-a\n0002-b\n```" in text
