"""Bytes of messages that have been accepted and have not ended."""

from __future__ import annotations

__all__ = ["MESSAGE_OVERHEAD", "SharedUsage", "Usage"]

#: Memory of a message beside its bytes: its entries in the router's tables.
MESSAGE_OVERHEAD = 600


class Usage:
    """Memory charged to one link."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0


class SharedUsage(Usage):
    """Memory of one message shared by its copies, released when the last copy has ended.

    Stands for the link's usage in the copies, each of which counts as 1 in :attr:`size_bytes`.

    Args:
        of: the sender's.
        size_bytes: of the message.
    """

    __slots__ = ("_copies", "charged", "of")

    def __init__(self, of: Usage, size_bytes: int) -> None:
        self.of = of
        self._copies = 0
        #: Bytes that the sender is charged with for the message and all its copies.
        self.charged = size_bytes
        of.size_bytes += size_bytes

    @property
    def size_bytes(self) -> int:
        """Number of copies that have not ended."""
        return self._copies

    @size_bytes.setter
    def size_bytes(self, copies: int) -> None:
        more = copies - self._copies
        self._copies = copies
        if more > 0:
            self.charged += more * MESSAGE_OVERHEAD
            self.of.size_bytes += more * MESSAGE_OVERHEAD
        elif not copies:
            self.of.size_bytes -= self.charged
            self.charged = 0
