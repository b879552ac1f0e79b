"""Where a page's commands are typed, and its Python is run."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

from rpcmq.testing import eventually
from rpcmq.testing.processes import Program

__all__ = ["Interpreter", "Shell"]

#: The router's URL, as pages say it.
_DEFAULT = "tcp://127.0.0.1:7700"
#: Notes of the shell about its jobs.
_OF_A_JOB = re.compile(r"^(\[\d+\]|bash: line \d+: +\d+ (Killed|Terminated))")
_LOOP = """
import logging, sys
logging.getLogger("rpcmq").addHandler(logging.NullHandler())
for line in sys.stdin:
    code, mark = eval(line)
    exec(compile(code, "page", "exec", dont_inherit=True), globals())
    print(f"\\n{mark}", flush=True)
"""


class _Session(Program):
    def __init__(self, command: list[str], name: str, folder: Path, url: str) -> None:
        self.url = url
        self._marks = 0
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        env = {
            "PATH": path,
            "RPCMQ_ROUTER": url,
            "RPCMQ_ROUTER_LISTEN": url,
            "COLUMNS": "120",
            "PYTHONPATH": str(folder),
            # What pages print does not depend on how this suite is run.
            "PYTEST_ADDOPTS": "",
        }
        super().__init__(command, env, name)

    def _mark(self) -> str:
        self._marks += 1
        return f"--- end of part {self._marks} ---"

    def _printed(self, mark: str, first: int, what: str) -> list[str]:
        """The lines from ``first`` on up to ``mark``, with the default URL instead of the router's."""

        def ended() -> bool:
            return mark in self.lines[first:] or self.exit_code is not None

        eventually(ended, 60.0, f"the end of {what}; it said:\n{self.said()}")
        assert mark in self.lines[first:], f"{what} has ended the {self.name}; it said:\n{self.said()}"
        lines = self.lines[first : self.lines.index(mark, first)]
        # An empty line before the mark, unless it was needed to end a line.
        lines = lines[:-1] if lines and not lines[-1] else lines
        return [line.replace(self.url, _DEFAULT) for line in lines]


class Shell(_Session):
    """A shell with job control, in a folder.

    Args:
        folder: where.
        url: of the router that runs, or that a command is going to start.
    """

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(["bash", "--norc", "--noprofile"], "shell", folder, url)
        self.tell(f"cd '{folder}'; set -m")

    def run(self, command: str) -> list[str]:
        """Type ``command``, and wait for its end or, of a background job, its start.

        Returns:
            The lines that were printed meanwhile.

        Raises:
            AssertionError: it has not ended after a minute.
        """
        first, mark = len(self.lines), self._mark()
        # `jobs` forgets those that have ended, as a prompt does.
        self.tell(f"{command}\n{{ jobs >/dev/null; echo; echo '{mark}'; }} 2>&1")
        return [line for line in self._printed(mark, first, command) if not _OF_A_JOB.match(line)]

    def close(self) -> None:
        """End the jobs, then the shell."""
        if self.exit_code is None:
            self.tell("kill -9 $(jobs -p) 2>/dev/null; exit")
            try:
                self.wait()
            except AssertionError:
                self.signal(signal.SIGKILL)
        super().close()


class Interpreter(_Session):
    """A Python program that is given its parts one after the other."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__([sys.executable, "-W", "error", "-c", _LOOP], "program", folder, url)

    def run(self, code: str, line: int) -> list[str]:
        """Run ``code``, the part of a page that begins in ``line``.

        Returns:
            The lines that it printed.

        Raises:
            AssertionError: it raised, or has not ended after a minute.
        """
        first, mark = len(self.lines), self._mark()
        self.tell(repr(("\n" * line + code, mark)))
        return self._printed(mark, first, f"the code of line {line}")
