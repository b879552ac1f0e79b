"""Real processes of the ``rpcmq`` command for tests: a router, or anything else that logs JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

import gevent
from gevent import subprocess
from gevent.event import Event
from gevent.fileobject import FileObjectPosix

from rpcmq.testing.orphans import ending_with_this_process

#: Time that anything may take on a machine that is busy (seconds).
SECONDS = 60.0
COMMAND = [sys.executable, "-m", "rpcmq"]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without settings of rpcmq, with ``variables``."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RPCMQ_", "NOTIFY_", "WATCHDOG_"))}
    return clean | variables


class Daemon:
    """A process whose standard error is a log of JSON lines.

    The log is read in the hub, so that greenlets of the test go on while it waits for a record.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.records: list[dict[str, Any]] = []
        self._more = Event()
        assert process.stderr is not None
        self._stderr = FileObjectPosix(os.dup(process.stderr.fileno()), "rb")
        self._reader = gevent.spawn(self._read)

    def _read(self) -> None:
        for line in self._stderr:
            try:
                self.records.append(json.loads(line))
            except ValueError:
                # What is no log record is said by a process that dies: a traceback, a failed assertion.
                text = line.decode(errors="replace").rstrip()
                self.records.append({"event": "standard error", "level": "error", "message": text})
            self._more.set()

    def wait_for(self, event: str, **fields: Any) -> dict[str, Any]:
        """The first record of ``event`` with ``fields``, now or soon."""
        deadline = monotonic() + SECONDS
        seen = 0
        while True:
            for record in self.records[seen:]:
                if record["event"] == event and fields.items() <= record.items():
                    return record
            seen = len(self.records)
            if self._reader.dead or not self._more.wait(deadline - monotonic()):
                raise AssertionError(f"no {event} {fields} among {self.records}")
            self._more.clear()

    @property
    def url(self) -> str:
        """The url where the router listens."""
        return str(self.wait_for("listening")["url"])

    @property
    def http(self) -> str:
        """Base URL of the router's pages."""
        return str(self.wait_for("listening")["http"])

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def exit_code(self) -> int:
        """Wait until it has ended; its log is complete then."""
        eventually(lambda: self.process.poll() is not None)
        self._reader.join(SECONDS)
        return int(self.process.returncode)

    def close(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)
        self._reader.kill()
        self._stderr.close()
        assert self.process.stderr is not None
        self.process.stderr.close()


def eventually(holds: Callable[[], object]) -> None:
    """Wait until ``holds()``."""
    deadline = monotonic() + SECONDS
    while not holds():
        assert monotonic() < deadline, "did not happen"
        gevent.sleep(0.01)


@contextmanager
def started(*arguments: str, env: Mapping[str, str] | None = None, **options: Any) -> Iterator[Daemon]:
    """``rpcmq <arguments>`` as a process that logs JSON."""
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--log-format", "json"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(**(env or {})),
        # The fixtures of a suite that is killed end nothing.
        **{"preexec_fn": ending_with_this_process(), **options},
    )
    daemon = Daemon(process)
    try:
        yield daemon
    finally:
        daemon.close()


@contextmanager
def router(*flags: str, env: Mapping[str, str] | None = None, **options: Any) -> Iterator[Daemon]:
    """A router on a port of its own, once it listens."""
    listen = () if "--listen" in flags else ("--listen", "tcp://127.0.0.1:0")
    fast = () if "--recovery-seconds" in flags else ("--recovery-seconds", "0")
    with started("router", *listen, *fast, *flags, env=env, **options) as daemon:
        daemon.wait_for("listening")
        yield daemon


def run(*arguments: str, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """``rpcmq <arguments>``, run to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env=environment(**(env or {})),
        **options,
    )
