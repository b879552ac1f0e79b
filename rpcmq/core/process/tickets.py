"""The tickets of callers that were introduced to this process, and have not come yet.

Each *source* of introductions, another router of the mesh or the public key of a caller, has room of its own: whatever
it makes up, it pushes out only what it has introduced itself.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

__all__ = ["NO_TICKET", "Ticket", "Tickets"]

#: Validity of a ticket (seconds).
TICKET_SECONDS = 30.0
#: Most tickets of one caller: further ones are refused. Most of one source, and of all: the oldest are discarded.
MAX_TICKETS_EACH = 32
MAX_TICKETS_OF_SOURCE, MAX_TICKETS = 2_000, 10_000


class Ticket(NamedTuple):
    """A caller that is expected."""

    identity: str
    #: Public key of the expected caller; empty without CURVE.
    key: str
    #: The topic it was introduced for.
    topic: str
    until: float
    #: The source that has introduced it; empty: this process's router, a caller of its own without a key.
    source: str = ""


NO_TICKET = Ticket("", "", "", 0.0)


class Tickets:
    """All that are valid."""

    def __init__(self) -> None:
        #: The oldest first.
        self._tickets: dict[str, Ticket] = {}
        #: The same, by source.
        self._of_source: dict[str, dict[str, None]] = {}
        self._of_caller: Counter[tuple[str, str]] = Counter()

    def __contains__(self, ticket: str) -> bool:
        return ticket in self._tickets

    def __len__(self) -> int:
        return len(self._tickets)

    def add(self, now: float, ticket: str, identity: str, key: str, topic: str, via: str) -> bool:
        """Expect a caller; return False if too many are expected that have its name.

        Args:
            via: the name of the router that has introduced it; empty: this process's own.
        """
        source = f"router {via}" if via else key
        self._make_room(now)
        if self._of_caller[source, identity] >= MAX_TICKETS_EACH:
            return False
        of_source = self._of_source.get(source, {})
        if source and len(of_source) >= MAX_TICKETS_OF_SOURCE:
            self.take(next(iter(of_source)))
        self.take(ticket)
        self._tickets[ticket] = Ticket(identity, key, topic, now + TICKET_SECONDS, source)
        self._of_source.setdefault(source, {})[ticket] = None
        self._of_caller[source, identity] += 1
        return True

    def _make_room(self, now: float) -> None:
        while self._tickets:
            oldest = next(iter(self._tickets))
            if self._tickets[oldest].until > now and len(self._tickets) < MAX_TICKETS:
                return
            self.take(oldest)

    def take(self, ticket: str) -> Ticket:
        """Return the caller that shows ``ticket``, which is good once; NO_TICKET if it is not known."""
        known = self._tickets.pop(ticket, None)
        if known is None:
            return NO_TICKET
        of_source = self._of_source[known.source]
        del of_source[ticket]
        if not of_source:
            del self._of_source[known.source]
        caller = known.source, known.identity
        self._of_caller[caller] -= 1
        if not self._of_caller[caller]:
            del self._of_caller[caller]
        return known

    def is_expected(self, now: float, key: str) -> bool:
        """Return whether a caller with the public ``key`` is expected."""
        return any(known.key == key and now < known.until for known in self._tickets.values())

    def forget_key(self, key: str) -> None:
        """Expect nobody with the public ``key`` any more."""
        for ticket in [t for t, known in self._tickets.items() if known.key == key]:
            self.take(ticket)
