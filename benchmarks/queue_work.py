"""The item that every queue is given, and how a worker tells the producer that it has worked one.

A worker writes a byte for each item into a pipe. So a producer can keep so many items in the queue and at work, and
knows how long each was there, whatever the queue tells it.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter

from benchmarks.workload import CONTEXT, Meter

__all__ = [
    "ARGUMENTS",
    "ITEM",
    "QUEUE",
    "Outstanding",
    "Worked",
    "open_worked",
    "run_in_threads",
    "take_worked",
    "wait_worked",
]

QUEUE = "billing"
#: 300 bytes or so in most encodings.
ARGUMENTS = {"invoice": 17, "account": "acct-7f3c9a1e", "amount": "1299.00", "currency": "EUR", "note": "n" * 60}
ITEM = {"ctx": CONTEXT, "msg": {"method": "charge", "args": ARGUMENTS}}
_CHUNK = 1 << 16
#: Nothing was worked for so long (seconds).
_PATIENCE = 20.0


class Worked:
    """The worker's end of the pipe ``path``."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR)

    def one(self) -> None:
        """An item was worked."""
        os.write(self._file, b"+")


def open_worked(path: str) -> int:
    """The producer's end of the pipe ``path``: a file that does not block."""
    return os.open(path, os.O_RDWR | os.O_NONBLOCK)


def take_worked(file: int) -> int:
    """The number of items that were worked since this was last asked."""
    try:
        return len(os.read(file, _CHUNK))
    except BlockingIOError:
        return 0


def wait_worked(file: int, seconds: float) -> int:
    """The same, once there is one, or ``seconds`` are over."""
    readable, _, _ = select.select([file], [], [], seconds)
    return take_worked(file) if readable else 0


class Outstanding:
    """The items that are under way: each is there until it was confirmed and, if ``is_worked``, worked as well.

    Items end in the order in which they were put, as far as their times are concerned.
    """

    def __init__(self, meter: Meter, is_worked: bool) -> None:
        self._meter = meter
        self._is_worked = is_worked
        self._times: deque[float] = deque()
        self._put = self._ended = self._confirmed = self._worked = 0

    def __len__(self) -> int:
        return self._put - self._ended

    def put(self) -> None:
        """An item is being put."""
        self._put += 1
        self._times.append(perf_counter())

    def confirm(self, count: int) -> bool:
        """The next ``count`` items are confirmed; return whether to go on."""
        self._confirmed += count
        return self._end()

    def work(self, count: int) -> bool:
        """The next ``count`` items are worked; return whether to go on."""
        self._worked += count
        return self._end()

    def _end(self) -> bool:
        now = perf_counter()
        ended = min(self._confirmed, self._worked) if self._is_worked else self._confirmed
        while self._ended < ended:
            self._ended += 1
            self._meter.count(self._times.popleft(), now)
        return now < self._meter.end


def run_in_threads(put: Callable[[], object], width: int, meter: Meter, worked: int | None) -> None:
    """Threads call ``put``, which returns once its item is confirmed, with ``width`` items under way.

    Args:
        worked: the pipe, if an item is under way until it was worked.

    Raises:
        RuntimeError: nothing was worked for a long time.
    """
    putters = _Putters(put, width, Outstanding(meter, worked is not None))
    threads = [threading.Thread(target=putters.run) for _ in range(width)]
    for thread in threads:
        thread.start()
    last = perf_counter()
    while worked is not None and putters.is_busy:
        count = wait_worked(worked, 0.05)
        if count:
            last = perf_counter()
            putters.end(worked=count)
        elif perf_counter() - last > _PATIENCE:
            putters.failures.append(RuntimeError(f"no item was worked for {_PATIENCE:g} s"))
            break
    for thread in threads:
        thread.join()
    if putters.failures:
        raise putters.failures[0]


class _Putters:
    """Threads that put while there is room.

    Attributes:
        failures: of puts: they end all.
    """

    def __init__(self, put: Callable[[], object], width: int, outstanding: Outstanding) -> None:
        self._put = put
        self._outstanding = outstanding
        self._lock, self._room = threading.Lock(), threading.Semaphore(width)
        self._goes_on = True
        self.failures: list[Exception] = []

    @property
    def is_busy(self) -> bool:
        return not self.failures and (self._goes_on or len(self._outstanding) > 0)

    def run(self) -> None:
        try:
            while self._goes_on and not self.failures:
                if not self._room.acquire(timeout=0.1):
                    continue
                with self._lock:
                    self._outstanding.put()
                self._put()
                self.end(confirmed=1)
        except Exception as error:
            self.failures.append(error)

    def end(self, confirmed: int = 0, worked: int = 0) -> None:
        with self._lock:
            before = len(self._outstanding)
            self._outstanding.confirm(confirmed)
            self._goes_on = self._outstanding.work(worked)
            ended = before - len(self._outstanding)
        if ended:
            self._room.release(ended)
