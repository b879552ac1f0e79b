"""Requests for the same key, of which one goes to the origin while the others wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

from gevent.event import Event

from rpcmq.proxy.caching import StoredResponse

__all__ = ["Flight", "Flights", "Landing"]

#: Most keys that are remembered as such whose requests go alone: some 100 bytes each.
_MAX_ALONE = 100_000
#: Seconds that the client of the first request may take to read, in all, before others wait for it no more.
_HELD_UP_SECONDS = 2.0
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Landing:
    """The end of a flight, for those that wait.

    Attributes:
        entry: the response that may be followed; None: there is none.
        body: all of its body; None: it is in the store.
        failed: 502, 503 or 504, where the origin has not answered; 0: it has.
    """

    entry: StoredResponse | None = None
    body: bytes | None = None
    failed: int = 0


class Flight:
    """A request on its way to the origin."""

    def __init__(self) -> None:
        self._done = Event()
        self._landing = Landing()
        self._held = self._held_since = 0.0
        #: Requests that wait for it.
        self.followers = 0

    def land(self, landing: Landing) -> None:
        """Let those that wait go on. Only the first time counts."""
        if not self._done.is_set():
            self._landing = landing
            self._done.set()

    def wait(self, seconds: float) -> Landing:
        """Wait for its end; return an empty one if that takes longer than ``seconds``, or it is held up."""
        end = monotonic() + seconds
        self.followers += 1
        try:
            while not self._done.is_set() and not self.is_held_up and (left := end - monotonic()) > 0:
                self._done.wait(min(left, _LOOK_SECONDS))
        finally:
            self.followers -= 1
        return self._landing

    @property
    def is_held_up(self) -> bool:
        """Whether it goes on only as fast as a client reads that is too slow for others to wait for."""
        held = self._held + (monotonic() - self._held_since if self._held_since else 0.0)
        return held > _HELD_UP_SECONDS and not self._done.is_set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Note that the client of the first request is waited for within the block."""
        self._held_since = monotonic()
        try:
            yield
        finally:
            self._held += monotonic() - self._held_since
            self._held_since = 0.0


class Flights:
    """All flights of a front end, by key."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}
        #: Hash of a key, which a client may make long -> time of the monotonic clock until which its requests do not
        #: wait for one another. Two keys with one hash only do not share responses.
        self._alone: dict[int, float] = {}
        #: Requests that were answered with the response to another.
        self.followed = 0

    def join(self, key: str) -> Flight | None:
        """Return the flight to wait for; None: there is none."""
        return self._flights.get(key)

    def lead(self, key: str) -> tuple[Flight, Callable[[], None]]:
        """Begin a flight; return it, and a function to call in its end whatever happens."""
        flight = self._flights[key] = Flight()

        def end() -> None:
            self.leave(key, flight)
            flight.land(Landing())

        return flight, end

    def leave(self, key: str, flight: Flight) -> None:
        """Have further requests for ``key`` not wait for ``flight``."""
        if self._flights.get(key) is flight:
            del self._flights[key]

    def detach(self) -> None:
        """Have requests from now on wait for none of those that are under way."""
        self._flights.clear()

    def go_alone(self, key: str, seconds: float) -> None:
        """Note that requests for ``key`` cannot share responses, for so long."""
        if len(self._alone) >= _MAX_ALONE:
            self._alone.clear()
        self._alone[hash(key)] = monotonic() + seconds

    def may_share(self, key: str) -> bool:
        """Return whether requests for ``key`` wait for one another."""
        hashed = hash(key)
        until = self._alone.get(hashed)
        if until is None:
            return True
        if monotonic() < until:
            return False
        del self._alone[hashed]
        return True
