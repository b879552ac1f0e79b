"""The processes of a benchmark: started, asked, and gone when it is over, whatever happens.

``python -m benchmarks.children MODULE:FUNCTION JSON`` runs ``FUNCTION(**JSON)`` in a process of its
own. Such a function says what it has to say with :func:`say` and is asked with lines of JSON on its
standard input.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

__all__ = [
    "Child",
    "ChildFailed",
    "child",
    "child_of",
    "commands",
    "cpu_seconds",
    "peak_mib",
    "program",
    "router",
    "say",
]

_TICK = os.sysconf("SC_CLK_TCK")
_ROOT = Path(__file__).resolve().parent.parent
#: Time that a child may take to start, or to answer beyond the time it was asked to measure (seconds).
_PATIENCE = 30.0
#: Becomes the program that is given, which Linux kills when its parent dies (PR_SET_PDEATHSIG), even of SIGKILL.
_DIE_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"


class ChildFailed(Exception):
    """A process of a benchmark ended or did not answer; says what it printed last."""


class Child:
    """A running process in a group of its own, whose lines of output can be waited for."""

    def __init__(self, name: str, command: list[str], env: dict[str, str] | None = None) -> None:
        self.name = name
        self._last = "nothing"
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        own = {k: v for k, v in os.environ.items() if not k.startswith("RPCMQ_")}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=_ROOT,
            env=own | {"PYTHONUNBUFFERED": "1", **(env or {})},
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    @property
    def pid(self) -> int:
        """Of the process, and of its group."""
        return self._process.pid

    def line(self, pattern: str, seconds: float = _PATIENCE) -> str:
        """The next line of output that has ``pattern`` in it.

        Raises:
            ChildFailed: there is none within ``seconds``.
        """
        end = monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, end - monotonic()))
            except Empty:
                raise ChildFailed(f"{self.name} said nothing for {seconds:g} s; last: {self._last}") from None
            if line is None:
                raise ChildFailed(f"{self.name} ended with {self._process.wait()}; last: {self._last}")
            self._last = line.rstrip()
            if pattern in line:
                return line

    def heard(self, seconds: float = _PATIENCE) -> Any:
        """Return the child's next line of :func:`say`.

        Raises:
            ChildFailed: nothing within ``seconds``.
        """
        return json.loads(self.line(_MARK, seconds).partition(_MARK)[2])

    def ask(self, takes: float, /, **command: Any) -> Any:
        """Give a command that takes about so many seconds to answer, and wait for the answer.

        Raises:
            ChildFailed: there was none.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # why it ended is in what it said
        return self.heard(takes + _PATIENCE)

    def close(self) -> None:
        """Kill the process and its group, and wait for it."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()


@contextmanager
def program(name: str, command: list[str], env: dict[str, str] | None = None) -> Iterator[Child]:
    """Any program, for as long as the block runs."""
    started = Child(name, [sys.executable, "-c", _DIE_WITH_PARENT, *command], env)
    try:
        yield started
    finally:
        started.close()


def child(function: Callable[..., None], **arguments: Any) -> AbstractContextManager[Child]:
    """``function(**arguments)`` in a fresh interpreter, for as long as the block runs."""
    return child_of(sys.executable, function, **arguments)


@contextmanager
def child_of(python: str, function: Callable[..., None], /, **arguments: Any) -> Iterator[Child]:
    """The same with another interpreter, which has other packages."""
    target = f"{function.__module__}:{function.__name__}"
    command = [python, "-m", "benchmarks.children", target, json.dumps(arguments)]
    with program(target, command) as started:
        yield started


@contextmanager
def router(**settings: Any) -> Iterator[tuple[Child, str]]:
    """A router daemon on a port that the system picks: the process, and its url."""
    env = {f"RPCMQ_{name.upper()}": str(value) for name, value in settings.items()}
    env.setdefault("RPCMQ_ROUTER_LISTEN", "tcp://127.0.0.1:0")
    with program("router", [sys.executable, "-m", "rpcmq", "router"], env) as started:
        yield started, started.line("listening on ").partition("listening on ")[2].split()[0].rstrip(",")


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process so far: to the nanosecond where the kernel counts so."""
    try:
        tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
    except (OSError, IndexError):
        pass
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def peak_mib(pid: int | str = "self") -> float:
    """The most memory that a process has had at a time."""
    # Not ru_maxrss, in which a new process begins with what its parent had.
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


# --- in the child --------------------------------------------------------------------------------

_MARK = "benchmark> "
_asked: SimpleQueue[dict[str, Any]] = SimpleQueue()


def say(what: Any) -> None:
    """Tell the parent."""
    print(f"{_MARK}{json.dumps(what)}", flush=True)


def commands() -> SimpleQueue[dict[str, Any]]:
    """The commands that the parent has sent, in order."""
    return _asked


def _listen() -> None:
    for line in sys.stdin:
        _asked.put(json.loads(line))
    os._exit(0)


def _main(target: str, arguments: str) -> None:
    threading.Thread(target=_listen, daemon=True).start()
    module, _, function = target.partition(":")
    getattr(importlib.import_module(module), function)(**json.loads(arguments))


if __name__ == "__main__":
    # The functions import this module under its real name, so the queue must be that one's.
    importlib.import_module("benchmarks.children")._main(*sys.argv[1:])
