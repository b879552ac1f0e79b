"""Streams as processes of their own: the driver and its Java, which are to leave nothing behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
from gevent import subprocess

from tests.server.daemons import COMMAND, SECONDS, Daemon, environment

#: Seconds for what takes ten on a machine that has nothing else to do.
PATIENCE = 150.0
#: For Java: quick to start. Its garbage collector is of the command's choice, and Java refuses two.
_QUICK = "-XX:TieredStopAtLevel=1"


class Group(Daemon):
    """A stream as a process, with a process group of its own: the driver and its Java."""

    def kill(self) -> None:
        """Kill -9 of all of it, and wait until there is nothing left."""
        self._end_group()
        self._await_end()

    def _end_group(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    @property
    def members(self) -> list[int]:
        """The processes of the group that live."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                _, _, rest = path.read_text().rpartition(") ")
            except (FileNotFoundError, ProcessLookupError):
                continue
            state, _, group = rest.split()[:3]
            if int(group) == self.process.pid and state != "Z":
                found.append(int(path.parent.name))
        return found

    def ended(self) -> int:
        """Its exit code, when it has ended by itself with all that belongs to it."""
        self._await_end()
        return int(self.process.returncode)

    def _await_end(self) -> None:
        with self._patiently("processes are left"):
            self.process.wait()
            self._reader.join()
            while self.members:
                gevent.sleep(0.02)

    def heard(self, event: str, **fields: Any) -> dict[str, Any]:
        """The first record of ``event``."""
        with self._patiently(f"no {event} {fields}"):
            while True:
                self._more.clear()
                for record in self.records:
                    if record["event"] == event and fields.items() <= record.items():
                        return record
                assert not self._reader.dead, self.records
                self._more.wait()

    @contextmanager
    def _patiently(self, text: str) -> Iterator[None]:
        timeout = gevent.Timeout(PATIENCE)
        try:
            with timeout:
                yield
        except gevent.Timeout as error:
            assert error is timeout
            left = [f"{pid} {name_of(pid)}" for pid in self.members]
            self._show_stacks()
            raise AssertionError(f"{text}: the driver is {self.process.pid}; {left}, {self.records}") from None

    def _show_stacks(self) -> None:
        """Have the driver, if it lives, write the stacks of its threads into its log, and die."""
        if self.process.poll() is None:
            self.signal(signal.SIGABRT)
            self._reader.join(SECONDS)

    def close(self) -> None:
        """End it, whatever it does."""
        self.kill()
        super().close()


def name_of(pid: int) -> str:
    """The program that a process runs."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return "has ended"


@contextmanager
def streaming(log: Path, out: Path, *flags: str) -> Iterator[Group]:
    """``rpcmq latency stream`` as an operator runs it."""
    command = [*COMMAND, "latency", "stream", "--log", str(log), "--out", str(out), "--master", "local[1]"]
    with _started([*command, "--log-format", "json", "--log-level", "debug", *flags], out) as group:
        yield group


def killed_where(log: Path, out: Path, where: str, batch: int, alone: bool = False) -> None:
    """Run a stream until that batch is ``written``, or ``counted``, and kill it there: the driver ``alone``, or all."""
    program = [sys.executable, "-m", "tests.latency.jobs.streams", str(log), str(out), where, str(batch)]
    with _started(program, out) as group:
        group.heard("standing still", where=where, batch=batch)
        if alone:
            group.signal(signal.SIGKILL)
            group.ended()


@contextmanager
def _started(command: list[str], out: Path) -> Iterator[Group]:
    # Java that is killed leaves its files behind.
    scratch = out.with_name("scratch")
    scratch.mkdir(exist_ok=True)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(TMPDIR=str(scratch), JAVA_TOOL_OPTIONS=_QUICK, PYTHONFAULTHANDLER="1"),
        start_new_session=True,
    )
    group = Group(process)
    try:
        yield group
    finally:
        group.close()
