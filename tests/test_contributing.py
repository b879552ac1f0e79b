"""The examples of the contributor's guide run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "docs" / "contributing"
PAGES = sorted(path for path in GUIDE.glob("*.md") if "```python" in path.read_text())


def program_of(page: Path) -> str:
    """The blocks of Python of ``page``, in its lines."""
    lines: list[str] = []
    inside = False
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            line = ""
        lines.append(line if inside else "")
    return "\n".join(lines)


@pytest.mark.own_hub
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_run(page: Path):
    program = program_of(page)
    assert "assert " in program
    exec(compile(program, str(page), "exec", dont_inherit=True), {"__name__": f"contributing.{page.stem}"})


#: Packages whose modules are all in the tables of a page.
TABLES = {"queues": ("client/queue", "queue_server", "core/queue", "store")}


@pytest.mark.parametrize(("page", "packages"), TABLES.items())
def test_the_tables_have_every_module(page: str, packages: tuple[str, ...]):
    rows = [line for line in (GUIDE / f"{page}.md").read_text().splitlines() if line.startswith("|")]
    listed = set(re.findall(r"`(\w+\.py)`", "\n".join(rows)))
    modules = {path.name for each in packages for path in (ROOT / "rpcmq" / each).glob("*.py")} - {"__init__.py"}
    assert listed == modules


def test_every_page_is_listed():
    index = (GUIDE / "README.md").read_text()
    listed = set(re.findall(r"\]\((\w[\w-]*\.md)\)", index))
    assert listed == {path.name for path in GUIDE.glob("*.md")} - {"README.md"}
    assert len(PAGES) >= 5
