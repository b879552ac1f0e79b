"""Settlements of casts on their way to the router: gathered, and sent with one message for each registration.

So is the credit that settled casts go on to take. It is sent before them: the router never sees more than there is.
"""

from __future__ import annotations

from rpcmq.core.process.uplink import Uplink
from rpcmq.errors import Outcome
from rpcmq.wire import KIND_AT, NO_TTL, SETTLEMENT, Kind, pack

__all__ = ["Settlements", "wire_microseconds"]

_SENT = int(Kind.CLOCK_STAMP)
#: Most settlements in one message.
_TOGETHER = 1000


class Settlements:
    """Settlements that are to be sent over ``uplink``, and the clock stamp of what answers there.

    Attributes:
        answered: whether the outbox has an answer whose clock stamp has not been sent.
    """

    __slots__ = ("_occupied", "_settled", "_uplink", "answered")

    def __init__(self, uplink: Uplink) -> None:
        self._uplink = uplink
        self._settled: dict[int, list[bytes]] = {}
        self._occupied: dict[int, int] = {}
        self.answered = False

    @property
    def takes_back(self) -> bool:
        """Whether the router takes OCCUPIED and GIVE_BACK."""
        router = self._uplink.router
        return router is not None and router.takes_back

    def clear(self) -> None:
        """Forget them: the session that they were for is over."""
        self._settled.clear()
        self._occupied.clear()
        self.answered = False

    def add(self, tag: int, key: bytes, attempt: int, outcome: Outcome, spent: int) -> None:
        """Settle a cast.

        Args:
            tag: of the registration that had it.
            spent: microseconds that its handler took.
        """
        self._settled.setdefault(tag, []).append(SETTLEMENT.pack(key, attempt, outcome, spent))
        self._uplink.mark()

    def occupy(self, tag: int, count: int) -> None:
        """So many settled casts of the registration with ``tag`` still run."""
        if self.takes_back:
            self._occupied[tag] = count
            self._uplink.mark()

    def flush(self, now: float) -> None:
        """Complete the outbox before it is sent.

        Where the router wants it, it is told before all that when its answers are sent.
        """
        if self._occupied:
            for tag, count in self._occupied.items():
                self._uplink.send(pack(Kind.OCCUPIED, count.to_bytes(4), consumer=tag))
            self._occupied.clear()
        if self._settled:
            self.answered = True
            for tag, settlements in self._settled.items():
                for start in range(0, len(settlements), _TOGETHER):
                    payload = b"".join(settlements[start : start + _TOGETHER])
                    self._uplink.send(pack(Kind.SETTLE, payload, consumer=tag))
            self._settled.clear()
        if self.answered and self._uplink.ready:
            self.answered = False
            if self._uplink.wants_stamps:
                self._send_clock_stamp(now)

    def _send_clock_stamp(self, now: float) -> None:
        outbox = self._uplink.outbox
        stamp = pack(_SENT, sequence=int(now * 1e6))
        if outbox and outbox[0][KIND_AT] == _SENT:  # the socket took nothing of it
            outbox[0] = stamp
        else:
            outbox.insert(0, stamp)


def wire_microseconds(seconds: float) -> int:
    """Convert seconds to the wire's microseconds: 32 bits, clamped."""
    return max(0, min(NO_TTL - 1, int(seconds * 1e6)))
