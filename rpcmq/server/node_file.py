"""The file of a plugged-in node: its rows, written whole by a thread, and put in place of the file of before.

Whoever reads it sees the rows of one moment.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable
from time import monotonic

import gevent
from gevent import get_hub
from gevent.event import Event

from rpcmq.core.router.actions import LogEvent
from rpcmq.nodes.keeper import Keeper
from rpcmq.nodes.plan import Plan
from rpcmq.server.node_file_format import DamagedNodeFile, RefusedNodeFile, content_of, load, lock_of, next_of

__all__ = ["NodeFile", "NodeFiles"]

#: Seconds between two writes at least, and after one that has failed.
_PAUSE, _RETRY = 0.05, 5.0


class NodeFile:
    """Has ``keeper`` know what a file says, and brings the file up to date.

    A file that cannot be read, or is of a later version, is left alone, and one that is damaged is put aside; each is
    an error in the log. The node works all the same, and so does one whose file cannot be written: that is tried again.

    Args:
        path: of the file. There is a lock beside it, with ``.lock`` at its end.
        node: the name of the node.
        max_bytes: of the rows.
        on_note: gets each event that is worth a line in the log.

    Attributes:
        keeper: the rows.
    """

    def __init__(self, path: str, node: str, max_bytes: int, on_note: Callable[[LogEvent], None]) -> None:
        self._path, self.node, self._max_bytes = path, node, max_bytes
        self._on_note = on_note
        #: Of the reading: they are passed on when the router runs, which says first where it listens.
        self._notes: list[LogEvent] = []
        self._changed = Event()
        self.keeper = Keeper(max_bytes, self._changed.set)
        self._written = 0
        self._lock: int | None = None
        self._refusal = ""
        self._writer: gevent.Greenlet[[Callable[[], None]], None] | None = None
        self._ends = False
        try:
            self._load()
        except RefusedNodeFile as error:
            self._refusal = self.keeper.problem = str(error)
            self._note("node file refused", f"{error}; nothing is kept there")

    def start(self, wake: Callable[[], None]) -> None:
        """Begin to write.

        Args:
            wake: has the router send what it wants to send.
        """
        self._writer = gevent.spawn(self._write_changes, wake)

    def close(self, seconds: float) -> None:
        """Write what is new, for so long at most, and let go of the file."""
        self._ends = True
        self._changed.set()
        if self._writer is not None:
            self._writer.join(seconds)
            self._writer.kill()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _note(self, event: str, text: str) -> None:
        self._notes.append(LogEvent(event, f"file of node {self.node}: {text}", self.node, {"path": self._path}))
        if self._writer is not None:
            self._pass_notes()

    def _pass_notes(self) -> None:
        while self._notes:
            self._on_note(self._notes.pop(0))

    # --- reading -----------------------------------------------------------------------------

    def _load(self) -> None:
        """Read the file.

        Raises:
            RefusedNodeFile: it is left alone.
        """
        try:
            self._take_lock()
        except BlockingIOError:
            raise RefusedNodeFile(f"{self._path}: another router has it") from None
        except OSError:
            pass  # there may be no directory yet: that is tried again when there is something to write
        try:
            load(self._path, self.node, self._max_bytes, self.keeper)
        except DamagedNodeFile as error:
            self._put_aside(f"is damaged ({error})")

    def _take_lock(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        lock = os.open(lock_of(self._path), flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise
        self._lock = lock

    def _put_aside(self, why: str) -> None:
        aside = f"{self._path}.damaged"
        try:
            os.replace(self._path, aside)
        except OSError as error:
            raise RefusedNodeFile(f"{self._path}: {why}, and cannot be put aside: {error.strerror}") from None
        self.keeper.encoded.clear()
        self.keeper.size_bytes = 0
        self._note(
            "node file damaged", f"{self._path}: {why}: it is put aside as {aside}, and what it said is forgotten"
        )

    # --- writing -----------------------------------------------------------------------------

    def _write_changes(self, wake: Callable[[], None]) -> None:
        self._pass_notes()
        keeper = self.keeper
        while True:
            self._changed.wait(_RETRY if self._written != keeper.changes else None)
            self._changed.clear()
            problem = ""
            if self._written != keeper.changes:
                changes, lines = keeper.changes, list(keeper.encoded.values())
                problem = self._refusal or get_hub().threadpool.apply(self._write, (lines,))
                if not problem or self._refusal:
                    self._written = changes
                self._tell(problem, wake)
            if self._ends and (problem or self._written == keeper.changes):
                return
            gevent.sleep(_PAUSE)

    def _tell(self, problem: str, wake: Callable[[], None]) -> None:
        if problem != self.keeper.problem:
            if problem:
                self._note("node file not written", f"{problem}; it is tried again")
            else:
                self._note("node file written", f"{self._path} is written again")
            self.keeper.problem = problem
        if not self._ends and (problem or self._written == self.keeper.changes):
            self.keeper.on_kept(monotonic(), problem)
            wake()

    def _write(self, lines: list[bytes]) -> str:
        """Put the rows ``lines`` in place of those of before, in a thread; return why that could not be done."""
        begun = next_of(self._path)
        try:
            if self._lock is None:
                self._take_lock()
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            with open(os.open(begun, flags, 0o600), "wb") as file:
                file.write(content_of(self.node, lines))
                file.flush()
                os.fsync(file.fileno())
            os.replace(begun, self._path)
            folder = os.open(os.path.dirname(self._path) or ".", os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except BlockingIOError:
            return f"{self._path}: another router has it"
        except OSError as error:
            return f"{self._path}: cannot be written: {error.strerror}"
        return ""


class NodeFiles:
    """The files of a router's nodes.

    Args:
        plans: of the nodes.
        on_note: gets each event that is worth a line in the log.
    """

    def __init__(self, plans: Iterable[Plan], on_note: Callable[[LogEvent], None]) -> None:
        self._files = [NodeFile(plan.file, plan.name, plan.max_bytes, on_note) for plan in plans if plan.file]

    @property
    def keepers(self) -> dict[str, Keeper]:
        """The keepers of the nodes that have a file, by name."""
        return {each.node: each.keeper for each in self._files}

    def start(self, wake: Callable[[], None]) -> None:
        """See :meth:`NodeFile.start`."""
        for each in self._files:
            each.start(wake)

    def close(self, seconds: float) -> None:
        """See :meth:`NodeFile.close`."""
        for each in self._files:
            each.close(seconds)
