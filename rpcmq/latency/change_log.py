"""An append-only journal with atomic changes: one JSON object a line, one writing process.

What a crash tore off at the end is cut when the journal is opened for writing again, and readers pass over it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from rpcmq.errors import RpcError
from rpcmq.latency.files import open_log_file, sync, write_whole
from rpcmq.log_format import LOG_MODE

__all__ = ["ChangeLog", "JournalState", "LogEvent", "replayed", "silent"]

#: Told what is worth a line in a log: level, event, text, fields.
LogEvent = Callable[[int, str, str, dict[str, Any]], object]


@dataclass(slots=True)
class JournalState(ABC):
    """The sum of a journal's lines. A subclass has a method ``_EVENT`` for each of its events.

    Attributes:
        lines: of the journal.
    """

    #: Names of the changes.
    EVENTS: ClassVar[tuple[str, ...]]

    lines: int = 0

    def apply(self, line: bytes) -> None:
        """Apply one change.

        Raises:
            ValueError, TypeError, KeyError, AttributeError: it is not a change.
        """
        change = json.loads(line)
        event = change.pop("event")
        if event not in self.EVENTS:
            raise ValueError(f"unknown event {event!r}")
        getattr(self, f"_{event}")(**change)
        self.lines += 1

    @abstractmethod
    def totals(self) -> dict[str, Any]:
        """Return all of it, as one line can carry it."""


def silent(level: int, event: str, text: str, fields: dict[str, Any]) -> None:
    """Log nothing."""


State = TypeVar("State", bound=JournalState)


def replayed(path: Path, state: State, damaged: type[RpcError]) -> State:
    """Apply the journal, if there is one, to ``state``.

    Raises:
        damaged: a line before the last one is no change.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = b""
    return _replayed(path, content, state, damaged)


def _replayed(path: Path, content: bytes, state: State, damaged: type[RpcError]) -> State:
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
        try:
            state.apply(line)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise damaged(f"{path}, line {number}: {type(error).__name__}: {error}") from error
    return state


class ChangeLog(Generic[State]):
    """A journal, open for writing.

    Attributes:
        state: what its lines add up to.

    Args:
        path: the journal.
        lock: a file beside it that is locked for as long as it is open. The journal itself is replaced now and then.
        state: what no lines add up to.
        damaged: raised if a line before the last one is no change.
        in_use: raised if another process has it open.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, lock: Path, state: State, damaged: type[RpcError], in_use: RpcError) -> None:
        self._path = path
        self._lock = open_log_file(lock, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._fd, self.state = self._open(state, damaged)
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, BlockingIOError):
                raise in_use from None
            raise

    def _open(self, state: State, damaged: type[RpcError]) -> tuple[int, State]:
        fd = open_log_file(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            content = self._path.read_bytes()
            state = _replayed(self._path, content, state, damaged)
            os.ftruncate(fd, content.rfind(b"\n") + 1)
            os.fsync(fd)
            sync(self._path.parent)
        except BaseException:
            os.close(fd)
            raise
        return fd, state

    def append(self, event: str, **change: Any) -> None:
        """Make a change, for good once this returns.

        Raises:
            OSError: it was not made.
        """
        line = _line(event, change)
        size = os.fstat(self._fd).st_size
        try:
            if os.write(self._fd, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
            os.fsync(self._fd)
        except OSError:
            os.ftruncate(self._fd, size)
            raise
        self.state.apply(line)

    def rewrite(self, state: State) -> None:
        """Replace all lines by one with the totals of ``state``.

        Raises:
            OSError: the journal is as it was.
        """
        write_whole(self._path, _line("totals", {"state": state.totals()}), LOG_MODE)
        state.lines = 1
        self.state = state
        os.close(self._fd)
        self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND)

    def close(self) -> None:
        """Let another process have it."""
        os.close(self._fd)
        os.close(self._lock)


def _line(event: str, change: dict[str, Any]) -> bytes:
    return json.dumps({"event": event} | change, separators=(",", ":")).encode() + b"\n"
