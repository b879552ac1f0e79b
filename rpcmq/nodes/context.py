"""The parts of a router that a plugged-in node may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rpcmq.core.common.text import shorten
from rpcmq.core.common.token_bucket import TokenBucket
from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.node_type import NodeContext

__all__ = ["Context"]

#: Log events of one node in a second; further ones are counted.
_EVENTS_PER_SECOND = 20.0


class Context:
    """The things that a node may do beside answering, and may know.

    Attributes:
        name: of the node.
        max_bytes: bytes that it may hold.
        router: the router's name.
        now: the time at which it was made (monotonic seconds).
        boot: wall-clock milliseconds at the router's start.
    """

    def __init__(self, node: NodeContext, name: str, max_bytes: int, now: float) -> None:
        self._node = node
        self._events = TokenBucket(_EVENTS_PER_SECOND, now)
        self.name = name
        self.max_bytes = max_bytes
        self.router = node.settings.router_name
        self.now = now
        self.boot = node.boot
        #: Log events that were left out because there were too many.
        self.events_left_out = 0

    def log(
        self, now: float, event: str, text: str, identity: str = "", fields: Mapping[str, Any] | None = None
    ) -> None:
        """Write to the router's log.

        Args:
            event: what happened, in a word or two: the same for all events of a sort.
            text: one sentence.
            identity: the process that it is about.
            fields: the same for machines; JSON values.
        """
        if self._events.take(now):
            self.events_left_out += 1
            return
        self._node.act(LogEvent(f"{self.name}: {event}", shorten(text), identity, dict(fields or {})))

    def new_token(self) -> str:
        """An unguessable string."""
        return self._node.new_token()

    def wall_ms(self, now: float) -> int:
        """The wall clock at ``now``, as far as it was not set since the start of the router (milliseconds)."""
        return self._node.boot + int((now - self._node.now) * 1000)
