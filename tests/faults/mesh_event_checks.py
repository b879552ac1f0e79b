"""Events, checked in a history: each subscriber gets each matching one once, and those of calm times all, in order.

Times are calm when nothing has failed, come back or healed for a while, nor does so in the next moments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from math import inf

from rpcmq.core.common.topic_patterns import PatternTrie
from rpcmq.drill.history import Event

__all__ = ["EventChecks"]

#: Seconds without a change after which routers and processes have found each other again, and those until an event
#: has arrived everywhere.
_CONVERGED, _UNDER_WAY = 20.0, 2.0
#: A subscription that was confirmed gets all events from so many seconds on.
_KNOWN = 0.2


class EventChecks:
    """Looks at events in the order of their time.

    Args:
        violated: called with (check, text).

    Attributes:
        missed: events that subscribers did not get, because something had failed.
    """

    def __init__(self, violated: Callable[[str, str], None]) -> None:
        self._violated = violated
        self.missed = 0
        #: id -> (time, publisher, topic).
        self._published: dict[str, tuple[float, str, str]] = {}
        #: (id, subscriber) -> its place in the order of all arrivals.
        self._arrived: dict[tuple[str, str], int] = {}
        #: (subscriber, pattern) -> the time of the first confirmation.
        self._subscribed: dict[tuple[str, str], float] = {}
        #: When anything failed or came back.
        self._changes: list[float] = []
        self._under_way: int = 0
        self._failing: list[tuple[float, int]] = [(0.0, 0)]
        #: When each place was killed.
        self._killed: defaultdict[str, list[float]] = defaultdict(list)

    def see(self, event: Event) -> None:
        """The next event."""
        handler = getattr(self, f"_on_{event.what}", None)
        if handler is not None:
            handler(event)

    def _on_submit(self, event: Event) -> None:
        if event.fields["verb"] == "event":
            self._published[event.id] = event.at, event.process, event.fields["topic"]

    def _on_subscribed(self, event: Event) -> None:
        self._subscribed.setdefault((event.process, event.id), event.at)

    def _on_event(self, event: Event) -> None:
        published = self._published.get(event.id)
        if published is None or published[2] != event.fields["topic"]:
            self._violated("misrouted", f"{event.process} got event {event.id} of {event.fields['topic']!r}")
        if (event.id, event.process) in self._arrived:
            self._violated("event doubled", f"{event.process} got event {event.id} again")
            return
        self._arrived[event.id, event.process] = len(self._arrived)

    def _on_fault(self, event: Event) -> None:
        self._change(event.at, 1)
        if event.id == "kill":
            self._killed[event.fields["target"]].append(event.at)

    def _on_healed(self, event: Event) -> None:
        self._change(event.at, -1)

    def _change(self, at: float, more: int) -> None:
        self._changes.append(at)
        self._under_way += more
        self._failing.append((at, self._under_way))

    def _is_calm(self, at: float) -> bool:
        next_change = bisect_right(self._changes, at)
        if self._failing[next_change][1]:
            return False
        before = self._changes[next_change - 1] if next_change else None
        after = self._changes[next_change] if next_change < len(self._changes) else None
        return (before is None or at - before >= _CONVERGED) and (after is None or after - at >= _UNDER_WAY)

    def finish(self) -> None:
        """The history is complete."""
        patterns: dict[str, list[tuple[str, float]]] = {}
        for (subscriber, pattern), since in self._subscribed.items():
            patterns.setdefault(subscriber, []).append((pattern, since))
        for subscriber, wanted in patterns.items():
            self._check(subscriber, wanted)

    def _check(self, subscriber: str, wanted: list[tuple[str, float]]) -> None:
        trie: PatternTrie[float] = PatternTrie()
        for pattern, since in wanted:
            trie.add(pattern.encode(), since)
        kills = self._killed[subscriber.partition("#")[0]]
        latest: dict[str, tuple[int, str]] = {}
        for id, (at, publisher, topic) in self._published.items():
            since = min(trie.match(topic.encode()), default=inf)
            if at < since + _KNOWN:
                continue
            place = self._arrived.get((id, subscriber))
            if not self._is_calm(at) or any(since <= killed <= at + _UNDER_WAY for killed in kills):
                self.missed += place is None
                continue
            if place is None:
                self._violated("event missed", f"{subscriber} did not get event {id} to {topic!r} of {publisher}")
                continue
            before, earlier = latest.get(publisher, (-1, ""))
            if before > place:
                self._violated("event order", f"{subscriber} got event {id} of {publisher} before {earlier}")
            latest[publisher] = max((place, id), (before, earlier))
