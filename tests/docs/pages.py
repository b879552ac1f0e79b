"""The pages of the docs as programs: what they tell the reader to write and to type, and what that prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DOCS", "Block", "Command", "blocks_of", "commands_of", "included_lines", "says"]

DOCS = Path(__file__).parents[2] / "docs"

_FENCE = re.compile(
    r"^(?P<comment><!-- (?P<mark>[a-z ]+) -->\n)?```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_DURATION = re.compile(r"\d+(\.\d+)? (s|ms|us)\b")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        info: what follows the fence: a language, or a directive and its argument.
        text: its lines.
        mark: of a comment in the line before, such as ``eventually``; or empty.
        line: of the page, in which it begins.
    """

    info: str
    text: str
    mark: str
    line: int


@dataclass(frozen=True)
class Command:
    """A command of a console block, with the lines that it prints."""

    text: str
    output: tuple[str, ...]
    mark: str


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of ``page``, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found["info"].strip(), found["text"], found["mark"] or "", text.count("\n", 0, found.start("info")) + 1)
        for found in _FENCE.finditer(text)
    ]


def commands_of(block: Block) -> Iterator[Command]:
    """The commands of a console block: lines that begin with ``$ ``, each with the output below it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        taken = 1
        while lines[taken - 1].endswith("\\"):
            taken += 1
        yield Command("\n".join(lines[:taken]), tuple(lines[taken:]), block.mark)


def says(expected: tuple[str, ...], printed: list[str]) -> bool:
    """Return whether the lines that were printed are those of the page.

    There, ``...`` is any text within a line, and any lines where it is a line. Durations, and how wide gaps are, may
    differ.
    """
    pattern = "".join(r"(.*\n)*?" if line == "..." else _pattern(line) for line in expected)
    return re.fullmatch(pattern, "".join(f"{_even(line)}\n" for line in printed)) is not None


def _pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in _even(line).split("...")) + "\n"


def _even(line: str) -> str:
    return re.sub(r"\s+", " ", _DURATION.sub("TIME", line)).rstrip()


def included_lines(page: Path, block: Block) -> tuple[Path, range]:
    """The file of a ``literalinclude``, and the numbers of the lines of it that are shown, from 0."""
    name = block.info.removeprefix("{literalinclude}").strip()
    options = dict(re.findall(r"^:([a-z-]+): *(.*)$", block.text, re.MULTILINE))
    file = (page.parent / name).resolve()
    lines = file.read_text(encoding="utf-8").splitlines()
    first = _line_with(lines, options["start-at"], 0) if "start-at" in options else 0
    last = _line_with(lines, options["end-before"], first) if "end-before" in options else len(lines)
    return file, range(first, last)


def _line_with(lines: list[str], text: str, first: int) -> int:
    return next(number for number in range(first, len(lines)) if text in lines[number])
