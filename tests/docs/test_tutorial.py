"""The tutorial, typed as it stands: each command is run, its output compared."""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks_of, included_lines
from tests.docs.typed import typist

TUTORIAL = DOCS / "tutorial"
PROGRAM = DOCS.parent / "examples" / "controller"
INDEX = (TUTORIAL / "index.md").read_text()
PAGES = [TUTORIAL / name for name in re.findall(r"^\d+\. \[.*\]\((\S+\.md)\)", INDEX, re.MULTILINE)]


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_tutorial_prints_what_it_says(tmp_path: Path) -> None:
    shutil.copytree(PROGRAM, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    with typist(tmp_path, f"ipc://{tmp_path}/router") as reader:
        for page in PAGES:
            assert reader.do(page) > 0


def test_the_tutorial_shows_all_of_its_program() -> None:
    shown: dict[Path, set[int]] = defaultdict(set)
    for page in PAGES:
        for block in blocks_of(page):
            if block.info.startswith("{literalinclude}"):
                file, lines = included_lines(page, block)
                shown[file] |= set(lines)
    files = set(PROGRAM.rglob("*.py"))
    assert set(shown) == files
    for file in files:
        assert shown[file] == set(range(len(file.read_text().splitlines()))), file


def test_all_pages_are_in_order() -> None:
    assert {page.name for page in PAGES} == {page.name for page in TUTORIAL.glob("*.md")} - {"index.md"}
    for page, following in pairwise(PAGES):
        assert f"({following.name})" in page.read_text().split("Next: ")[1]
