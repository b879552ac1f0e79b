"""A child process of the router: started, waited for, signalled; and the pause before it is started again."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence, Set
from signal import SIGKILL, Signals

from gevent import subprocess

__all__ = ["BackOff", "ChildProcess"]


class ChildProcess:
    """Runs a command as a child, as often as :meth:`run` is called; its standard error is the router's.

    Args:
        cores: on which it may run, whatever the router keeps to; None: where the router may.
    """

    def __init__(self, cores: Set[int] | None = None) -> None:
        self._cores = cores
        self._process: subprocess.Popen[bytes] | None = None
        self._is_starting = False
        #: Signals for the child that is being started.
        self._pending: list[Signals] = []

    @property
    def pid(self) -> int | None:
        """The pid of the running child, or None."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def run(
        self, command: Sequence[str], fds: Collection[int] = (), environment: Mapping[str, str] | None = None
    ) -> int:
        """Start it, and wait until it ends; return its exit code.

        Args:
            command: the program and its arguments.
            fds: open files that it inherits.
            environment: its variables; None: those of the router.

        Raises:
            OSError: it cannot be started.
        """
        self._pending, self._is_starting = [], True
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=fds,
                env=environment,
                # A Ctrl-C is for the router, which ends its children in their order.
                start_new_session=True,
            )
        finally:
            self._is_starting = False
        self._process = process
        if self._cores is not None:
            try:
                os.sched_setaffinity(process.pid, self._cores)
            except ProcessLookupError:
                pass  # it has ended already
        for number in self._pending:
            process.send_signal(number)
        return int(process.wait())

    def signal(self, number: Signals) -> None:
        """Send it a signal; one that is being started gets it as soon as it runs."""
        if self._is_starting:
            self._pending.append(number)
        elif self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def kill(self) -> bool:
        """End it at once; return whether it was running."""
        was_running = self.pid is not None
        self.signal(SIGKILL)
        if was_running and self._process is not None:
            self._process.wait()
        return was_running


class BackOff:
    """Pauses before a child that has ended is started again.

    Args:
        first, longest: of the pauses, which double (seconds). A child that ran longer than ``longest`` was well, and
            begins anew.
        at_once: whether one that was well is started again without a pause.
    """

    def __init__(self, first: float, longest: float, at_once: bool = False) -> None:
        self._longest = longest
        self._pauses = [0.0, first] if at_once else [first]
        self._next = 0

    def pause_after(self, ran: float) -> float:
        """Return the pause (seconds) after a child that ran for ``ran`` seconds."""
        if ran > self._longest:
            self._next = 0
        step, self._next = self._next, self._next + 1
        if step < len(self._pauses):
            return self._pauses[step]
        return min(self._pauses[-1] * 2.0 ** min(step - len(self._pauses) + 1, 60), self._longest)
