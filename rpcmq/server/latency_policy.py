"""The latency policy of a router: the file of ``hedge.policy_file``, read again when it changes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from time import perf_counter, time
from typing import NamedTuple, TypeVar

import gevent
from gevent import get_hub

from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.roundrobin.hedging import Hedging
from rpcmq.log_format.latency_policy import LARGEST_BYTES, PolicyRefused, policy_in_steps, too_large

__all__ = ["LatencyPolicy"]

#: Interval between looks at the file (seconds).
_LOOK = 1.0
#: A large file is parsed for so long at a time, and then others have their turn for so long (seconds).
_TURN, _REST = 0.001, 0.002

_T = TypeVar("_T")
_Key = tuple[str, str, str]
_Times = tuple[float, float, float]


class _Seen(NamedTuple):
    """A file that was read: which one, its bytes, and when it was changed (nanoseconds)."""

    device: int
    inode: int
    size: int
    changed: int


class LatencyPolicy:
    """Keeps the router's knowledge of how long methods usually take up to date with a file.

    A file that is refused, or is gone, leaves the former policy in force, and is a line in the log, once. Methods whose
    time is over are forgotten meanwhile. The file is read by a thread, and parsed in turns of a millisecond.

    Args:
        path: of the file; empty: there is none.
        hedging: is given what it says.
        on_note: gets each event that is worth a line in the log.
    """

    def __init__(self, path: str, hedging: Hedging, on_note: Callable[[LogEvent], None]) -> None:
        self._path = path
        self._hedging = hedging
        self._on_note = on_note
        #: The file as it was when it was read last; None: not yet.
        self._seen: _Seen | None = None
        self._problem = ""
        #: The usual times that ``hedging`` has, and a heap: until when each is known.
        self._usual: dict[_Key, _Times] = {}
        self._valid_until: list[tuple[float, _Key]] = []
        self._looking = gevent.spawn(self._look_periodically)

    def use(self, path: str) -> None:
        """Use the file ``path`` from now on; empty: none."""
        if path != self._path:
            self._path, self._seen, self._problem = path, None, ""
            if not path:
                self._put({}, [])

    def close(self) -> None:
        """Look no more."""
        self._looking.kill()

    def _look_periodically(self) -> None:
        while True:
            try:
                self._look()
            except Exception as error:
                # Whatever fails: a later file is to be read.
                self._note_problem(f"{self._path}: {type(error).__name__}: {error}")
            gevent.sleep(_LOOK)

    def _look(self) -> None:
        path = self._path
        if path:
            try:
                # A slow disk is no reason to stand still.
                found = get_hub().threadpool.apply(_read_if_changed, (path, self._seen))
                if isinstance(found, OSError):
                    raise found
                if found is not None and path == self._path:
                    # Before it is parsed: whatever comes of that, the same file is not parsed again.
                    self._seen, data = found
                    if self._seen.size > LARGEST_BYTES:
                        raise PolicyRefused(f"{path}: {too_large(self._seen.size)}")
                    self._take(path, data)
            except OSError as error:
                self._note_problem(f"{path}: {error.strerror}")
            except PolicyRefused as error:
                if path == self._path:
                    self._note_problem(str(error))
        self._forget_old()

    def _take(self, path: str, data: bytes) -> None:
        usual: dict[_Key, _Times] = {}
        valid_until: list[tuple[float, _Key]] = []
        for entry in _in_turns(policy_in_steps(data, path, time())):
            if entry is not None:
                key = entry.exchange, entry.topic, entry.method
                usual[key] = entry.us[0] / 1e6, entry.us[1] / 1e6, entry.us[2] / 1e6
                heappush(valid_until, (entry.valid_until, key))
        if path != self._path:
            return  # Another one was set meanwhile.
        self._problem = ""
        self._put(usual, valid_until)
        text = f"latency policy {path}: the usual times of {len(usual)} methods"
        self._on_note(LogEvent("latency policy", text, "", {"methods": len(usual)}))

    def _put(self, usual: dict[_Key, _Times], valid_until: list[tuple[float, _Key]]) -> None:
        self._usual = self._hedging.usual = usual
        self._valid_until = valid_until

    def _note_problem(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            text = f"latency policy {problem}; what was known before stays"
            self._on_note(LogEvent("latency policy refused", text, ""))

    def _forget_old(self) -> None:
        now = time()
        for _ in _in_turns(iter(lambda: bool(self._valid_until) and self._valid_until[0][0] < now, False)):
            del self._usual[heappop(self._valid_until)[1]]


def _in_turns(steps: Iterable[_T]) -> Iterator[_T]:
    """Pass ``steps`` on, with rests for everybody else."""
    until = perf_counter() + _TURN
    for each in steps:
        yield each
        if perf_counter() >= until:
            gevent.sleep(_REST)
            until = perf_counter() + _TURN


def _read_if_changed(path: str, seen: _Seen | None) -> tuple[_Seen, bytes] | OSError | None:
    """The state of the file and its content, or why it cannot be read; None: it is as it was ``seen``.

    For gevent's pool of threads, which prints a traceback of whatever is raised there.
    """
    try:
        return _read(path, seen)
    except OSError as error:
        return error


def _read(path: str, seen: _Seen | None) -> tuple[_Seen, bytes] | None:
    """The state of the file and its content, without that of one that is too large; None: it is as it was ``seen``.

    Raises:
        OSError: it cannot be read.
    """
    # A named pipe must not be waited for.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no regular file")
        found = _Seen(status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
        if found == seen:
            return None
        with open(file, "rb", closefd=False) as opened:
            # It may grow meanwhile.
            return found, opened.read(LARGEST_BYTES + 1) if found.size <= LARGEST_BYTES else b""
    finally:
        os.close(file)
