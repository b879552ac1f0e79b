"""The latency policy of a router: the file of ``hedge.policy_file``, read again when it changes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from time import time

import gevent
from gevent import get_hub

from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.roundrobin.hedging import Hedging
from rpcmq.log_format.latency_policy import LARGEST_BYTES, Policy, PolicyRefused, parse_policy

__all__ = ["LatencyPolicy"]

#: Interval between looks at the file (seconds).
_LOOK = 1.0


class LatencyPolicy:
    """Keeps the router's knowledge of how long methods usually take up to date with a file.

    A file that is refused, or is gone, leaves the former policy in force, and is a line in the log, once. Methods whose
    time is over are forgotten meanwhile.

    Args:
        path: of the file; empty: there is none.
        hedging: is given what it says.
        on_note: gets each event that is worth a line in the log.
    """

    def __init__(self, path: str, hedging: Hedging, on_note: Callable[[LogEvent], None]) -> None:
        self._path = path
        self._hedging = hedging
        self._on_note = on_note
        #: The file as it was when it was read last: device, inode, size, and time of change; None: not yet.
        self._seen: tuple[int, ...] | None = None
        self._problem = ""
        self._policy: Policy | None = None
        self._looking = gevent.spawn(self._look_periodically)

    def use(self, path: str) -> None:
        """Use the file ``path`` from now on; empty: none."""
        if path != self._path:
            self._path, self._seen, self._problem = path, None, ""
            if not path:
                self._policy, self._hedging.usual = None, {}

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
                # A slow disk is no reason to stand still; to parse a large file holds others up all the same.
                found = get_hub().threadpool.apply(_read_if_changed, (path, self._seen))
            except (OSError, PolicyRefused) as error:
                self._note_problem(str(error) if isinstance(error, PolicyRefused) else f"{path}: {error.strerror}")
            else:
                if found is not None and path == self._path:
                    self._take(*found)
        self._forget_old()

    def _take(self, seen: tuple[int, ...], policy: Policy | PolicyRefused) -> None:
        self._seen = seen
        if isinstance(policy, PolicyRefused):
            self._note_problem(str(policy))
            return
        self._policy, self._problem = policy, ""
        self._tell(policy)
        text = f"{self._path}: the usual times of {len(policy.entries)} methods"
        self._on_note(LogEvent("latency policy", text, "", {"methods": len(policy.entries)}))

    def _note_problem(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._on_note(LogEvent("latency policy refused", f"{problem}; what was known before stays", ""))

    def _forget_old(self) -> None:
        policy, now = self._policy, time()
        if policy is not None and any(entry.valid_until < now for entry in policy.entries.values()):
            self._policy = policy.at(now)
            self._tell(self._policy)

    def _tell(self, policy: Policy) -> None:
        self._hedging.usual = {
            key: (entry.us[0] / 1e6, entry.us[1] / 1e6, entry.us[2] / 1e6) for key, entry in policy.entries.items()
        }


def _read_if_changed(path: str, seen: tuple[int, ...] | None) -> tuple[tuple[int, ...], Policy | PolicyRefused] | None:
    """The policy in ``path`` and the state of the file, or why it is refused; None: it is as it was ``seen``.

    Raises:
        OSError: it cannot be read.
    """
    # A named pipe must not be waited for.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(opened.fileno())
        state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if state == seen:
            return None
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "is no regular file")
        data = opened.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        return state, PolicyRefused(f"{path}: more than {LARGEST_BYTES} bytes, which no setting changes")
    try:
        return state, parse_policy(data, path, time())
    except PolicyRefused as error:
        return state, error
