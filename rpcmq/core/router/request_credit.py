"""The credit of a request's stream: how much more its caller may send to the consumer that has the request."""

from __future__ import annotations

from rpcmq.core.common.stream_credit import StreamCredit

__all__ = ["RequestCredit"]


class RequestCredit(StreamCredit):
    """The credit that the consumer of a delivery has granted, from its first grant on."""

    __slots__ = ("is_over", "is_stopped")

    def __init__(self) -> None:
        super().__init__(0, 0, True)
        #: Whether the consumer wants no more, and whether the caller has nothing more.
        self.is_stopped = self.is_over = False

    def use(self, size_bytes: int) -> bool:
        """Use credit for an item; return whether there was any, and the stream was not over."""
        return not self.is_over and super().use(size_bytes)
