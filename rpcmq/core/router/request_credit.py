"""The credit of a request's stream: how much more its caller may send to the consumer that has the request."""

from __future__ import annotations

__all__ = ["MAX_STREAM_BYTES", "MAX_STREAM_ITEMS", "RequestCredit"]

#: Most items, and most bytes of payloads, that are granted and not yet sent.
MAX_STREAM_ITEMS = 1024
MAX_STREAM_BYTES = 16 << 20


class RequestCredit:
    """The credit that the consumer of a delivery has granted, from its first grant on."""

    __slots__ = ("is_over", "is_stopped", "items", "size_bytes")

    def __init__(self) -> None:
        #: Left to be sent. The last item may have more bytes than are left: then they are below 0.
        self.items = self.size_bytes = 0
        #: Whether the consumer wants no more, and whether the caller has nothing more.
        self.is_stopped = self.is_over = False

    def add(self, items: int, size_bytes: int) -> str:
        """Grant more; return the limit that is exceeded by that, or an empty text."""
        self.items += items
        self.size_bytes += size_bytes
        if self.items > MAX_STREAM_ITEMS:
            return f"{self.items} items granted and not sent exceed the limit of {MAX_STREAM_ITEMS}"
        if self.size_bytes > MAX_STREAM_BYTES:
            return f"{self.size_bytes} bytes granted and not sent exceed the limit of {MAX_STREAM_BYTES}"
        return ""

    def use(self, size_bytes: int) -> bool:
        """Use credit for an item; return whether there was any."""
        if self.is_over or self.items <= 0 or self.size_bytes <= 0:
            return False
        self.items -= 1
        self.size_bytes -= size_bytes
        return True
