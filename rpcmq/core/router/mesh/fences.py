"""The latest owner of each message that was asked for: whoever has seen an owner refuses earlier ones.

They are kept for some minutes: longer than an owner that was stopped, or cut off, can have anything under way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from rpcmq.wire import Address
from rpcmq.wire.header import KEY_BYTES

__all__ = ["Fence", "Fences", "PlaceKey", "group_of_place", "name_of"]

#: Seconds for which a fence is kept; most bytes of all; bytes of one beside its names.
_KEPT_SECONDS = 600.0
_MOST_BYTES, _FENCE_BYTES = 96 << 20, 500


#: The address of a place, and whether its ``server`` is the name of a group.
PlaceKey = tuple[Address, bool]


def group_of_place(place: PlaceKey) -> str:
    """The name of the group that ``place`` is; empty for a topic or server."""
    address, is_group = place
    return address.server if is_group else ""


def name_of(key: bytes, group: str) -> bytes:
    """Return a name for a message to ``group``: a message, and the copies of it that groups get, have the same key."""
    return key + group.encode() if group else key


class Fence:
    """The latest owner of one message.

    Attributes:
        stamp: of its question.
        owner: the id of that router.
        place: where the message is to go.
        is_call: whether an answer is waited for.
    """

    __slots__ = ("is_call", "owner", "place", "put_at", "size_bytes", "stamp")

    def __init__(self, stamp: bytes, owner: int, place: PlaceKey, is_call: bool, now: float) -> None:
        self.stamp = stamp
        self.owner = owner
        self.place = place
        self.is_call = is_call
        self.put_at = now
        self.size_bytes = _FENCE_BYTES + sum(map(len, place[0]))


class Fences:
    """Fences by the keys of messages, and by the places that these go to."""

    __slots__ = ("_by_place", "by_name", "size_bytes")

    def __init__(self) -> None:
        #: Memory that they take, about.
        self.size_bytes = 0
        #: By :func:`name_of`.
        self.by_name: OrderedDict[bytes, Fence] = OrderedDict()
        self._by_place: dict[PlaceKey, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return len(self.by_name)

    def get(self, key: bytes, group: str) -> Fence | None:
        """The latest owner of the message with ``key`` for a group or none; None if nobody has asked for it."""
        return self.by_name.get(name_of(key, group))

    def put(self, key: bytes, fence: Fence) -> None:
        """Note a later owner than before."""
        name = name_of(key, group_of_place(fence.place))
        self._remove(name)
        self.by_name[name] = fence
        self._by_place.setdefault(fence.place, {})[key] = None
        self.size_bytes += fence.size_bytes
        while self.size_bytes > _MOST_BYTES:
            self._remove(next(iter(self.by_name)))

    def of_place(self, place: PlaceKey) -> Iterator[tuple[bytes, Fence]]:
        """Key and fence of each message for ``place``."""
        for key in self._by_place.get(place, ()):
            yield key, self.by_name[name_of(key, group_of_place(place))]

    def expire(self, now: float) -> None:
        """Forget what is old."""
        while self.by_name:
            name, fence = next(iter(self.by_name.items()))
            if now - fence.put_at < _KEPT_SECONDS:
                return
            self._remove(name)

    def _remove(self, name: bytes) -> None:
        fence = self.by_name.pop(name, None)
        if fence is None:
            return
        self.size_bytes -= fence.size_bytes
        keys = self._by_place[fence.place]
        del keys[name[:KEY_BYTES]]
        if not keys:
            del self._by_place[fence.place]
