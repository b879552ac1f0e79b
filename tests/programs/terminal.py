"""A program in a terminal: it is typed to, and what it shows is read."""

from __future__ import annotations

import os
import pty
import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Self

import gevent
import gevent.os
from gevent import subprocess

from rpcmq.testing import eventually

__all__ = ["Terminal"]


class Terminal:
    """A pseudo-terminal with a program in it, at the head of a session of its own.

    Args:
        command: program and arguments.
        env: variables on top of this process's own.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._fd, child = pty.openpty()
        gevent.os.make_nonblocking(self._fd)
        self.shown = ""
        self._seen = 0
        try:
            self._process = subprocess.Popen(command, env={**os.environ, **env}, preexec_fn=lambda: os.login_tty(child))
        finally:
            os.close(child)
        self._reader = gevent.spawn(self._read)

    def _read(self) -> None:
        while True:
            try:
                data = gevent.os.nb_read(self._fd, 65536)
            except OSError:
                return  # EIO: the program has ended
            if not data:
                return
            self.shown += data.decode(errors="replace").replace("\r\n", "\n")

    def type(self, text: str) -> None:
        """Type ``text``, as it is: ``"\\n"`` is Enter, ``"\\x03"`` Ctrl-C."""
        gevent.os.nb_write(self._fd, text.encode())

    def expect(self, pattern: str, timeout: float = 60.0) -> str:
        """Wait until what is shown, after what was expected before, matches; return what is before the match.

        Args:
            timeout: seconds.

        Raises:
            AssertionError: it does not; shows what there is.
        """
        searched = re.compile(pattern, re.MULTILINE)

        def look() -> re.Match[str] | None:
            has_ended = self._reader.ready()
            found = searched.search(self.shown, self._seen)
            if found is None and has_ended:
                raise EOFError
            return found

        try:
            found = eventually(look, timeout)
        except (AssertionError, EOFError):
            raise AssertionError(f"{pattern!r} was not shown; shown was:\n{self.shown}") from None
        assert found is not None
        before = self.shown[self._seen : found.start()]
        self._seen = found.end()
        return before

    def wait(self, timeout: float = 60.0) -> int:
        """Wait for the end of the program, and of what it shows; return its exit code."""
        code = int(self._process.wait(timeout))
        self._reader.join(timeout)
        return code

    def close(self) -> None:
        """Kill what is left."""
        with suppress(ProcessLookupError):  # all of it has ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.kill()
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
