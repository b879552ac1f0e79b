"""Real processes for tests: a router daemon, services, callers; started, watched, killed, cleaned up.

::

    with RouterProcess() as router:
        with Program([sys.executable, "node.py", router.url]) as node:
            node.expect("serving")
            node.kill()

A program's standard output and standard error are read line by line, and are part of the message
when a wait fails. No program outlives its ``with`` block, or the interpreter.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Self
from urllib.request import urlopen
from weakref import WeakSet

import gevent
from gevent import subprocess

from rpcmq.testing import eventually
from rpcmq.testing.interrupts import uninterrupted
from rpcmq.testing.orphans import ending_with_this_process

__all__ = ["Program", "RouterProcess"]

_running: WeakSet[Program] = WeakSet()
#: Number of the last lines of output shown on failure.
_SHOWN = 40


class Program:
    """A program in a process of its own, started now; it ends with this one, also where this one is killed (on Linux).

    Args:
        command: program and arguments.
        env: variables on top of this process's own, which is passed without its ``RPCMQ_*``.
        name: in messages; default: the last part of the program's name.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None, name: str = "") -> None:
        self._command = list(command)
        self._env = {k: v for k, v in os.environ.items() if not k.startswith("RPCMQ_")}
        self._env |= {"PYTHONUNBUFFERED": "1", **(env or {})}
        self.name = name or os.path.basename(self._command[-1])
        #: All lines written so far.
        self.lines: list[str] = []
        self._seen = 0
        self._start()

    def _start(self) -> None:
        """Start it; what interrupts the caller until it is ready ends it."""
        # A process that is interrupted while it is started would be nobody's.
        try:
            uninterrupted(self._spawn)
            self._await_ready()
        except BaseException:
            if self in _running:
                self.close()
            raise

    def _await_ready(self) -> None:
        """Wait for the first thing it has to say."""

    def _spawn(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=ending_with_this_process(),
        )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        self._stdin, self._stdout = stdin, stdout
        self._reader = gevent.spawn(self._read, stdout)
        _running.add(self)

    def _read(self, stream: Any) -> None:
        for line in stream:
            self.lines.append(line.decode(errors="replace").rstrip("\n"))

    @property
    def pid(self) -> int:
        """Of the process."""
        return int(self._process.pid)

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the number of the signal, if one ended it."""
        code: int | None = self._process.poll()
        return code

    def tell(self, line: str) -> None:
        """Write ``line`` to its standard input."""
        self._stdin.write(line.encode() + b"\n")
        self._stdin.flush()

    def expect(self, pattern: str, timeout: float = 60.0) -> re.Match[str]:
        """Wait for a line of output that matches; lines before it are passed over.

        Args:
            pattern: a regular expression, searched for.
            timeout: seconds.

        Returns:
            The match.

        Raises:
            AssertionError: there was none; shows what there was.
        """

        def look() -> re.Match[str] | None:
            while self._seen < len(self.lines):
                self._seen += 1
                found = re.search(pattern, self.lines[self._seen - 1])
                if found:
                    return found
            code = self.exit_code
            if code is not None and self._reader.ready() and self._seen == len(self.lines):
                raise _Ended
            return None

        try:
            found = eventually(look, timeout)
        except (AssertionError, _Ended):
            state = "runs" if self.exit_code is None else f"ended with {self.exit_code}"
            raise AssertionError(f"{self.name} ({state}) did not say {pattern!r}; it said:\n{self.said()}") from None
        assert found is not None
        return found

    def said(self) -> str:
        """The last lines of output."""
        return "\n".join(self.lines[-_SHOWN:])

    def signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.exit_code is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait()

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and does nothing."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def wait(self, timeout: float = 60.0) -> int:
        """Wait for its end and for the last of its output.

        Returns:
            The exit code.

        Raises:
            AssertionError: it still runs after ``timeout`` seconds.
        """
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {timeout:g} s; it said:\n{self.said()}") from None
        self._reader.join(1.0)
        return int(code)

    def restart(self) -> None:
        """Start it again, after its end, with the same arguments."""
        assert self.exit_code is not None, f"{self.name} still runs"
        # A child that has outlived it may still have the other end.
        self._reader.kill()
        self._close_pipes()
        self._start()

    def close(self) -> None:
        """Kill it if it runs."""
        if self.exit_code is None:
            self.resume()
            self.kill()
        self._reader.kill()
        self._close_pipes()
        _running.discard(self)

    def _close_pipes(self) -> None:
        for pipe in (self._stdin, self._stdout):
            try:
                pipe.close()
            except OSError:
                pass  # what was left in its buffer has no reader

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Ended(Exception):
    pass


class RouterProcess(Program):
    """A router daemon; returns when it listens.

    Args:
        url: where; a port of 0 is chosen by the system, and kept by :meth:`restart`.
        file: TOML file with settings; what is given here goes before it.
        program: what runs it, given to the interpreter.
        config: settings by section and name: ``queue_max_messages=10``.
    """

    def __init__(
        self,
        url: str = "tcp://127.0.0.1:0",
        *,
        file: str = "",
        program: Sequence[str] = ("-m", "rpcmq", "router"),
        **config: Any,
    ) -> None:
        env = _variables({"router_listen": url, "router_http": "127.0.0.1:0", **config})
        arguments = ("--config", file) if file else ()
        super().__init__([sys.executable, *program, *arguments], env, "router")

    def _await_ready(self) -> None:
        found = self.expect(r"listening on (\S+?), views on (\S+)")
        self.url, self._http = found[1], found[2]

    def restart(self) -> None:
        """Start it again, after its end, on the same port."""
        self.configure(router_listen=self.url)
        super().restart()

    def configure(self, **config: Any) -> None:
        """Change settings, by section and name, for its next start."""
        self._env |= _variables(config)

    def varz(self) -> dict[str, Any]:
        """The router's summary, with facts about its process."""
        return self.view("varz")

    def view(self, name: str, timeout: float = 10.0) -> dict[str, Any]:
        """A view of the router's state: ``varz``, ``processes``, ``topics``, ``calls``, ``methods``.

        Args:
            timeout: seconds.

        Raises:
            OSError: it does not answer.
        """
        answer: bytes | OSError = gevent.get_hub().threadpool.apply(_get, (f"{self._http}/{name}", timeout))
        if isinstance(answer, OSError):
            raise answer
        view: dict[str, Any] = json.loads(answer)
        return view


def _variables(config: Mapping[str, Any]) -> dict[str, str]:
    return {f"RPCMQ_{name.upper()}": str(value) for name, value in config.items()}


def _get(url: str, timeout: float) -> bytes | OSError:
    # What is raised in a thread gets printed there, too.
    try:
        with urlopen(url, timeout=timeout) as answer:
            body: bytes = answer.read()
            return body
    except OSError as error:
        return error


@atexit.register
def _kill_all() -> None:
    for program in list(_running):
        program.signal(signal.SIGKILL)
