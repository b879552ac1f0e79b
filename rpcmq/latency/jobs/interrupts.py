"""SIGINT and SIGTERM while an engine works: interrupt whoever waits for it."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupts"]

#: Seconds between two attempts to interrupt.
_PAUSE_SECONDS = 0.05


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
        self._is_repeated = False

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

    @contextmanager
    def repeated(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Within the block, call ``interrupt`` in a thread from such a signal on, again and again until the block ends.

        If nothing has ended the block by an error until then, its end raises the exception of the signal.

        DuckDB does not return to Python while a query runs, so that no handler is called; it looks for signals itself,
        but loses one that comes as the query begins. An interrupt that comes before the query begins is lost as well.
        """
        if not self._before:
            yield
            return
        told, teller = socket.socketpair()
        with told, teller:
            teller.setblocking(False)
            former = signal.set_wakeup_fd(teller.fileno(), warn_on_full_buffer=False)
            if former != -1:
                # Somebody else's loop waits for signals.
                signal.set_wakeup_fd(former)
                yield
                return
            is_over = threading.Event()

            def watch() -> None:
                while received := told.recv(64):
                    if self._before.keys() & set(received):
                        while not is_over.wait(_PAUSE_SECONDS):
                            interrupt()
                        return

            watcher = threading.Thread(target=watch, name="rpcmq interrupts", daemon=True)
            watcher.start()
            self._is_repeated = True
            try:
                yield
            finally:
                self._is_repeated = False
                is_over.set()
                signal.set_wakeup_fd(-1)
                teller.shutdown(socket.SHUT_RDWR)
                watcher.join()
        if self._received:
            raise self._exception()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = number
        self.first()
        if self._is_repeated and sys.exc_info()[1] is not None:
            # That of an interrupt most likely, which is about to end the block: it is to do so undisturbed. If it is
            # another one that does not, the next interrupt, or the end of the block, raises.
            return
        raise self._exception()

    def _exception(self) -> BaseException:
        return KeyboardInterrupt() if self._received == signal.SIGINT else SystemExit(128 + self._received)
