"""Threads that do for the main thread what a signal must not leave half done.

Python calls the handlers of signals in the main thread, between any two steps, and what they raise ends what is done
there. So it has another thread, a deputy, make a connection or close one, and only waits for that.
"""

from __future__ import annotations

import os
from _queue import SimpleQueue
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from rpcmq.transport.current_hub import new_lock
from rpcmq.transport.originals import program_is_patched, start_new_thread
from rpcmq.transport.thread_signals import hold_back_all, is_main_thread, no_longer_hold_back

__all__ = ["Errand", "is_to_be_deputed"]

T = TypeVar("T")


def is_to_be_deputed() -> bool:
    """Return whether handlers of signals raise here, and a deputy can do instead what must not be interrupted."""
    return is_main_thread() and not program_is_patched()


class Errand(Generic[T]):
    """One call of ``function`` in a deputy, in the context of the main thread, which waits for it.

    Args:
        function: is called in the deputy.
        withdraw: called if the main thread does not wait any more, while ``function`` may be going on. No handler of a
            signal raises in it: it is a function of C.
        await_end: called after ``withdraw``; waits, but not for long, until nothing of it goes on.
        on_message: is called in the main thread with what :meth:`tell` was given; an exception ends the wait.
    """

    __slots__ = (
        "_await_end", "_context", "_error", "_function", "_has_ended", "_messages", "_news", "_on_message", "_value",
        "_withdraw",
    )  # fmt: skip

    def __init__(
        self,
        function: Callable[[], T],
        withdraw: Callable[[], object] | None = None,
        await_end: Callable[[], object] | None = None,
        on_message: Callable[[Any], object] | None = None,
    ) -> None:
        self._function = function
        self._withdraw = withdraw
        self._await_end = await_end
        self._on_message = on_message
        self._context = copy_context()
        self._messages: deque[Any] = deque()
        # Held while there is nothing new for the main thread.
        self._news = new_lock()
        self._news.acquire()
        self._value: Any = None
        self._error: BaseException | None = None
        self._has_ended = False

    # --- in the main thread ------------------------------------------------------------------

    def run(self) -> T:
        """Have a deputy call the function; return what it returns, or raise what it raises."""
        try:
            _begin(self)
            while True:
                self._news.acquire()
                has_ended = self._has_ended
                self._hand_over()
                if has_ended:
                    break
        except BaseException:
            # First of all, and in one step: another signal can come.
            if self._withdraw is not None:
                self._withdraw()
                if self._await_end is not None:
                    self._await_end()
            raise
        # No call from here on, after which a handler could raise: the result would be lost.
        if self._error is None:
            return self._value  # type: ignore[no-any-return]
        try:
            raise self._error
        finally:
            self._error = None

    def _hand_over(self) -> None:
        while self._messages:
            message = self._messages.popleft()
            if self._on_message is not None:
                self._on_message(message)

    # --- in the deputy -----------------------------------------------------------------------

    def tell(self, message: Any) -> None:
        """Hand ``message`` to the main thread."""
        self._messages.append(message)
        self._wake()

    def do(self) -> None:
        """Call the function."""
        try:
            self._value = self._context.run(self._function)
        except BaseException as error:
            self._error = error
        self._has_ended = True
        self._wake()

    def _wake(self) -> None:
        if self._news.locked():
            self._news.release()


_errands: SimpleQueue[Errand[Any]] = SimpleQueue()
#: An item for each deputy that waits for an errand, and that is not about to get one.
_idle: deque[None] = deque()


def _begin(errand: Errand[Any]) -> None:
    try:
        _idle.pop()
    except IndexError:
        try:
            start_new_thread(_live, ())
        except RuntimeError:  # the interpreter is about to end, or the system has no thread left
            errand.do()
            return
    # A signal that comes before this leaves a deputy more waiting than is known: it takes a later errand.
    _errands.put(errand)


def _live() -> None:
    hold_back_all()
    while True:
        _errands.get().do()
        if _idle:
            break
        _idle.append(None)
    no_longer_hold_back()


def _after_fork_in_child() -> None:
    global _errands
    _errands = SimpleQueue()
    _idle.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
