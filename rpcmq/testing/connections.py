"""The connections of a virtual network: two ends, one of them at a router, and the batches in transit between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

__all__ = ["Connection", "Paths", "Way"]


@dataclass(slots=True, eq=False)
class Way:
    """One direction of a connection: batches arrive in the order in which they were put."""

    #: Takes a batch and its detached payloads at the receiving end: (now, batch, payloads).
    receive: Callable[[float, bytes, list[bytes]], None]
    #: Tells the receiving end that the other one has closed: (now).
    tell_closed: Callable[[float], None]
    #: Whether batches arrive now: nothing is cut, and the receiving end runs.
    is_open: Callable[[], bool]
    #: Seconds that a batch put now is under way.
    delay: Callable[[], float]
    #: Called after batches were looked for: (now).
    after_receive: Callable[[float], None] = lambda now: None
    #: Batches in transit: when each arrives, the messages, their detached payloads.
    in_transit: deque[tuple[float, bytes, list[bytes]]] = field(default_factory=deque)
    #: The time at which the receiving end learns that the other one has closed; None: it has not closed.
    closes_at: float | None = None
    #: Whether nobody receives any more.
    is_dead: bool = False

    @property
    def is_pending(self) -> bool:
        """Whether something is under way."""
        return bool(self.in_transit) or self.closes_at is not None

    def put(self, now: float, batch: bytes, payloads: list[bytes]) -> None:
        """Send ``batch``; without an effect when nobody receives any more."""
        if not self.is_dead:
            self.in_transit.append((now + self.delay(), batch, payloads))

    def close(self, now: float, is_delivered: bool) -> None:
        """The sending end has closed; unless ``is_delivered``, batches in transit are lost."""
        if not self.is_dead:
            if not is_delivered:
                self.clear()
            self.closes_at = now + self.delay()

    def clear(self) -> None:
        """Lose the batches in transit."""
        self.in_transit.clear()

    def kill(self) -> None:
        """Nobody receives any more; batches in transit are lost."""
        self.is_dead = True
        self.clear()
        self.closes_at = None

    def next_arrival(self) -> float:
        """The time of the next :meth:`arrive` that has an effect (monotonic seconds)."""
        if not self.is_pending or not self.is_open():
            return inf
        if self.in_transit:
            return self.in_transit[0][0]
        return inf if self.closes_at is None else self.closes_at

    def arrive(self, now: float) -> bool:
        """Deliver everything that is due; return whether there was anything."""
        if not self.is_pending or not self.is_open():
            return False
        has_moved = False
        while self.in_transit and self.in_transit[0][0] <= now:
            _, batch, payloads = self.in_transit.popleft()
            self.receive(now, batch, payloads)
            has_moved = True
        if not self.in_transit and self.closes_at is not None and self.closes_at <= now:
            self.kill()
            self.tell_closed(now)
            return True
        self.after_receive(now)
        return has_moved


@dataclass(slots=True, eq=False)
class Connection:
    """A connection that a process or a router has dialled, and a router has accepted."""

    #: Its name at the router that has accepted it; begins with the name of the dialer.
    route: bytes
    #: The url that was dialled.
    url: str
    to_router: Way
    to_dialer: Way

    @property
    def is_pending(self) -> bool:
        """Whether something is under way."""
        return self.to_router.is_pending or self.to_dialer.is_pending

    def kill(self) -> None:
        """Nobody receives on it any more; batches in transit are lost."""
        self.to_router.kill()
        self.to_dialer.kill()


class Paths:
    """The paths between routers, by their names, each direction for itself: cut or not, and how long they take."""

    def __init__(self) -> None:
        self._cut: set[tuple[str, str]] = set()
        self._delays: dict[tuple[str, str], float] = {}

    def is_open(self, sender: str, receiver: str) -> bool:
        """Return whether batches of ``sender`` reach ``receiver``."""
        return (sender, receiver) not in self._cut

    def delay(self, sender: str, receiver: str) -> float:
        """Return the seconds that a batch is under way."""
        return self._delays.get((sender, receiver), 0.0)

    def cut(self, sender: str, receiver: str) -> None:
        """Hold up all batches from now on, without notifying either end."""
        self._cut.add((sender, receiver))

    def heal(self, sender: str, receiver: str) -> None:
        """Let batches through again."""
        self._cut.discard((sender, receiver))

    def set_delay(self, sender: str, receiver: str, seconds: float) -> None:
        """Let batches take ``seconds`` from now on."""
        self._delays[sender, receiver] = seconds
