"""The bytes of RELAYs that neighbours were sent and have not read: what a relay may have under way is bounded.

libzmq does not tell how much of what it was given waits for a neighbour. So each router counts the bytes of RELAYs that
it reads on a connection, and tells that now and then with READ. A neighbour that does not (its ``mesh`` has no
``pieces``) is bounded in batches only, by libzmq.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from sys import maxsize

from rpcmq.core.router.model import Link
from rpcmq.errors import ProtocolError
from rpcmq.wire import Detached, Kind, pack, payload_of

__all__ = ["UnreadRelays", "bytes_of"]

#: Bytes that are read before they are told.
_TELL_BYTES = 256 << 10


class UnreadRelays:
    """The bytes that each neighbour has yet to read, and those that were read of each.

    Attributes:
        most: gives the most bytes that a neighbour may have to read.
    """

    def __init__(self) -> None:
        self.most: Callable[[], int] = lambda: maxsize
        self._sent: dict[Link, _Count] = {}
        self._received: dict[Link, _Count] = {}

    def forget(self, link: Link) -> None:
        """``link`` has ended."""
        self._sent.pop(link, None)
        self._received.pop(link, None)

    # --- what is sent ------------------------------------------------------------------------

    def of(self, hop: Link) -> int:
        """The bytes that the neighbour at ``hop`` has yet to read, as far as it has told."""
        count = self._sent.get(hop)
        return count.passed - count.read if count is not None and count.route == hop.route else 0

    def has_room(self, hop: Link) -> bool:
        """Return whether one more batch may be sent: whatever its size, or the longest could never be."""
        return self.of(hop) < self.most()

    def sent(self, hop: Link, size_bytes: int) -> None:
        """A RELAY and what it is about, of so many bytes, were sent to the neighbour at ``hop``."""
        if hop.cuts:
            _count_of(self._sent, hop).passed += size_bytes

    def told(self, hop: Link, read: int) -> None:
        """The neighbour at ``hop`` has read so many bytes on this connection.

        Raises:
            ProtocolError: that is impossible.
        """
        count = _count_of(self._sent, hop)
        if not count.read <= read <= count.passed:
            raise ProtocolError(f"READ tells of {read} bytes; expected {count.read} to {count.passed}", "read")
        count.read = read

    # --- what comes --------------------------------------------------------------------------

    def received(self, link: Link, size_bytes: int) -> None:
        """A RELAY and what it is about, of so many bytes, have come from the neighbour at ``link``."""
        if not link.cuts:
            return
        count = _count_of(self._received, link)
        count.passed += size_bytes
        if count.passed - count.read >= _TELL_BYTES:
            count.read = count.passed
            link.send_last(pack(Kind.READ, sequence=count.read))


def bytes_of(messages: Sequence[bytes]) -> int:
    """Bytes of the messages of a batch, with their detached payloads."""
    size = sum(map(len, messages))
    if Detached in map(type, messages):
        size += sum(len(payload_of(message)) for message in messages if isinstance(message, Detached))
    return size


@dataclass(slots=True)
class _Count:
    """The RELAYs of one direction of a connection, in bytes.

    Attributes:
        route: the connection.
        passed: the bytes that were sent, or have come.
        read: those of them that the neighbour has read as far as it has told, or as it was told.
    """

    route: bytes | None
    passed: int = 0
    read: int = 0


def _count_of(counts: dict[Link, _Count], link: Link) -> _Count:
    """The count of the present connection of ``link``."""
    count = counts.get(link)
    if count is None or count.route != link.route:
        count = counts[link] = _Count(link.route)
    return count
