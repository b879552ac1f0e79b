"""The queue server as a child of the router: started again when it dies, and taken over when the router has died.

It outlives a router that is killed, so that items which workers have stay known. The router's next life finds it by
the lock of its directory, and goes on with it instead of starting another one.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass
from shutil import rmtree
from time import monotonic
from typing import Any

import gevent
from gevent.event import Event
from gevent.os import nb_read

from rpcmq.server.child_process import BackOff, ChildProcess
from rpcmq.server.log import log_event
from rpcmq.server.queue_directory import DirectoryInUse, QueueDirectory
from rpcmq.server.queue_status import QueueStatus

__all__ = ["QueueProcess", "QueueServerCommand"]

log = logging.getLogger("rpcmq.router")

#: The exit code of a server whose settings or whose store cannot be used.
HOPELESS = 2
#: Pauses before it is started again: the second time, at most, and after a hopeless end (seconds).
_FIRST_PAUSE, _LONGEST_PAUSE, _HOPELESS_PAUSE = 0.2, 10.0, 60.0
#: Interval of looks whether a directory that is in use is free, and whether an orphan lives (seconds).
_LOOK = 0.2
#: Pause before a directory that cannot be used is tried again: its disk may have become writable (seconds).
_UNUSABLE_PAUSE = 1.0
#: Silence after which the server is called silent; it says something each second (seconds).
_SILENCE = 10.0
#: Seconds that it gets to end when it was told to stop waiting for what runs.
_LAST = 5.0
_CHUNK = 1 << 16


@dataclass(frozen=True)
class QueueServerCommand:
    """The way in which a queue server is run.

    Attributes:
        directory: for its lock and its pipe.
        url: of the router, from the same machine.
        flags: the arguments of the program, beside those for this life of the router.
        environment: its variables.
        key: the file with its key, as text; empty: the router has no keys.
        program: what is run.
        is_temporary: the directory is removed at the end.
    """

    directory: str
    url: str
    flags: Sequence[str]
    environment: Mapping[str, str]
    key: str = ""
    program: Sequence[str] = (sys.executable, "-m", "rpcmq.queue_server")
    is_temporary: bool = False


class QueueProcess:
    """Runs a queue server until :meth:`stop`.

    Args:
        cores: on which it may run, whatever the router keeps to; None: where the router may.
    """

    def __init__(self, server: QueueServerCommand, cores: Set[int] | None = None) -> None:
        self._server = server
        self._child = ChildProcess(cores)
        self._back_off = BackOff(_FIRST_PAUSE, _LONGEST_PAUSE, at_once=True)
        self._directory: QueueDirectory | None = None
        self._status = QueueStatus()
        self._is_adopted = False
        self._refusal = ""
        #: The end of the last server, as text; empty: none has ended.
        self._end = ""
        self._stop = Event()
        #: The signal that an adopted server gets as soon as it has said who it is.
        self._pending: signal.Signals | None = None
        #: Number of times that a server has ended.
        self.restarts = 0
        self._keeper = gevent.spawn(self._run)

    # --- what it says ------------------------------------------------------------------------

    @property
    def pid(self) -> int | None:
        """The pid of the server, or None: none runs, or it has not said so yet."""
        if not self._is_adopted:
            return self._child.pid
        pid = self._status.about().get("pid")
        return pid if isinstance(pid, int) and pid > 1 else None

    @property
    def ended(self) -> bool:
        """Whether there is no server, and none is started again."""
        return bool(self._keeper.dead)

    def view(self) -> dict[str, Any]:
        """Return the state of the server, and what it has said last."""
        said = dict(self._status.read())
        state, why = self._state(said)
        about = {"state": state, "why": why, "pid": self.pid, "adopted": self._is_adopted, "restarts": self.restarts}
        return {"queues": {}, "store": {}, **said, **about}

    @property
    def state(self) -> str:
        """The state of the server on one line, with the reason where there is one: ``unavailable: REASON``."""
        state, why = self._state(self._status.about())
        return f"{state}: {' '.join(why.split())}" if why else state

    def _state(self, said: Mapping[str, Any]) -> tuple[str, str]:
        if self._refusal:
            return "unavailable", self._refusal
        if self._stop.is_set():
            return "draining", ""
        if self._status.heard is None:
            return "starting", self._end
        if said.get("is_opening") and monotonic() - self._status.heard <= _SILENCE:
            return "starting", "its store is being opened"
        if self._status.left_out and monotonic() - self._status.heard > _SILENCE:
            return "silent", f"its last {self._status.left_out} lines were too long"
        if monotonic() - self._status.heard > _SILENCE:
            return "silent", "it has said nothing for some time; it says something each second when it is well"
        if waits_for := said.get("waits_for"):
            return "waiting", str(waits_for)
        return "serving", ""

    # --- the end -----------------------------------------------------------------------------

    def begin_stop(self) -> None:
        """Tell the server to take nothing more, and to end when what runs has ended."""
        self._stop.set()
        self._signal(signal.SIGTERM)

    def stop(self, seconds: float) -> None:
        """Wait for its end for ``seconds``; then it stops waiting for what runs, or is killed."""
        self.begin_stop()
        self._keeper.join(seconds)
        if not self._keeper.dead:
            self._signal(signal.SIGINT)
            self._keeper.join(_LAST)
        if not self._keeper.dead:
            text = f"the queue server did not end in {seconds + _LAST:g} s: killed"
            log_event(log, logging.WARNING, "queue server killed", text, pid=self.pid)
            self._signal(signal.SIGKILL)
            self._keeper.join(_LAST)
        self._keeper.kill()
        if self._directory is not None:
            self._directory.close()
            self._directory = None
        if self._server.is_temporary:
            rmtree(self._server.directory, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        if not self._is_adopted:
            self._child.signal(number)
        elif (pid := self.pid) is None:
            self._pending = number
        else:
            self._pending = None
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass  # it has ended already

    # --- its lives ---------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._stop.wait(self._run_once())
            except DirectoryInUse as error:
                self._refuse(str(error))
                self._stop.wait(_LOOK)
            except OSError as error:
                self._refuse(f"the queue server cannot be started: {error}")
                self._stop.wait(_UNUSABLE_PAUSE)

    def _refuse(self, text: str) -> None:
        if text != self._refusal:
            log_event(log, logging.ERROR, "queue unavailable", f"no work queues: {text}")
        self._refusal = text

    def _run_once(self) -> float:
        """Run a server until it ends, or watch one that lives; return the pause before the next (seconds)."""
        if self._directory is None:
            self._directory = QueueDirectory(self._server.directory)
        lock = self._directory.reserve()
        if lock is None:
            self._watch_orphan(self._directory)
            return 0.0
        started = monotonic()
        try:
            code = self._run_child(self._directory, lock)
        finally:
            os.close(lock)
        if self._stop.is_set():
            return 0.0
        self.restarts += 1
        if code == HOPELESS:
            said = self._status.about().get("waits_for")
            self._refusal = f"it cannot open its store: {said}" if said else "its settings cannot be used"
            text = f"the queue server cannot work: {self._refusal}; started again in {_HOPELESS_PAUSE:g} s"
            log_event(log, logging.ERROR, "queue server failed", text, exit_code=code, seconds=_HOPELESS_PAUSE)
            return _HOPELESS_PAUSE
        self._end = f"it has ended with exit code {code}; the router's log has its last words"
        pause = self._back_off.pause_after(monotonic() - started)
        text = f"the queue server ended with {code}; started again in {pause:g} s"
        log_event(log, logging.ERROR, "queue server ended", text, exit_code=code, seconds=pause)
        return pause

    def _run_child(self, directory: QueueDirectory, lock: int) -> int:
        with ExitStack() as files:
            readable, writable = directory.new_status()
            files.callback(os.close, readable)
            files.callback(os.close, writable)
            life = ["--status-fd", str(writable), "--parent", str(os.getpid())]
            inherited = [lock, writable]
            if self._server.key:
                inherited.append(key := _file_with(self._server.key))
                files.callback(os.close, key)
                life += ["--key-fd", str(key)]
            self._status, self._is_adopted, self._refusal = QueueStatus(), False, ""
            reader = gevent.spawn(self._read, readable)
            files.callback(reader.kill)
            command = [*self._server.program, "--router", self._server.url, *self._server.flags, *life]
            code = self._child.run(command, inherited, self._server.environment)
            reader.kill()
            self._read_rest(readable)
            return code

    def _watch_orphan(self, directory: QueueDirectory) -> None:
        """Go on with the server of an earlier life of this router, until it ends."""
        with ExitStack() as files:
            readable = directory.open_status()
            files.callback(os.close, readable)
            self._status, self._is_adopted, self._refusal = QueueStatus(), True, ""
            reader = gevent.spawn(self._read, readable)
            files.callback(reader.kill)
            is_known = False
            while (lock := directory.reserve()) is None:
                if not is_known and self.pid is not None:
                    is_known = True
                    self._meet_orphan()
                if self._pending is not None:
                    self._signal(self._pending)
                gevent.sleep(_LOOK)
            os.close(lock)
        self._is_adopted = False
        if not self._stop.is_set():
            self.restarts += 1
            log_event(log, logging.WARNING, "queue server ended", "the adopted queue server ended; another is started")

    def _meet_orphan(self) -> None:
        url, pid = self._status.about().get("url"), self.pid
        if url == self._server.url:
            text = f"the queue server of an earlier life of this router goes on (pid {pid})"
            log_event(log, logging.INFO, "queue server adopted", text, pid=pid)
            return
        text = f"the queue server of an earlier life (pid {pid}) serves {url}, not {self._server.url}: it is ended"
        log_event(log, logging.WARNING, "queue server replaced", text, pid=pid)
        self._signal(signal.SIGINT)

    def _read(self, readable: int) -> None:
        while data := nb_read(readable, _CHUNK):
            self._status.feed(data, monotonic())

    def _read_rest(self, readable: int) -> None:
        """Read what a server that has ended has said at last: the reason, maybe."""
        try:
            while data := os.read(readable, _CHUNK):
                self._status.feed(data, monotonic())
        except BlockingIOError:
            pass  # that was all


def _file_with(text: str) -> int:
    """Return a file in memory with ``text``, which only its owner can read."""
    file = os.memfd_create("rpcmq queue server key")
    os.fchmod(file, 0o600)
    os.write(file, text.encode())
    return file
