"""Acknowledgements of delivery: tell senders which casts they need not retain any more.

A sender keeps each cast until a consumer has it or it has ended some other way, and offers what it still keeps to the
router's next life. So a router that is killed loses no cast whose sender lives, although it has them in memory only.
"""

from __future__ import annotations

from collections.abc import Sequence

from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Request
from rpcmq.wire import ORIGIN_OF_KEY, SEQUENCE_OF_KEY, Kind, pack

__all__ = ["RECEIPTS", "DeliveryAcknowledgements"]

#: Acknowledgements are sent when so many have collected,
RECEIPTS = 256
#: or after so many seconds.
_SECONDS = 0.1


class DeliveryAcknowledgements:
    """Batches acknowledgements: a message for each cast would cost as much as the cast."""

    def __init__(self, links: LinkTable) -> None:
        self._links = links
        #: Origin -> sequences it need not retain any more.
        self._due: dict[bytes, list[bytes]] = {}
        self._tell_at = 0.0

    def note(self, now: float, request: Request) -> None:
        """The sender of ``request`` need not keep it."""
        request.kept = False
        if not self._due:
            self._tell_at = now + _SECONDS
        key = request.key
        origin = key[ORIGIN_OF_KEY]
        sequences = self._due.get(origin)
        if sequences is None:
            self._due[origin] = [key[SEQUENCE_OF_KEY]]
            return
        sequences.append(key[SEQUENCE_OF_KEY])
        if len(sequences) == RECEIPTS:
            del self._due[origin]
            self._tell(origin, sequences)

    def pending(self, origin: bytes) -> Sequence[bytes]:
        """The sequences of casts of the process with ``origin`` that it need not keep, and is yet to be told of."""
        return self._due.get(origin, ())

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return self._tell_at if self._due else None

    def tick(self, now: float) -> None:
        """Send acknowledgements that have waited long enough."""
        if self._due and now >= self._tell_at:
            due, self._due = self._due, {}
            for origin, sequences in due.items():
                self._tell(origin, sequences)

    def tell_all(self) -> None:
        """Send all acknowledgements now: casts offered again to the next life would run twice."""
        self.tick(self._tell_at)

    def _tell(self, origin: bytes, sequences: list[bytes]) -> None:
        link = self._links.by_origin(origin)
        if link is not None:
            link.send(pack(Kind.DELIVERED, b"".join(sequences)))
