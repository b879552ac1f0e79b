"""SIGINT and SIGTERM while an engine works: interrupt whoever waits for it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupts"]


class Interrupts:
    """Within its ``with`` block SIGINT and SIGTERM end that: with KeyboardInterrupt, and with SystemExit.

    pyspark, interrupted while it waits for an answer, asks its Java the next thing at once, and would wait for the
    first answer all the same. Signals that somebody else has taken are left to that one.

    Attributes:
        first: called when a signal comes, before the exception.
    """

    def __init__(self) -> None:
        self.first: Callable[[], None] = lambda: None
        self._before: dict[int, object] = {}
        self._received = 0

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
                if signal.getsignal(number) is usual:
                    self._before[number] = usual
                    signal.signal(number, self._receive)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        for number, usual in self._before.items():
            signal.signal(number, usual)  # type: ignore[arg-type]
        if self._received and error is not None:
            # In place of whatever pyspark made of it.
            raise self._exception() from None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Within the block, pyspark may replace the SIGINT handler; restore it afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handler = signal.getsignal(signal.SIGINT)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = number
        self.first()
        raise self._exception()

    def _exception(self) -> BaseException:
        return KeyboardInterrupt() if self._received == signal.SIGINT else SystemExit(128 + self._received)
