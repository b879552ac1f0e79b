"""The shell of gevent: the hub of the current OS thread. See :mod:`rpcmq.transport.shell`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import gevent
from gevent import get_hub, getcurrent
from gevent._hub_local import get_hub_if_exists
from gevent.event import Event

from rpcmq.transport.home import is_background, program_is_patched
from rpcmq.transport.names import NameCheck
from rpcmq.transport.shell import Handle, Shell, WaitableEvent

__all__ = ["GeventShell"]


class GeventShell(Shell):
    """The hub of the current OS thread, which is made if it has none.

    Attributes:
        hub: that hub.
    """

    __slots__ = ("_loop", "hub")

    def __init__(self) -> None:
        self.hub: Any = get_hub()
        self._loop = self.hub.loop

    def call_soon(self, function: Callable[..., object], *args: object) -> Handle:
        """See :meth:`Shell.call_soon`."""
        callback: Handle = self._loop.run_callback(function, *args)
        return callback

    def call_later(self, seconds: float, function: Callable[[], object]) -> Handle:
        """See :meth:`Shell.call_later`."""
        timer = self._loop.timer(seconds)
        timer.start(function)
        handle: Handle = timer
        return handle

    def call_every(self, seconds: float, function: Callable[[], object]) -> Handle:
        """See :meth:`Shell.call_every`."""
        timer = self._loop.timer(seconds, seconds)
        timer.start(function)
        handle: Handle = timer
        return handle

    def call_when_readable(self, fd: int, function: Callable[[], object]) -> Handle:
        """See :meth:`Shell.call_when_readable`."""
        watcher = self._loop.io(fd, 1)
        watcher.start(function)
        handle: Handle = watcher
        return handle

    def check_name(self, url: str, on_failure: Callable[[str], object]) -> Handle:
        """See :meth:`Shell.check_name`."""
        return NameCheck(url, on_failure)

    @property
    def is_current(self) -> bool:
        """See :meth:`Shell.is_current`."""
        return get_hub_if_exists() is self.hub

    @property
    def can_wait(self) -> bool:
        """See :meth:`Shell.can_wait`."""
        return getcurrent() is not self.hub

    @property
    def may_starve(self) -> bool:
        """See :meth:`Shell.may_starve`."""
        # A hub goes on when one of its greenlets ends or waits. A program that gevent has not patched may compute, or
        # block, in its main greenlet for as long as it likes.
        return getcurrent().parent is None and not program_is_patched()

    @property
    def shares_interpreter(self) -> bool:
        """See :meth:`Shell.shares_interpreter`."""
        return is_background(self.hub)

    def event(self) -> WaitableEvent:
        """See :meth:`Shell.event`."""
        return cast("WaitableEvent", Event())

    def sleep(self, seconds: float) -> None:
        """See :meth:`Shell.sleep`."""
        gevent.sleep(seconds)

    def run_together(self, functions: Sequence[Callable[[], object]]) -> None:
        """See :meth:`Shell.run_together`."""
        gevent.joinall([gevent.spawn(function) for function in functions])

    def print_exception(self, context: object, error: BaseException) -> None:
        """See :meth:`Shell.print_exception`."""
        self.hub.handle_error(context, type(error), error, error.__traceback__)
