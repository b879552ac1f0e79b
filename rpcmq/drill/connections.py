"""Undisturbed connections must stand: a reconnection without an injected fault indicates an error."""

from __future__ import annotations

from collections.abc import Iterator

from rpcmq.drill.disturbances import Disturbances
from rpcmq.drill.history import Event, What
from rpcmq.drill.promises import Bounds, Violation

__all__ = ["Connections"]


class Connections:
    """Checks processes that reconnect."""

    def __init__(self, bounds: Bounds, disturbances: Disturbances) -> None:
        self._bounds = bounds
        self._disturbances = disturbances
        self._linked: set[str] = set()
        self._again: list[Event] = []

    def see(self, event: Event) -> None:
        """The next event."""
        # In the simulation, connections break for more reasons than are written down.
        if event.what != What.LINKED or "link" not in event.fields:
            return
        if event.process in self._linked:
            self._again.append(event)
        self._linked.add(event.process)

    def violations(self) -> Iterator[Violation]:
        """Report reconnections without a fault."""
        for event in self._again:
            # A fault may be noticed late, and by then be over.
            since = event.at - event.fields.get("away", 0.0) - self._bounds.lost - self._bounds.recovery
            if not any(self._disturbances.during(each, since, event.at) for each in (event.process, "router")):
                text = f"{event.process} connected anew at {event.at:.3f}, and no fault had broken its connection"
                yield Violation("connection broken", text)
