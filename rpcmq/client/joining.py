"""Registrations at several routers: how far each has got, and how long to wait for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic
from typing import Generic, TypeVar

from rpcmq.errors import IdentityTaken, RouterUnreachable
from rpcmq.transport.connection import Connection
from rpcmq.transport.shell import WaitableEvent

__all__ = ["Joining", "no_router"]

M = TypeVar("M")

#: Seconds for which the other routers are waited for once one has the registration.
_OTHERS = 1.0


class Joining(Generic[M]):
    """The registration of members, each at a router of its own, and how far it has got.

    Args:
        connections: of each member.
        changed: an event of the loop.

    Attributes:
        is_waited_for: whether :meth:`wait` has not returned.
    """

    def __init__(self, connections: Mapping[M, Connection], changed: WaitableEvent) -> None:
        self._connections = connections
        self._changed = changed
        self._joined: set[M] = set()
        self._refused: dict[M, Exception] = {}
        self._ended = False
        self.is_waited_for = True

    @property
    def members(self) -> list[M]:
        """All that are to be registered."""
        return list(self._connections)

    def connection(self, member: M) -> Connection:
        """The connection over which ``member`` is registered."""
        return self._connections[member]

    def stop(self) -> None:
        """Register no further members."""
        self._ended = True

    def has_ended(self) -> bool:
        """Return whether no other is to be registered."""
        return self._ended

    def mark_joined(self, member: M) -> None:
        """``member`` is registered."""
        self._refused.pop(member, None)
        self._joined.add(member)
        self._changed.set()

    def mark_refused(self, member: M, error: Exception) -> None:
        """The router of ``member`` has refused it."""
        self._refused[member] = error
        self._changed.set()

    def wait(self, timeout: float, deadline: float | None = None) -> None:
        """Wait until one router has its registration, and the others have, too, or have had a second more for it.

        Args:
            timeout: seconds, in all.
            deadline: its end (monotonic seconds); default: it begins now.

        Raises:
            RouterUnreachable: no router is there.
            IdentityTaken: another live process has this identity.
            CallError: no router takes the registration.
        """
        deadline = monotonic() + timeout if deadline is None else deadline
        self._wait_for(lambda: bool(self._joined) or self._is_complete, deadline)
        self._wait_for(lambda: self._is_complete, min(deadline, monotonic() + _OTHERS))
        for error in self._refused.values():
            if not self._joined or isinstance(error, IdentityTaken):
                raise error
        if not self._joined:
            raise no_router(self._connections.values(), timeout)
        self.is_waited_for = False

    def missing(self) -> Iterator[tuple[str, str]]:
        """The url of each router that has no registration yet, and why."""
        for member, connection in self._connections.items():
            if member not in self._joined:
                yield connection.url, str(self._refused.get(member) or connection.reason)

    @property
    def _is_complete(self) -> bool:
        """Whether each router has taken or refused its registration."""
        return len(self._joined) + len(self._refused) == len(self._connections)

    def _wait_for(self, condition: Callable[[], bool], deadline: float) -> None:
        while not condition() and (left := deadline - monotonic()) > 0:
            self._changed.clear()
            self._changed.wait(left)


def no_router(connections: Iterable[Connection], timeout: float) -> RouterUnreachable:
    """Build the error that no router of ``connections`` was there within ``timeout`` (seconds), and why."""
    text = "; ".join(f"{connection.url}: {connection.reason}" for connection in connections)
    return RouterUnreachable(f"no router reachable within {timeout:g} s: {text}")
