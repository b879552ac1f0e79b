"""Credit: how many deliveries a consumer may have at once.

Its process grants it with REGISTER: the ``concurrency`` of a service. Each answer and each settlement makes room for
one more delivery. While the window of its link is full, the process has not acknowledged what was sent before, and all
of its consumers have no credit: messages wait in their queues, from which others can take them.

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

    __slots__ = ("credit", "granted")

    def __init__(self, granted: int, is_withheld: bool) -> None:
        self.granted = granted
        #: The credit in force: what was granted, or none.
        self.credit = 0 if is_withheld else granted

    def withhold_credit(self) -> None:
        """Have it given nothing more: the window of its link is full."""
        self.credit = 0

    def restore_credit(self) -> None:
        """Have it given work again: the window has room."""
        self.credit = self.granted
