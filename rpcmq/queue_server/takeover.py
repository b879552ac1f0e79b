"""The items of owners that are gone, in a database that several share: a queue server runs another one for each.

An owner is gone when nobody has had its lock for some time, while the database was there. Its heir is a queue server of
its own, under the owner's name and over this router. So whatever happens to the items of one owner disturbs those of no
other. It ends when the owner is back and waits for its items, or when it has none.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from random import random
from time import monotonic

import gevent
from gevent import subprocess
from gevent.event import AsyncResult

from rpcmq.queue_server.store_process import StoreProcess
from rpcmq.server.log import log_event
from rpcmq.store.shared import Others

__all__ = ["Heirs", "heir_command", "until_over"]

log = logging.getLogger("rpcmq.queue")

#: Interval of looks (seconds), and that after which an earlier one says nothing any more.
_LOOK, _OUTDATED = 1.0, 5.0
#: Heirs of one queue server: others, or a later look, take over more.
_MOST = 8
#: An heir has so many looks without an item before it ends.
_EMPTY_LOOKS = 30
#: Seconds that heirs get to end.
_LAST = 10.0


class Heirs:
    """The heirs that this queue server runs.

    Args:
        command: the program and the arguments of an heir, but for the owner.
        inherited: descriptors that it needs.
        seconds: for which an owner must be gone. Each queue server waits a little more, so that one is the first.
    """

    def __init__(self, store: StoreProcess, command: Sequence[str], inherited: Sequence[int], seconds: float) -> None:
        self._store = store
        self._command, self._inherited = command, inherited
        self._seconds = seconds * (1 + random() / 4)
        #: The time at which each owner was first seen to be gone.
        self._since: dict[str, float] = {}
        self._looked = monotonic()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._looking = gevent.spawn(self._look)

    def _look(self) -> None:
        while True:
            gevent.sleep(_LOOK)
            for owner, process in list(self._running.items()):
                if process.poll() is not None:
                    del self._running[owner]
            if not self._store.waits_for:
                self._store.others(self._found)

    def _found(self, others: Others) -> None:
        now = monotonic()
        if now - self._looked > _OUTDATED:
            # A database that was started again has freed the locks of all, who come back.
            self._since.clear()
        self._looked = now
        self._since = {owner: self._since.get(owner, now) for owner in others.gone}
        for owner, since in self._since.items():
            if now - since >= self._seconds and owner not in self._running and len(self._running) < _MOST:
                self._run(owner)

    def _run(self, owner: str) -> None:
        log_event(log, logging.WARNING, "queue taken over", f"{owner} is gone: its items are taken over", owner=owner)
        command = [*self._command, "--owner", owner, "--parent", str(os.getpid())]
        try:
            self._running[owner] = subprocess.Popen(command, pass_fds=self._inherited, stdin=subprocess.DEVNULL)
        except OSError as error:
            log_event(log, logging.ERROR, "queue not taken over", f"{owner}: {error}", owner=owner)

    def stop(self, is_in_order: bool) -> None:
        """Take over nothing more, and end the heirs."""
        self._looking.kill()
        for process in self._running.values():
            if process.poll() is None:
                (process.terminate if is_in_order else process.kill)()
        deadline = monotonic() + _LAST
        for process in self._running.values():
            try:
                process.wait(max(0.1, deadline - monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()


def until_over(store: StoreProcess, has_work: Callable[[], bool]) -> str:
    """Wait until an heir has nothing more to do; return the reason.

    Args:
        has_work: whether it has items that have not ended, or puts periodic ones.
    """
    empty = 0
    while True:
        gevent.sleep(_LOOK)
        others: AsyncResult[Others] = AsyncResult()
        store.others(others.set)
        seen = others.get()
        assert seen is not None
        if seen.is_wanted:
            return "the owner is back"
        empty = 0 if has_work() else empty + 1
        if empty >= _EMPTY_LOOKS:
            return "nothing is left"


def heir_command(arguments: Sequence[str]) -> list[str]:
    """The command of an heir with these arguments."""
    return [sys.executable, "-m", "rpcmq.queue_server", *arguments]
