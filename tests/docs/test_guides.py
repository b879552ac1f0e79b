"""The guides, typed as they stand: their files written, their commands and programs run, what they print compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rpcmq.testing.processes import RouterProcess
from tests.docs.pages import DOCS, blocks_of
from tests.docs.typed import typist
from tests.test_docs import exists

GUIDES = [*sorted((DOCS / "guides").glob("*.md")), DOCS / "events.md", DOCS / "threads.md"]
ALL = sorted(page for page in DOCS.rglob("*.md") if "```python" in page.read_text())


@pytest.mark.integration
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    with RouterProcess() as router, typist(tmp_path, router.url) as reader:
        assert reader.do(page) > 0


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.stem)
def test_what_any_page_imports_of_rpcmq_is_there(page: Path) -> None:
    for block in blocks_of(page):
        if block.info != "python" or block.mark == "not run":
            continue
        for module, names in re.findall(r"^ *from (rpcmq\S*) import ([\w, ]+)", block.text, re.MULTILINE):
            for name in names.split(", "):
                assert exists(f"{module}.{name.split()[0]}"), f"{page.name} imports {name} from {module}"


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_only_programs_of_other_libraries_are_not_run(page: Path) -> None:
    passed_over = [block for block in blocks_of(page) if block.mark == "not run"]
    assert len(passed_over) == page.name.startswith("from-")


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_each_block_is_found(page: Path) -> None:
    """One that is indented, or not closed, would not be run."""
    fences = [line for line in page.read_text().splitlines() if line.lstrip().startswith("```")]
    assert len(fences) == 2 * len(blocks_of(page))
