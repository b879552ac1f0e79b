"""Large payloads must arrive unchanged, and no message may lie in a socket of a process that was not woken for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from rpcmq.drill.disturbances import Disturbances
from rpcmq.drill.history import Event, What
from rpcmq.drill.promises import Violation

__all__ = ["Payloads"]

#: Fewest calls for a meaningful median.
_LEAST = 20
#: Wake-ups that nothing is said of: a message may come in the very moment in which the watchdog looks.
_EXCUSED = 1


class Payloads:
    """Looks at what was sent and got, and at small calls of processes that have sent something large before.

    A wake-up that was lost costs each later call up to half a second: it is counted, and the times are a figure.
    """

    def __init__(self, disturbances: Disturbances) -> None:
        self._disturbances = disturbances
        self._changed: list[Event] = []
        #: The counts at the end of processes that have missed wake-ups.
        self._missed: list[Event] = []
        #: Processes that have sent something large.
        self._large: set[str] = set()
        #: Id -> when a small call was submitted whose handler does not wait.
        self._quick: dict[str, float] = {}
        #: Process -> what such calls took.
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)

    @property
    def after_large(self) -> float:
        """The longest median of the times of such calls (seconds); 0: there were too few."""
        return max((median(each) for each in self._seconds.values() if len(each) >= _LEAST), default=0.0)

    def see(self, event: Event) -> None:
        """The next event."""
        if event.what == What.SUBMIT:
            if "size" in event.fields:
                self._large.add(event.process)
            elif event.fields["verb"] == "call" and event.fields.get("quick") and event.process in self._large:
                self._quick[event.id] = event.at
        elif event.what == What.COUNTED:
            if event.fields.get("lost wakeups", 0) > _EXCUSED:
                self._missed.append(event)
        elif event.what in (What.START, What.END):
            if event.fields.get("changed"):
                self._changed.append(event)
            if event.what == What.END:
                self._ends(event)

    def _ends(self, event: Event) -> None:
        since = self._quick.pop(event.id, None)
        if since is None or event.fields["outcome"] != "ok":
            return
        # For a second after a fault, too, its calls are late.
        if not any(self._disturbances.during(each, since - 1.0, event.at) for each in (event.process, "router")):
            self._seconds[event.process].append(event.at - since)

    def violations(self) -> Iterator[Violation]:
        """Report payloads that arrived changed, and processes that missed wake-ups."""
        for event in self._changed:
            text = f"{event.process}: the payload of {event.id} is not the one that was sent"
            yield Violation("payload changed", text)
        for event in self._missed:
            text = f"{event.process} has missed {event.fields['lost wakeups']} wake-ups: messages waited in its sockets"
            yield Violation("lost wake-ups", text)
