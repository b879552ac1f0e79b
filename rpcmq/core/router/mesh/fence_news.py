"""Tells other routers the owners of messages that this one has seen (``carry``, docs/contributing/mesh-model.md).

What is seen is passed on at once. A neighbour that has just come is told all, the latest first; where that is more than
a few messages, as much at a time as it takes: it must not make the link end.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.fences import Fence, Fences
from rpcmq.core.router.mesh.places import Tag
from rpcmq.core.router.model import Link
from rpcmq.wire import KEY_BYTES, Kind, pack
from rpcmq.wire.adoption import MAX_ASKED, WHERE_RECORD

__all__ = ["FenceNews", "send_fences"]

#: Fences looked at for one neighbour in one tick, and messages sent to it; the next ones when it has taken all but so
#: many, after a pause (seconds).
_FENCES_AT_ONCE, _MESSAGES_AT_ONCE, _BACKLOG, _PAUSE = 2_000, 200, 200, 0.02


class FenceNews:
    """Tells neighbours that have just come what ``fences`` has."""

    def __init__(self, fences: Fences) -> None:
        self._fences = fences
        #: Names of the fences that each is still to be told, the latest last.
        self._left: dict[Link, list[bytes]] = {}
        #: The time of the next :meth:`tick` (monotonic seconds).
        self.due = inf

    def add(self, now: float, link: Link) -> None:
        """Tell the neighbour at ``link`` all."""
        self._left[link] = list(self._fences.by_name)
        self._tell_some(link)
        self.tick(now)

    def tick(self, now: float) -> None:
        """Go on telling those that have taken what they were told."""
        if now >= self.due:
            for link in list(self._left):
                if len(link.outbox) < _BACKLOG:
                    self._tell_some(link)
        self._left = {link: names for link, names in self._left.items() if names and link.state is not LinkState.ENDED}
        self.due = now + _PAUSE if self._left else inf

    def _tell_some(self, link: Link) -> None:
        names, alike, sent = self._left[link], list[tuple[bytes, Fence]](), 0
        for _ in range(min(_FENCES_AT_ONCE, len(names))):
            name = names.pop()
            fence = self._fences.by_name.get(name)
            if fence is None:
                continue
            if alike and _sort_of(alike[-1][1]) != _sort_of(fence):
                send_fences(link, alike)
                alike, sent = [], sent + 1
            alike.append((name[:KEY_BYTES], fence))
            if sent >= _MESSAGES_AT_ONCE:
                break
        if alike:
            send_fences(link, alike)


def send_fences(link: Link, fences: Sequence[tuple[bytes, Fence]]) -> None:
    """Send keys and fences, which are alike but for their stamps."""
    first = fences[0][1]
    address, is_group = first.place
    for start in range(0, len(fences), MAX_ASKED):
        payload = b"".join(WHERE_RECORD.pack(key, fence.stamp) for key, fence in fences[start : start + MAX_ASKED])
        link.send(
            pack(
                Kind.FENCES, payload, sequence=first.owner, format=int(first.is_call), address=address.encode(),
                consumer=Tag.GROUP if is_group else Tag.TOPIC,
            )
        )  # fmt: skip


def _sort_of(fence: Fence) -> tuple[object, ...]:
    return fence.place, fence.owner, fence.is_call
