"""One item as it is shown to a person."""

from __future__ import annotations

from dataclasses import dataclass, field

from rpcmq.core.queue.envelope import Envelope
from rpcmq.core.queue.story import Story
from rpcmq.store.contract import Damaged, Stored

__all__ = ["ItemView", "view_of"]


@dataclass(frozen=True)
class ItemView:
    """An item. Times are milliseconds of the wall clock.

    Attributes:
        state: ``ready``, ``postponed``, ``running``, ``dead``.
        at: the time at which it was put.
        since: of a postponed item, when it is due; of a dead one, when it died; else 0.
        place: of a dead item, among the others as the store has them in turn.
        id: that the user gave; empty: the client has made one of ``maker``.
        maker: producer and counter.
        damage: the reason for which nothing but its place is known; empty: it is whole.
    """

    queue: str
    priority: int
    number: int
    state: str
    at: int = 0
    since: int = 0
    place: int = 0
    id: bytes = b""
    maker: tuple[int, int] = (0, 0)
    expires: int = 0
    series: bytes = b""
    message: bytes = b""
    story: Story = field(default_factory=Story)
    damage: str = ""


def view_of(state: str, item: Stored | Damaged) -> ItemView:
    """The view of an item as it was read."""
    queue, priority = item.lane
    if isinstance(item, Damaged):
        text = "its row in the store is not as it was written"
        died, place, _ = item.position
        return ItemView(queue, priority, item.number, state, since=died, place=place, damage=text)
    try:
        envelope, damage = Envelope.from_bytes(item.body), ""
    except ValueError as error:
        envelope, damage = Envelope(b""), str(error)
    return ItemView(
        queue, priority, item.number, state, item.at, item.position.due, item.position.place, item.id, item.maker,
        envelope.expires, envelope.series, envelope.message, Story.from_bytes(item.state), damage,
    )  # fmt: skip
