"""The contract between a process's sockets and verbs and the program around them: to wait, to be woken, to be called.

The engines read no clock and never wait; the sockets and the client around them do both through this contract only.
gevent's hub is its first implementation (:mod:`rpcmq.transport.gevent_shell`). ``docs/contributing/shells.md`` says how
to write another.

Everything that a shell calls is called in one thread, one call after the other, and must not wait. What such a call
raises is the shell's to print: it must not end the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

__all__ = ["ClientShell", "Handle", "Shell", "WaitableEvent", "Workers"]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Handle(Protocol):
    """Something that a shell will call. Both methods may be called more than once."""

    def stop(self) -> object:
        """No longer call it. Touches no file descriptor: the child of a fork may do it."""

    def close(self) -> object:
        """Release what it takes. It was stopped before."""


class WaitableEvent(Protocol):
    """A flag that callers wait for."""

    def is_set(self) -> bool:
        """Return whether the flag is set."""

    def set(self) -> object:
        """Set the flag, and wake all who wait for it."""

    def clear(self) -> object:
        """Take the flag back."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set, or ``timeout`` (seconds) is over; whether it is set."""


class Workers(Protocol[T_contra]):
    """Runs a handler for one item after the other, or beside one another."""

    def start(self, item: T_contra) -> None:
        """Run the handler for ``item`` beside the loop, in a context of its own; it may wait. From the loop."""

    def close(self) -> None:
        """Release those that wait for an item."""


class Shell(Protocol):
    """The loop of one thread, as the sockets in it need it."""

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
        """Whether the caller may use what lives in the loop: in most shells, whether this is the loop's thread."""

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

    # --- the ends of a process ---------------------------------------------------------------

    def run_at_exit(self, function: Callable[[], object]) -> bool:
        """Run ``function``, which may wait, in the loop as the program ends.

        Returns:
            False: it could not be, because the loop is another thread's, or did not run it in time.
        """

    def after_fork_in_child(self) -> None:
        """Make the thread that has forked fit for the child. Called for one of all inherited shells of this class."""

    @property
    def survives_fork(self) -> bool:
        """In the child of a fork: whether the loop's thread is the one that has forked."""


class ClientShell(Shell, Protocol):
    """A shell in which the verbs of a client wait, and the handlers of a service run.

    Attributes:
        cannot_wait: what to say to the loop itself where it calls what would have to wait.
        outside: calls a function of the application with its arguments where it may block; None: it may where it is,
            because it waits in the loop.
    """

    cannot_wait: str
    outside: Callable[..., Any] | None

    def call_from_any_thread(self, function: Callable[..., object], *args: object) -> None:
        """Call ``function`` in the loop soon. From any thread, also by the garbage collector."""

    @property
    def may_wait(self) -> bool:
        """:attr:`is_current` and :attr:`can_wait`: whether a verb can be used as it is."""

    def parking(self) -> tuple[Callable[[], object], Callable[[], object]]:
        """Return two functions for the caller's waits: the first resumes it, the second waits for that.

        The first is to be called in the loop. Who was resumed looks itself whether there is what it waits for.
        """

    def lock(self) -> AbstractContextManager[Any]:
        """Return a lock that is held across waits."""

    def spawn(self, function: Callable[..., object], *args: object) -> Callable[[], object] | None:
        """Call ``function``, which may wait, beside the caller; what it raises is printed.

        Returns:
            A function that ends a wait of it, which then raises in there; None: this shell cannot.
        """

    def workers(self, handle: Callable[[T], None], most: int) -> Workers[T]:
        """Return what runs ``handle``, which may wait, for at most ``most`` items at once."""
