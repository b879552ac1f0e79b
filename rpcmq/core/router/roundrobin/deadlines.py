"""The deadlines of requests: when each of them expires."""

from __future__ import annotations

from rpcmq.core.common.timing_wheel import DeadlineWheel
from rpcmq.core.router.model import Request
from rpcmq.core.router.settings import Settings
from rpcmq.wire import NO_TTL

__all__ = ["ENDED_AT_ONCE", "Deadlines"]

#: Requests that expire, or lose their caller, in one go: each takes some 25 us, and all others wait meanwhile.
ENDED_AT_ONCE = 250
#: Calls received within this interval share a slot of the wheel (seconds).
_TOGETHER = 0.0005


class Deadlines:
    """A wheel of requests.

    Calls that came together and may take equally long share a slot of it: ``slot`` is for those that come until
    ``slot_until`` with ``slot_ttl``. It is kept here until the wheel is used for anything else, which might forget a
    slot that has become empty.
    """

    __slots__ = ("_more_at", "_settings", "slot", "slot_ttl", "slot_until", "wheel")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.wheel: DeadlineWheel[Request] = DeadlineWheel()
        self.slot: dict[Request, Request] = {}
        self.slot_until = -1.0
        self.slot_ttl = 0
        #: Time of the last tick if it left expired messages to the next one; else None.
        self._more_at: float | None = None

    def slot_of(self, now: float, ttl: int) -> dict[Request, Request]:
        """The slot of calls that come now, or soon, and may take ``ttl`` milliseconds."""
        self.slot_until = until = now + _TOGETHER
        self.slot_ttl = ttl
        self.slot = self.wheel.slot(until + self._seconds(ttl))
        return self.slot

    def arm(self, request: Request, deadline: float) -> None:
        """``request`` expires at ``deadline``."""
        self.slot_until = -1.0
        request.slot = slot = self.wheel.slot(deadline)
        slot[request] = request

    def arm_call(self, now: float, request: Request) -> None:
        """Arm a call's deadline, limited by the router's maximum."""
        known = now <= self.slot_until and request.ttl == self.slot_ttl
        request.slot = slot = self.slot if known else self.slot_of(now, request.ttl)
        slot[request] = request

    def arm_cast(self, now: float, request: Request) -> None:
        """Arm a queued cast's expiry: its ttl or the mailbox's maximum age, whichever is earlier."""
        age = self._age(request)
        left = request.ttl / 1000 - (now - request.received_at) if request.ttl != NO_TTL else age
        self.arm(request, now + max(0.0, min(left, age)))

    def arm_left(self, now: float, request: Request) -> bool:
        """Arm the expiry of a cast again whose last consumer has left while it waited; False: it is too old since then.

        As long as somebody consumes its topic it does not age.
        """
        until = request.destination.left_at + self._age(request)
        if until <= now:
            return False
        self.arm(request, until)
        return True

    def _age(self, request: Request) -> float:
        settings = self._settings
        return settings.mailbox_max_seconds if request.destination.registered else settings.unclaimed_seconds

    def disarm(self, request: Request) -> None:
        """``request`` expires no more."""
        if request.slot is not None:
            del request.slot[request]
            request.slot = None

    def _seconds(self, ttl: int) -> float:
        settings = self._settings
        seconds = settings.default_timeout_seconds if ttl == NO_TTL else ttl / 1000
        return min(seconds, settings.max_ttl_seconds)

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`expire` (monotonic seconds)."""
        self.slot_until = -1.0
        if self._more_at is not None:
            # More was due then: do not return a past deadline, or the shell would consider itself late.
            return self._more_at
        return self.wheel.next_deadline()

    def expire(self, now: float) -> list[Request]:
        """Remove and return expired requests: at most :data:`ENDED_AT_ONCE`."""
        self.slot_until = -1.0
        expired = self.wheel.expire(now, ENDED_AT_ONCE)
        self._more_at = now if len(expired) == ENDED_AT_ONCE else None
        for request in expired:
            request.slot = None
        return expired
