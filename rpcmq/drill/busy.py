"""Busy plain programs: their clients keep heartbeating, so the router must not declare them silent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rpcmq.drill.disturbances import Disturbances
from rpcmq.drill.history import Event, What
from rpcmq.drill.promises import Bounds, Violation

__all__ = ["Busy"]


class Busy:
    """Checks the router's statements about busy programs."""

    def __init__(self, bounds: Bounds, disturbances: Disturbances) -> None:
        self._bounds = bounds
        self._disturbances = disturbances
        #: Process -> when it was busy, from and until.
        self._times: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self._declared: list[Event] = []

    def see(self, event: Event) -> None:
        """The next event."""
        if event.what == What.BUSY:
            self._times[event.process].append((event.at, event.at + event.fields["seconds"]))
        elif event.what == What.DECLARED and event.fields["state"] in ("unresponsive", "quiet"):
            self._declared.append(event)

    def violations(self) -> Iterator[Violation]:
        """Report programs that were declared silent while they were merely busy."""
        for event in self._declared:
            at, process = event.at, event.id
            since = at - self._bounds.unresponsive
            # What was heard last is from before.
            if not any(begin <= at and end > since for begin, end in self._times.get(process, ())):
                continue
            if not any(self._disturbances.during(each, since, at) for each in (process, "router")):
                text = f"{process} was declared {event.fields['state']} at {at:.3f}, while it was busy"
                yield Violation("declared while busy", text)
