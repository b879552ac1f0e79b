"""The home of a client: the loop that its sockets and engines belong to, and how other threads get there.

In gevent a client lives in a hub (:mod:`rpcmq.transport.gevent_home`), elsewhere in the loop of a plain thread
(:mod:`rpcmq.transport.thread_home`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from rpcmq.transport.shell import ClientShell

__all__ = ["Home", "Housed", "at_home", "at_home_here", "run_at_home", "run_at_home_here"]

T = TypeVar("T")
P = ParamSpec("P")


class Home(Protocol):
    """The loop that owns a client, as seen from all threads.

    Attributes:
        shell: that loop, for whoever is in it.
    """

    shell: ClientShell

    @property
    def alive(self) -> bool:
        """Whether the loop's thread has not ended."""

    @property
    def usable(self) -> bool:
        """Whether a client that lives here can be used still, from this thread."""

    def when_the_thread_ends(self, function: Callable[[], object]) -> Callable[[], object]:
        """Register ``function`` to be called when the loop's thread ends before the process. It must not wait.

        Returns:
            A function that takes that back.
        """

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Run ``function`` here soon; it may wait. From any thread."""

    def run(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Run ``function`` here and wait for it; from any thread. If the wait is interrupted, it is, too.

        Where the engines are used by several threads, no handler of a signal raises in it.

        Returns:
            What it returns.

        Raises:
            UsageError: the loop does not run any more, or this is the loop itself, which cannot wait.
            BaseException: what it raises.
        """

    def run_or_undo(self, undo: Callable[[T], object], function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Do as :meth:`run`, and call ``undo`` with the result if the caller was interrupted and does not get it."""

    def run_here(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Do as :meth:`run`, in the caller's thread if that may use the engines.

        Handlers of signals may raise in ``function``: between any two steps, so it leaves the engines whole.
        """

    def end(self, function: Callable[..., T], *args: Any) -> T:
        """Run ``function``, which ends something that lives here, as :meth:`run` does.

        It is never refused, and goes on to its end where several threads use the engines and the wait is interrupted.
        """

    def run_with_messages(self, function: Callable[[Callable[[Any], None]], T], on_message: Callable[[Any], None]) -> T:
        """Run ``function`` as :meth:`run` does, from another thread; its messages are handled in the caller's.

        Args:
            function: called with a function that takes a message for ``on_message``.
            on_message: an exception ends the wait, and ``function``.
        """


class Housed(Protocol):
    """An object owned by a loop.

    Attributes:
        shell: that loop; in the child of a fork it may be that of the parent still.
    """

    shell: ClientShell

    @property
    def home(self) -> Home:
        """The loop and its thread."""


H = TypeVar("H", bound=Housed)


def at_home(method: Callable[Concatenate[H, P], T]) -> Callable[Concatenate[H, P], T]:
    """Run ``method`` in its object's loop, whichever thread calls it; ``on_progress`` runs in the caller's thread."""

    @wraps(method)
    def run(self: H, /, *args: P.args, **options: P.kwargs) -> T:
        if self.shell.is_current:
            return method(self, *args, **options)
        return run_at_home(method, self, *args, **options)

    return run


def at_home_here(method: Callable[Concatenate[H, P], T]) -> Callable[Concatenate[H, P], T]:
    """As :func:`at_home`, by :meth:`Home.run_here`."""

    @wraps(method)
    def run(self: H, /, *args: P.args, **options: P.kwargs) -> T:
        if self.shell.is_current:
            return method(self, *args, **options)
        return run_at_home_here(method, self, *args, **options)

    return run


def run_at_home_here(method: Callable[Concatenate[H, P], T], self: H, /, *args: P.args, **options: P.kwargs) -> T:
    """As :func:`run_at_home`, by :meth:`Home.run_here` where there is no ``on_progress``."""
    if options.get("on_progress") is None:
        return self.home.run_here(method, self, *args, **options)
    return run_at_home(method, self, *args, **options)


def run_at_home(method: Callable[Concatenate[H, P], T], self: H, /, *args: P.args, **options: P.kwargs) -> T:
    """Run ``method`` of ``self`` in its home from another thread, as :func:`at_home` does.

    A method that is called so often that the wrapper's part of its time shows looks itself where it is.
    """
    home = self.home
    on_progress: Any = options.get("on_progress")
    if on_progress is None:
        return home.run(method, self, *args, **options)

    def with_messages(tell: Callable[[Any], None]) -> T:
        options["on_progress"] = tell
        return method(self, *args, **options)

    return home.run_with_messages(with_messages, on_progress)
