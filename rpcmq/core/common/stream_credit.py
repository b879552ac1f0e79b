"""The credit of a stream: how many items, and how many bytes of their payloads, may still be sent."""

from __future__ import annotations

__all__ = [
    "MAX_STREAM_BYTES",
    "MAX_STREAM_GRANTS",
    "MAX_STREAM_ITEMS",
    "UNASKED_BYTES",
    "UNASKED_ITEMS",
    "StreamCredit",
    "unasked_credit",
]

#: Items, and bytes of payloads, that may be sent in answer to a multicall before its caller has granted anything.
UNASKED_ITEMS = 16
UNASKED_BYTES = 64 << 10
#: Most items, and most bytes of payloads, that are granted and not yet sent.
MAX_STREAM_ITEMS = 1024
MAX_STREAM_BYTES = 16 << 20
#: Most grants between two items. Each is a message to whoever sends them: one that is busy must not drown in them.
MAX_STREAM_GRANTS = 2 * MAX_STREAM_ITEMS


class StreamCredit:
    """The credit of one stream.

    Args:
        counts_bytes: whether items use up bytes, too.
    """

    __slots__ = ("counts_bytes", "grants", "items", "size_bytes")

    def __init__(self, items: int, size_bytes: int, counts_bytes: bool) -> None:
        #: Left to be sent. The last item may have more bytes than are left: then they are below 0.
        self.items = items
        self.size_bytes = size_bytes
        self.counts_bytes = counts_bytes
        #: Since the last item.
        self.grants = 0

    @property
    def may_send(self) -> bool:
        """Return whether an item may be sent now."""
        return self.items > 0 and (self.size_bytes > 0 or not self.counts_bytes)

    def add(self, items: int, size_bytes: int) -> str:
        """Grant more; return the limit that is exceeded by that, or an empty text."""
        self.grants += 1
        self.items += items
        if self.counts_bytes:
            self.size_bytes += size_bytes
        if self.items > MAX_STREAM_ITEMS:
            return f"{self.items} items granted and not sent exceed the limit of {MAX_STREAM_ITEMS}"
        if self.size_bytes > MAX_STREAM_BYTES:
            return f"{self.size_bytes} bytes granted and not sent exceed the limit of {MAX_STREAM_BYTES}"
        if self.grants > MAX_STREAM_GRANTS:
            return f"{self.grants} grants with no item between them exceed the limit of {MAX_STREAM_GRANTS}"
        return ""

    def use(self, size_bytes: int) -> bool:
        """Use credit for an item; return whether there was any."""
        if not self.may_send:
            return False
        self.grants = 0
        self.items -= 1
        if self.counts_bytes:
            self.size_bytes -= size_bytes
        return True


def unasked_credit(counts_bytes: bool) -> StreamCredit:
    """The credit of an answer whose caller has granted nothing yet."""
    return StreamCredit(UNASKED_ITEMS, UNASKED_BYTES, counts_bytes)
