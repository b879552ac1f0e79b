"""Credit: how many deliveries a consumer may have at once.

Its process grants it with REGISTER: the ``concurrency`` of a service. Each answer and each settlement makes room for
one more delivery; but that of a cast which its process settles before it has run it stays *occupied* until the process
says otherwise (OCCUPIED). While the window of its link is full, the process has not acknowledged what was sent before,
and all of its consumers have no credit: messages wait in their queues, from which others can take them.

The credit in force is looked at where a consumer is chosen: :attr:`rpcmq.core.router.model.Consumer.ready`, the least
busy one (:mod:`rpcmq.core.router.least_busy`) and, written out for a topic with one consumer,
:meth:`rpcmq.core.router.roundrobin.dispatch.Dispatch.accept`. The credit for items of a stream is another one, between
its caller and its handler: :mod:`rpcmq.core.router.roundrobin.stream_relay`.
"""

from __future__ import annotations

__all__ = ["ConsumerCredit"]


class ConsumerCredit:
    """The credit of one consumer.

    Args:
        granted: deliveries that its process takes at once.
        is_withheld: whether it begins with none, because the window of its link is full.
    """

    __slots__ = ("credit", "granted", "is_withheld", "occupied", "reserved")

    def __init__(self, granted: int, is_withheld: bool) -> None:
        self.granted = granted
        #: Deliveries for which a part of the credit is kept: for another router, until one knows the consumer; and the
        #: occupied ones, which were settled and still run.
        self.reserved = self.occupied = 0
        self.is_withheld = is_withheld
        #: The credit in force: the part of what was granted that is not reserved, or none.
        self.credit = 0 if is_withheld else granted

    def withhold_credit(self) -> None:
        """Have it given nothing more: the window of its link is full."""
        self.is_withheld = True
        self.credit = 0

    def restore_credit(self) -> None:
        """Have it given work again: the window has room."""
        self.is_withheld = False
        self.credit = self.granted - self.reserved

    def reserve(self, count: int) -> None:
        """Keep the credit of ``count`` deliveries: nothing is delivered on it."""
        self.reserved += count
        if not self.is_withheld:
            self.credit -= count

    def occupy(self, count: int) -> None:
        """Its process still runs ``count`` casts that it has settled: so much of the credit is taken."""
        count = min(count, self.granted)
        self.reserve(count - self.occupied)
        self.occupied = count

    def release(self, count: int = 1) -> None:
        """Keep the credit of ``count`` deliveries no more."""
        self.reserved -= count
        if not self.is_withheld:
            self.credit += count
