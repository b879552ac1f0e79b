"""The contract between a process's sockets and the program around them: to wait, to be woken, to be called later.

The engines read no clock and never wait; the sockets around them do both through this contract only. gevent's hub is
its first implementation (:mod:`rpcmq.transport.gevent_shell`). ``docs/contributing/shells.md`` says how to write
another.

Everything that a shell calls is called in one thread, one call after the other, and must not wait. What such a call
raises is the shell's to print: it must not end the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

__all__ = ["Handle", "Shell", "WaitableEvent"]


class Handle(Protocol):
    """Something that a shell will call. Both methods may be called more than once."""

    def stop(self) -> object:
        """No longer call it. Touches no file descriptor: the child of a fork may do it."""

    def close(self) -> object:
        """Release what it takes. It was stopped before."""


class WaitableEvent(Protocol):
    """A flag that callers wait for."""

    def is_set(self) -> bool:
        """Whether the flag is set."""

    def set(self) -> object:
        """Set the flag, and wake all who wait for it."""

    def clear(self) -> object:
        """Take the flag back."""

    def wait(self, timeout: float | None = None) -> object:
        """Wait until the flag is set, or ``timeout`` (seconds) is over."""


class Shell(Protocol):
    """The loop of one thread."""

    # --- to be called later ------------------------------------------------------------------

    def call_soon(self, function: Callable[..., object], *args: object) -> Handle:
        """Call ``function`` once this turn of the loop is over. From the loop's own thread only."""

    def call_later(self, seconds: float, function: Callable[[], object]) -> Handle:
        """Call ``function`` once, after ``seconds``."""

    def call_every(self, seconds: float, function: Callable[[], object]) -> Handle:
        """Call ``function`` again and again, every ``seconds``."""

    def call_when_readable(self, fd: int, function: Callable[[], object]) -> Handle:
        """Call ``function`` whenever the file descriptor ``fd`` becomes readable.

        libzmq's descriptors are edge-triggered: a callback that leaves something unread is not called for it again. A
        level-triggered shell may call once too often; it must never call too seldom.
        """

    def check_name(self, url: str, on_failure: Callable[[str], object]) -> Handle:
        """Look up the host name in ``url`` beside the loop; call ``on_failure`` with a text if it does not resolve."""

    # --- to wait -----------------------------------------------------------------------------

    @property
    def is_current(self) -> bool:
        """Whether the current OS thread is the loop's."""

    @property
    def can_wait(self) -> bool:
        """Whether the caller may wait; the loop itself must not."""

    @property
    def may_starve(self) -> bool:
        """Whether the caller may keep the loop from its next turn for as long as it likes."""

    @property
    def shares_interpreter(self) -> bool:
        """Whether other OS threads compute beside the loop's: then the interpreter is released no more than needed."""

    def event(self) -> WaitableEvent:
        """Return a flag that is not set."""

    def sleep(self, seconds: float) -> None:
        """Wait; the loop runs meanwhile."""

    def run_together(self, functions: Sequence[Callable[[], object]]) -> None:
        """Call all of ``functions``, each of which may wait, beside one another; return when all have ended."""

    # --- to be told --------------------------------------------------------------------------

    def print_exception(self, context: object, error: BaseException) -> None:
        """Print ``error``, which ``context`` has survived."""
