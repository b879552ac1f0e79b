"""Programs that have children of their own: a process group, of which nothing is left."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from rpcmq.testing.processes import Program

__all__ = ["CHECKOUT", "PROGRAMS", "Group"]

CHECKOUT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
_COLOURS = re.compile(r"\x1b\[\d+m")


class Group(Program):
    """A program at the head of a process group, as one that is started in a terminal.

    Args:
        command, env: as for :class:`Program`.
        cwd: the folder in which it starts.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], name: str, cwd: Path = CHECKOUT) -> None:
        # From Python 3.12 on every fork of a process with threads, such as ZeroMQ's, is warned about.
        quiet = {"PYTHONWARNINGS": "ignore:This process:DeprecationWarning"}
        super().__init__(["env", "--chdir", str(cwd), "setsid", *command], quiet | dict(env), name)

    def interrupt(self) -> None:
        """Ctrl-C: the terminal tells all processes of the group."""
        os.killpg(self.pid, signal.SIGINT)

    def assert_said_only(self, patterns: Sequence[str]) -> None:
        """Each line of output matches one of ``patterns``."""
        known = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
        plain = (_COLOURS.sub("", line) for line in self.lines)
        stray = [line for line in plain if line.strip() and not known.match(line)]
        assert not stray, stray

    def close(self) -> None:
        """Kill what is left of the group."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all of it has ended
        super().close()
