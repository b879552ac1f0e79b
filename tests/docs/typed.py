"""Types a page: writes its files, runs its commands and its Python, and compares what they print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rpcmq.testing import eventually
from tests.docs.pages import Block, blocks_of, commands_of, says
from tests.docs.sessions import Interpreter, Shell

__all__ = ["Typist", "typist"]


@contextmanager
def typist(folder: Path, url: str) -> Iterator[Typist]:
    """A typist who works in ``folder``, with the router at ``url``."""
    with Shell(folder, url) as shell:
        yield Typist(folder, shell)


class Typist:
    """Does what pages say, one page after the other, in one folder and one shell."""

    def __init__(self, folder: Path, shell: Shell) -> None:
        self._folder = folder
        self._shell = shell

    def do(self, page: Path) -> int:
        """Do all that ``page`` says.

        * A block of ``console`` is typed into the shell, and prints what stands below each command.
        * A block of ``python`` or ``toml`` that begins with ``# NAME`` is a file. Any other of Python is a part of the
          page's program, and prints what the next block of ``text`` says.

        In what is printed ``...`` is anything. ``<!-- eventually -->`` before a block lets its command be typed again
        until it prints that; ``<!-- not run -->`` passes a block over.

        Returns:
            How many blocks were run.

        Raises:
            AssertionError: something was printed that the page does not say.
        """
        done = 0
        with Interpreter(self._folder, self._shell.url) as program:
            printed: list[str] = []
            for block in blocks_of(page):
                if block.mark == "not run":
                    continue
                where = f"{page.name}, line {block.line}"
                if block.info == "console":
                    self._type(block, where)
                elif file := re.match(r"# (\S+\.(py|toml))\n", block.text):
                    (self._folder / file[1]).write_text(block.text)
                elif block.info == "python":
                    printed = program.run(block.text, block.line)
                elif block.info == "text":
                    said = "\n".join(printed)
                    assert says(tuple(block.text.splitlines()), printed), f"{where}: printed was\n{said}"
                    printed = []
                else:
                    continue
                done += 1
        return done

    def _type(self, block: Block, where: str) -> None:
        for command in commands_of(block):

            def as_it_says(text: str = command.text, output: tuple[str, ...] = command.output) -> bool:
                printed = self._shell.run(text)
                said = "\n".join(printed)
                assert says(output, printed), f"{where}: $ {text}\n{said}"
                return True

            if command.mark == "eventually":
                eventually(as_it_says)
            else:
                as_it_says()
