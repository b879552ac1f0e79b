"""Drop accounting: casts to topics without consumers must be counted by topic and reason, and reported to senders."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from rpcmq.drill.disturbances import Disturbances
from rpcmq.drill.history import Event, What
from rpcmq.drill.promises import Violation

__all__ = ["Accounts"]

#: Not the end of a cast: its sender keeps it, and offers it again.
_GIVEN_BACK = "queue full"


class Accounts:
    """Compares casts sent to misspelt topics with the counts of router and senders.

    Attributes:
        accounted: dropped casts that the router has counted.
    """

    def __init__(self, disturbances: Disturbances) -> None:
        self._disturbances = disturbances
        #: Id -> process and topic.
        self._open: dict[str, tuple[str, str]] = {}
        #: Topic -> process -> casts that neither raised nor ran.
        self._sent: defaultdict[str, Counter[str]] = defaultdict(Counter)
        #: Topic -> who has counted -> how many.
        self._counted: defaultdict[str, Counter[str]] = defaultdict(Counter)
        #: (verb, reason) -> how many, of all topics and in the totals.
        self._rows: Counter[tuple[str, str]] = Counter()
        self._totals: Counter[tuple[str, str]] = Counter()
        self._ended: set[str] = set()
        self._router_lives = 1
        self.accounted = 0

    def see(self, event: Event) -> None:
        """The next event."""
        what, fields = event.what, event.fields
        if what == What.SUBMIT and fields.get("misspelt"):
            self._open[event.id] = event.process, fields["topic"]
            self._sent[fields["topic"]][event.process] += 1
        elif what == What.END and fields["outcome"] != "ok" and event.id in self._open:
            process, topic = self._open[event.id]
            self._sent[topic][process] -= 1
        elif what == What.DROPPED:
            self._drop(event)
        elif what == What.DROPPED_IN_ALL:
            self._totals[fields["verb"], fields["reason"]] += fields["count"]
        elif what == What.DONE:
            self._ended.add(event.process)
        elif what == What.EXITED or (what == What.FAULT and event.id == "kill" and fields.get("target") == "router"):
            self._router_lives += 1

    def _drop(self, event: Event) -> None:
        fields = event.fields
        if event.process == "drill":
            self._rows[fields["verb"], fields["reason"]] += fields["count"]
        if fields["verb"] == "cast" and fields["reason"] != _GIVEN_BACK:
            self._counted[event.id][event.process] += fields["count"]

    def violations(self) -> Iterator[Violation]:
        """Report drops that were not counted, or counted too often. A killed router's counts are lost with it."""
        if not self._sent or self._router_lives > 1:
            return
        for topic, senders in self._sent.items():
            counted = self._counted[topic]["drill"]
            self.accounted += counted
            if (sent := sum(senders.values())) != counted:
                text = f"{sent} casts were sent to {topic}, which nobody has, and the router lists {counted} as dropped"
                yield Violation("drops not accounted for", text)
            for process, own in senders.items():
                if process in self._ended and own != (told := self._counted[topic][process]):
                    text = f"{process} has sent {own} casts to {topic}, which nobody has, and counts {told} as dropped"
                    yield Violation("sender not told of drops", text)
        for kind in sorted(self._rows.keys() | self._totals.keys()):
            if self._rows[kind] != self._totals[kind]:
                text = f"{' '.join(kind)}: {self._totals[kind]} in all, and {self._rows[kind]} by topic"
                yield Violation("totals of drops differ", text)
