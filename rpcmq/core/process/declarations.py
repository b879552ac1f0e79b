"""Topics that a process has declared, for a router that does not know the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rpcmq.core.process.call import Call
from rpcmq.wire.bodies import DeclareBody

__all__ = ["Declarations"]

#: Topics that are remembered; of more the oldest are forgotten.
_MOST: Final = 1_000
#: Seconds in which the router is to take a declaration.
_TIMEOUT: Final = 30.0


class Declarations:
    """Topics that a process has declared: the next life of its router, or another router, is to keep messages to them.

    Args:
        start: sends a request to the router: ``Calls.start``.
    """

    def __init__(self, start: Callable[..., Any]) -> None:
        self._start = start
        self._made: dict[tuple[bytes, str], str] = {}

    def add(self, address: bytes, name: str, group: str) -> None:
        """Remember that the router has taken a declaration.

        Args:
            address: of the topic, encoded.
            name: the same as text, for errors.
        """
        self._made.pop((address, group), None)
        self._made[address, group] = name
        if len(self._made) > _MOST:
            del self._made[next(iter(self._made))]

    def tell_again(self, now: float) -> None:
        """Tell a router that does not know this process of all; what it refuses is left to the next one."""
        for (address, group), name in list(self._made.items()):
            body = DeclareBody(group=group)
            self._start(now, Call(name, 0, _TIMEOUT), body.KIND, body.payload(), address=address)
