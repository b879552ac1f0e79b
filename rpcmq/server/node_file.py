"""The file of a plugged-in node: its rows, written whole by a thread, and put in place of the file of before.

Its first line is ``rpcmq-node-file``, the version of the format, the name of the node, and a digest of that and of the
rows; then comes one line for each row. Whoever reads it sees the rows of one moment. A later version of the format
has another number, and is left alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable
from hashlib import blake2b
from time import monotonic

import gevent
from gevent import get_hub
from gevent.event import Event

from rpcmq.core.router.actions import LogEvent
from rpcmq.nodes.keeper import Keeper
from rpcmq.nodes.plan import Plan

__all__ = ["NodeFile", "NodeFiles"]

_MAGIC, _VERSION = b"rpcmq-node-file", 1
#: Seconds between two writes at least, and after one that has failed.
_PAUSE, _RETRY = 0.05, 5.0
#: Bytes of the file beside its rows.
_MAX_HEADER = 1_000


class _Refused(Exception):
    """The file is left as it is, and nothing is kept in this life."""


class _Damaged(Exception):
    """The file makes no sense."""


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
        self._problem = self._refusal = ""
        self._writer: gevent.Greenlet[[Callable[[], None]], None] | None = None
        self._ends = False
        try:
            self._load()
        except _Refused as error:
            self._refusal = self._problem = str(error)
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
            _Refused: it is left alone.
        """
        try:
            self._take_lock()
        except BlockingIOError:
            raise _Refused(f"{self._path}: another router has it") from None
        except OSError:
            pass  # there may be no directory yet: that is tried again when there is something to write
        try:
            data = self._read()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise _Refused(f"{self._path}: {error.strerror}") from None
        try:
            self.keeper.restore(self._rows_of(data))
        except (_Damaged, RecursionError, ValueError) as error:
            self._put_aside(f"is damaged ({error})")

    def _take_lock(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        lock = os.open(f"{self._path}.lock", flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise
        self._lock = lock

    def _read(self) -> bytes:
        # A named pipe must not be waited for.
        file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with open(file, "rb") as opened:
            status, most = os.fstat(file), self._max_bytes + _MAX_HEADER
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "is no regular file")
            if status.st_size > 2 * most:  # beside the rows, their ends
                raise OSError(errno.EFBIG, f"is of {status.st_size} bytes; max_bytes = {self._max_bytes} may be")
            return opened.read()

    def _rows_of(self, data: bytes) -> list[bytes]:
        """The lines of the rows.

        Raises:
            _Damaged: it is no such file, or not all of it.
            _Refused: it is another node's, or of a later version.
        """
        header, _, body = data.partition(b"\n")
        words = header.split(b" ")
        if words[0] != _MAGIC or len(words) < 2 or not words[1].isdigit():
            raise _Damaged("it does not begin as such a file does")
        if int(words[1]) != _VERSION:
            text = f"is of version {int(words[1])}, and this rpcmq knows {_VERSION}"
            raise _Refused(f"{self._path}: {text}: use the one that has written it, or move it away")
        if len(words) != 4 or words[3] != _digest(words[2], body):
            raise _Damaged("its digest is another one")
        if words[2] != self.node.encode():
            raise _Refused(f"{self._path}: is of the node {words[2].decode(errors='replace')}")
        return body.splitlines()

    def _put_aside(self, why: str) -> None:
        aside = f"{self._path}.damaged"
        try:
            os.replace(self._path, aside)
        except OSError as error:
            raise _Refused(f"{self._path}: {why}, and cannot be put aside: {error.strerror}") from None
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
        if problem != self._problem:
            if problem:
                self._note("node file not written", f"{problem}; it is tried again")
            else:
                self._note("node file written", f"{self._path} is written again")
            self._problem = problem
        if not self._ends and (problem or self._written == self.keeper.changes):
            self.keeper.on_kept(monotonic(), problem)
            wake()

    def _write(self, lines: list[bytes]) -> str:
        """Put the rows ``lines`` in place of those of before, in a thread; return why that could not be done."""
        begun = f"{self._path}.new"
        body = b"".join(line + b"\n" for line in lines)
        node = self.node.encode()
        header = b" ".join((_MAGIC, b"%d" % _VERSION, node, _digest(node, body)))
        try:
            if self._lock is None:
                self._take_lock()
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            with open(os.open(begun, flags, 0o600), "wb") as file:
                file.write(header + b"\n" + body)
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


def _digest(node: bytes, body: bytes) -> bytes:
    return blake2b(node + b"\n" + body, digest_size=16).hexdigest().encode()
