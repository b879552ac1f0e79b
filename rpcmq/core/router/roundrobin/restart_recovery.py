"""The time after a start in which processes come back: casts that may have run are held until it is known whether.

Consumers say which casts they had from the router's previous life, so that none of these runs twice. That none is lost
is the senders' part: they keep their casts and send them again (:mod:`rpcmq.core.process.resend_after_restart`).
"""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Destination, Link, Request, Topic
from rpcmq.core.router.roundrobin import explain
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.usage import MESSAGE_OVERHEAD
from rpcmq.errors import Outcome, ProtocolError
from rpcmq.wire import KEY_BYTES, Address, Flag, size_of

__all__ = ["Recovery"]

#: Casts with one of these flags are held until the consumers of the router's previous life return.
_HELD = Flag.RESENT | Flag.MANDATORY
#: Most casts that one registration may report as delivered before (processes remember 4096); and all together.
_MAX_RECENT = 10_000
_MAX_RECENT_OF_ALL = 4_000_000


class Recovery:
    """Holds casts, and mandatory calls, until ``router.recovery_seconds`` after the start.

    Mandatory ones also later, while it is not known whom other routers have.

    Attributes:
        has_converged: tells whether that is known: (now).
    """

    __slots__ = (
        "_awaiting_consumer",
        "_delivered_before",
        "_delivered_until",
        "_has_to_look",
        "_held_by",
        "_links",
        "_requests",
        "_until",
        "has_converged",
        "is_releasing",
    )  # fmt: skip

    def __init__(self, settings: Settings, links: LinkTable, requests: RequestTable, now: float) -> None:
        self._links = links
        self._requests = requests
        self._until = now + settings.recovery_seconds
        self.has_converged: Callable[[float], bool] = _is_alone
        #: Whether :meth:`release_held` is to be called at a time of its own, and not when others say what they have.
        self._has_to_look = True
        #: Links that have sent casts that are held.
        self._held_by: list[Link] = []
        #: Mandatory calls that wait for consumers to come back.
        self._awaiting_consumer: dict[Request, None] = {}
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
        """Whether the cast ``request`` is held, as it is now, and everything that ``link`` casts after it."""
        if not link.held:
            if not flags & _HELD or not self._must_hold(now, link, request, flags):
                return False
            self._held_by.append(link)
        self._requests.journal.note(now, request.key, "held until the recovery window ends")
        link.held.append(request.message)
        link.usage.size_bytes += request.charge
        return True

    def _must_hold(self, now: float, link: Link, request: Request, flags: int) -> bool:
        """Whether this cast must wait for consumers returning after a restart, or to become known."""
        is_mandatory = bool(flags & Flag.MANDATORY)
        if now >= self._until:
            return is_mandatory and not self.has_converged(now) and not _is_consumed(request.destination)
        # An earlier life of the router cannot have delivered casts of a new process.
        if link.returning or not is_mandatory:
            return link.returning
        return self._links.has_returned or not _is_consumed(request.destination)

    def awaits_consumer(self, now: float, request: Request) -> bool:
        """Whether ``request``, which is mandatory and finds nobody, waits for a consumer to come back."""
        # A router does not know whom it had in an earlier life, nor whether there was one.
        if not request.is_call or (now >= self._until and self.has_converged(now)):
            return False
        self._awaiting_consumer[request] = None
        return True

    # --- what consumers had before -----------------------------------------------------------

    def is_delivered_already(self, key: bytes, topic: Topic) -> bool:
        """Whether a consumer of ``topic`` (a topic or a group) had the cast from the router's previous life."""
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
        if now < self._until or not (self._held_by or self._awaiting_consumer):
            return []
        self._has_to_look = self.has_converged(now)
        if not self._has_to_look:
            return []
        self._stop_awaiting(now)
        held_by, self._held_by = self._held_by, []
        held = [(link, link.held) for link in held_by]
        for link in held_by:
            # They are counted again as they are accepted.
            link.usage.size_bytes -= sum(size_of(message) + MESSAGE_OVERHEAD for message in link.held)
            link.held = []
        self.is_releasing = True
        return held

    def _stop_awaiting(self, now: float) -> None:
        hoping, self._awaiting_consumer = self._awaiting_consumer, {}
        for request in hoping:
            destination = request.destination
            if request.queue is not None and not _is_consumed(destination):
                request.queue.remove(request)
                why = explain.no_consumer(now, destination)
                self._requests.refuse(now, request, None, Outcome.NO_CONSUMER, why)

    def released(self) -> None:
        """Note that the messages from :meth:`release_held` have been handled."""
        self.is_releasing = False

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`release_held` (monotonic seconds)."""
        return self._until if self._has_to_look and (self._held_by or self._awaiting_consumer) else None


def _is_consumed(destination: Destination) -> bool:
    """Whether somebody who is connected consumes it, or a group of it."""
    topics: tuple[Destination | Topic, ...] = (destination, *destination.groups.values())
    return any(each.remotes or any(consumer.link.route is not None for consumer in each.consumers) for each in topics)


def _is_alone(now: float) -> bool:
    """Whether it is known whom other routers have: there are none."""
    return True
