"""The time after the loss of a router in which processes come back, to its next life or to other routers.

After a start casts that may have run are held until it is known whether. Consumers say which casts they had from the
router's previous life, so that none of these runs twice. That none is lost is the senders' part: they keep their casts
and send them again (:mod:`rpcmq.core.process.resend_after_restart`).

That a mandatory message finds nobody means little in that time. It waits while its consumers may be on their way: after
a start; where it comes from a sender that has just come back itself, so was sent to another router before; and where
another router is gone that had consumers of its address.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Destination, Link, Request, Topic
from rpcmq.core.router.roundrobin import explain
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.usage import MESSAGE_OVERHEAD
from rpcmq.errors import ProtocolError
from rpcmq.wire import KEY_BYTES, Address, Flag, size_of

__all__ = ["Recovery"]

#: Casts with one of these flags are held until the consumers of the router's previous life return.
_HELD = Flag.RESENT | Flag.MANDATORY
#: Most casts that one registration may report as delivered before (processes remember 4096); and all together.
_MAX_RECENT = 10_000
_MAX_RECENT_OF_ALL = 4_000_000
#: Seconds between two looks whether consumers have come.
_LOOK = 0.1


class Recovery:
    """Holds casts, and mandatory calls, until ``router.recovery_seconds`` after the start.

    Mandatory ones also later: while it is not known whom other routers have, and for as long again where consumers may
    be on their way to this router.

    Attributes:
        has_converged: tells whether it is known whom other routers have: (now).
        are_on_their_way: tells whether consumers of an address had a router that is gone lately: (now, destination).
    """

    __slots__ = (
        "_awaiting_consumer",
        "_delivered_before",
        "_delivered_until",
        "_held_by",
        "_links",
        "_look_at",
        "_released",
        "_requests",
        "_settings",
        "_until",
        "are_on_their_way",
        "has_converged",
        "is_releasing",
    )  # fmt: skip

    def __init__(self, settings: Settings, links: LinkTable, requests: RequestTable, now: float) -> None:
        self._links = links
        self._requests = requests
        self._settings = settings
        self._until = now + settings.recovery_seconds
        self.has_converged: Callable[[float], bool] = lambda now: True
        self.are_on_their_way: Callable[[float, Destination], bool] = lambda now, destination: False
        #: The time of the next look whether anything can be released; inf: nothing is held.
        self._look_at = inf
        #: Links that have sent casts that are held.
        self._held_by: dict[Link, _Hold] = {}
        #: The same, of those that are released at the moment: what is held again waits no longer than it was to.
        self._released: dict[Link, _Hold] = {}
        #: Mandatory calls that wait for consumers to come back, and until when.
        self._awaiting_consumer: dict[Request, float] = {}
        #: Whether held messages are being handled. They were acknowledged to their senders and cannot be refused now.
        self.is_releasing = False
        #: Casts that consumers received from the router's previous life, by topic and group.
        self._delivered_before: dict[tuple[Address, str], set[bytes]] = {}
        self._delivered_until = now + settings.mailbox_max_seconds

    @property
    def ends_at(self) -> float:
        """The end of the recovery window (monotonic seconds)."""
        return self._until

    def holds(self, now: float, link: Link, request: Request, flags: int) -> bool:
        """Return whether the cast ``request`` is held, as it is now, and everything that ``link`` casts after it."""
        if not link.held:
            until = self._held_until(now, link, request, flags) if flags & _HELD else None
            if until is None:
                return False
            self._held_by[link] = _Hold(until, request.destination)
            self._look_soon(now)
        self._requests.journal.note(now, request.key, "held until consumers are back")
        link.held.append(request.message)
        link.usage.size_bytes += request.charge
        return True

    def _held_until(self, now: float, link: Link, request: Request, flags: int) -> float | None:
        """Until when this cast must wait for consumers that return, or to become known; None: not at all."""
        if now >= self._until:
            if not flags & Flag.MANDATORY or _is_consumed(request.destination):
                return None
            return self._awaited_until(now, request, self._released[link].until if link in self._released else inf)
        # An earlier life of the router cannot have delivered casts of a new process.
        if link.returning or not flags & Flag.MANDATORY:
            return self._until if link.returning else None
        return self._until if self._links.has_returned or not _is_consumed(request.destination) else None

    def awaits_consumer(self, now: float, request: Request) -> bool:
        """Return whether ``request``, which is mandatory and finds nobody, waits for a consumer to come back."""
        if not request.is_call:
            return False
        # A router does not know whom it had in an earlier life, nor whether there was one.
        until = self._until if now < self._until else self._awaited_until(now, request)
        if until is None:
            return False
        self._awaiting_consumer.setdefault(request, until)
        self._look_soon(now)
        return True

    def _awaited_until(self, now: float, request: Request, latest: float = inf) -> float | None:
        """Until when ``request``, which finds nobody, waits for consumers; None: there is no reason to."""
        until = now
        if request.flags & Flag.RESENT or self.are_on_their_way(now, request.destination):
            until = min(now + self._settings.recovery_seconds, latest)
        return until if until > now or not self.has_converged(now) else None

    def _look_soon(self, now: float) -> None:
        self._look_at = min(self._look_at, max(self._until, now + _LOOK))

    # --- what consumers had before -----------------------------------------------------------

    def is_delivered_already(self, key: bytes, topic: Topic) -> bool:
        """Return whether a consumer of ``topic`` (a topic or a group) had the cast from the router's previous life."""
        return bool(self._delivered_before) and key in self._delivered_before.get((topic.address, topic.group), ())

    def record_delivered(self, now: float, address: Address, group: str, keys: bytes) -> None:
        """A consumer of ``address`` says which casts it had in the router's previous life.

        Args:
            group: that it consumes; empty for the topic itself.
            keys: of these casts, back to back.

        Raises:
            ProtocolError: there is half a key, or there are too many.
        """
        count, rest = divmod(len(keys), KEY_BYTES)
        if rest or count > _MAX_RECENT:
            text = (
                f"{len(keys)} bytes of recent casts are no multiple of {KEY_BYTES}, or more than {_MAX_RECENT} of them"
            )
            raise ProtocolError(text, "length")
        # Senders that have not returned with their casts by then do not return, and later reports
        # concern this life of the router.
        if now < self._delivered_until and keys:
            if sum(map(len, self._delivered_before.values())) >= _MAX_RECENT_OF_ALL:
                self._requests.counters["recent casts beyond the limit"] += count
                return
            known = self._delivered_before.setdefault((address._replace(server=""), group), set())
            known.update(keys[i : i + KEY_BYTES] for i in range(0, len(keys), KEY_BYTES))

    # --- its end -----------------------------------------------------------------------------

    def release_held(self, now: float) -> list[tuple[Link, list[bytes]]]:
        """Return the held messages if their time is over, to be handled as if they had just come.

        Say :meth:`released` when that is done.
        """
        if self._delivered_before and now >= self._delivered_until:
            self._delivered_before.clear()
        if now < self._look_at:
            return []
        is_known = self.has_converged(now)
        self._stop_awaiting(now, is_known)
        for link, hold in list(self._held_by.items()):
            if (is_known and now >= hold.until) or _is_consumed(hold.destination):
                self._released[link] = self._held_by.pop(link)
        self._look_at = now + _LOOK if self._held_by or self._awaiting_consumer else inf
        held = [(link, link.held) for link in self._released]
        for link in self._released:
            # They are counted again as they are accepted.
            link.usage.size_bytes -= sum(size_of(message) + MESSAGE_OVERHEAD for message in link.held)
            link.held = []
        self.is_releasing = bool(held)
        return held

    def _stop_awaiting(self, now: float, is_known: bool) -> None:
        for request, until in list(self._awaiting_consumer.items()):
            if request.queue is None:
                del self._awaiting_consumer[request]  # it has ended, or somebody has it
            elif is_known and now >= until:
                del self._awaiting_consumer[request]
                if not _is_consumed(request.destination):
                    request.queue.remove(request)
                    self._requests.refuse(now, request, None, *explain.no_consumer(now, request))

    def released(self) -> None:
        """Note that the messages from :meth:`release_held` have been handled."""
        self.is_releasing = False
        self._released.clear()

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`release_held` (monotonic seconds)."""
        return self._look_at if self._look_at < inf else None


class _Hold(NamedTuple):
    """Casts of one link that are held.

    Attributes:
        until: when they are taken at the latest, where it is known by then whom other routers have.
        destination: of the first one: they are taken when it is consumed.
    """

    until: float
    destination: Destination


def _is_consumed(destination: Destination) -> bool:
    """Return whether somebody who is connected consumes it, or a group of it."""
    topics: tuple[Destination | Topic, ...] = (destination, *destination.groups.values())
    return any(each.remotes or any(consumer.link.route is not None for consumer in each.consumers) for each in topics)
