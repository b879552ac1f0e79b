"""The window of casts: how many may be on their way, to each queue and in all, before the next one waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

from rpcmq.config import ClientConfig
from rpcmq.core.process.casts import Casts
from rpcmq.core.process.uplink import Uplink
from rpcmq.errors import Overloaded
from rpcmq.transport.connection import Connection
from rpcmq.transport.shell import ClientShell, Handle
from rpcmq.wire import Address

__all__ = ["CastWindow"]


class CastWindow:
    """The casts of a process that are on their way, and those who wait for room among them.

    Attributes:
        waiting: how they are resumed, by the address that they cast to.
    """

    __slots__ = ("_bytes", "_casts", "_config", "_connection", "_shell", "_uplink", "waiting")

    def __init__(
        self, config: ClientConfig, casts: Casts, uplink: Uplink, connection: Connection, shell: ClientShell
    ) -> None:
        self._config = config
        self._casts = casts
        self._uplink = uplink
        self._connection = connection
        self._shell = shell
        self._bytes = min(config.cast_window_bytes, config.cast_window_total_bytes)
        self.waiting: dict[bytes, deque[Callable[[], object]]] = {}

    def has_room(self, address: bytes) -> bool:
        """Return whether the cast window of ``address`` is open."""
        window, config = self._casts, self._config
        if not window.refused.queues:
            # The usual case, inlined: this runs before each cast.
            return window.open < config.cast_window and window.open_bytes < self._bytes
        return window.has_room(address, config.cast_window, config.cast_window_bytes, config.cast_window_total_bytes)

    def wait(self, address: bytes, timeout: float, name: str) -> None:
        """Wait until another cast may be sent to ``address``.

        Raises:
            Overloaded: the window is still full after ``timeout`` seconds.
        """
        deadline = monotonic() + timeout
        while not self.has_room(address):
            left = deadline - monotonic()
            if left <= 0.0:
                raise self.no_room(address, name, timeout)
            resume, park = self._shell.parking()
            waiting = self.waiting.setdefault(address, deque())
            timer: Handle | None = None
            try:
                waiting.append(resume)
                self._hurry()
                timer = self._shell.call_later(left, partial(_resume_waiting, waiting, resume))
                park()
            finally:
                if resume in waiting:
                    waiting.remove(resume)
                if timer is not None:
                    timer.stop()
                    timer.close()
            self._connection.check_open()

    def resume_when_room(self, address: bytes, resume: Callable[[], object]) -> None:
        """Call ``resume`` once there may be room for a cast to ``address``; at once if there is."""
        if self._connection.closed or self.has_room(address):
            resume()
            return
        self.waiting.setdefault(address, deque()).append(resume)
        self._hurry()

    def forget(self, address: bytes, resume: Callable[[], object]) -> None:
        """Do not call ``resume`` any more."""
        waiting = self.waiting.get(address)
        if waiting is not None and resume in waiting:
            waiting.remove(resume)

    def no_room(self, address: bytes, name: str, timeout: float) -> Overloaded:
        """Build the error for a cast to ``address``, shown as ``name``, not sent within ``timeout`` (seconds)."""
        return _no_room(self._casts, self._config, address, name, timeout, self._connection.condition)

    def _hurry(self) -> None:
        self._uplink.ask_acknowledgement()
        self._connection.schedule()

    def wake(self, switch: Callable[[Callable[[], object]], None]) -> None:
        """Resume those for whose casts there is room now, each by ``switch``; in the loop."""
        for address, waiting in list(self.waiting.items()):
            while waiting and (self._connection.closed or self.has_room(address)):
                switch(waiting.popleft())
        self.waiting = {address: waiting for address, waiting in self.waiting.items() if waiting}
        if self.waiting:
            self._uplink.ask_acknowledgement()


def _resume_waiting(waiting: deque[Callable[[], object]], resume: Callable[[], object]) -> None:
    """Call ``resume`` unless it waits no more: a signal's handler may have raised while its timer was made."""
    if resume in waiting:
        resume()


def _no_room(
    window: Casts, config: ClientConfig, address: bytes, name: str, timeout: float, condition: str
) -> Overloaded:
    """Build the error for a cast to ``name`` that was not sent within ``timeout`` seconds.

    Args:
        condition: what is known of the connection.
    """
    queue = window.refused.queues.get(address)
    details: dict[str, Any] = {"topic": name, "casts_open": window.open}
    casts, size_bytes = window.open - window.refused.casts, window.open_bytes - window.refused.size_bytes
    if window.open_bytes >= config.cast_window_total_bytes:
        limit, value = "cast_window_total_bytes", config.cast_window_total_bytes
        casts, size_bytes = window.open, window.open_bytes
        full = [str(Address.decode(each)) for each in window.refused.queues]
        why = f"casts to {', '.join(map(repr, full[:3]))} wait for full queues" if full else condition
        if full:
            details["full_topics"] = full[:10]
    else:
        if queue is not None:
            casts, size_bytes = casts + queue.casts, size_bytes + queue.size_bytes
        by_number = casts >= config.cast_window
        limit = "cast_window" if by_number else "cast_window_bytes"
        value = config.cast_window if by_number else config.cast_window_bytes
        why = queue.text if queue is not None else condition
        if queue is not None:
            details |= {"queue": queue.details}
    details |= {"limit": limit, "limit_value": value}
    # Those on their way are to any topic.
    others = f", {queue.casts} of them to {name!r}" if queue is not None and queue.casts < casts else ""
    text = (
        f"cast to {name!r} not sent: {casts} casts ({size_bytes} bytes) wait for the router to take them{others}, for "
    )
    return Overloaded(f"{text}{timeout:g} s now ({limit} = {value}); {why}", details)
