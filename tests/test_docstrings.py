"""Docstrings begin with a noun phrase or an imperative, never with a headless clause ("What the router sends")."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEADLESS = re.compile(r"(What|Who|Whom|Whose|Where|When|How|Which|Why|Those)\b")
#: The comment that documents an attribute.
ATTRIBUTE = re.compile(r"\s*#: (.*)")


def documentation_of(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring, of texts after attributes, and of comments that document attributes."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text
    is_first = True
    for number, line in enumerate(source.splitlines(), 1):
        found = ATTRIBUTE.match(line)
        if found is not None and is_first:
            yield number, found[1]
        is_first = found is None


def headless_in(source: str) -> list[str]:
    """Return the first line of each text that begins with a headless clause."""
    return [f"{line}: {text.splitlines()[0]}" for line, text in documentation_of(source) if HEADLESS.match(text)]


@pytest.mark.parametrize("package", ["rpcmq", "compat", "drivers"])
def test_no_docstring_begins_with_a_headless_clause(package: str) -> None:
    paths = list((ROOT / package).rglob("*.py"))
    found = {str(path.relative_to(ROOT)): headless_in(path.read_text(encoding="utf-8")) for path in paths}
    assert len(paths) > 20 and {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        '"""What is sent."""',
        'def f():\n    """Where it goes.\n\n    More.\n    """',
        "class C:\n    #: Who has it.\n    x = 1",
        'class C:\n    x = 1\n    """How often."""',
        'async def f():\n    """When it is due."""',
    ],
)
def test_headless_clauses_are_found_wherever_documentation_is(source: str) -> None:
    assert len(headless_in(source)) == 1


@pytest.mark.parametrize(
    "source",
    ['"""Whether it is sent."""', '"""Whatever comes."""', "#: The time\n#: Where it counts.\nx = 1", 'x = "What"'],
)
def test_other_words_and_continued_lines_are_fine(source: str) -> None:
    assert headless_in(source) == []
