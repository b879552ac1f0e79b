"""Receipts: the places of items, by which whoever has one asks for what became of an item."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass
from typing import Any, Generic, NamedTuple, Self, TypeVar

from rpcmq.client.queue.protocol import PRIORITIES, check_queue
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr

__all__ = ["BoundPlace", "ItemPlace", "ItemState", "place_of"]

C = TypeVar("C")

_FORM = '["queue", "owner", "id", priority, number]'


class ItemState(NamedTuple):
    """The state of an item, as its owner knows it.

    Attributes:
        name: ``ready``; ``postponed``: it is delayed, or is to be tried again; ``running``; ``dead``; ``ended``: it is
            done, or was cancelled or dropped.
        attempts: that have failed, or have lost their workers; of an item that has ended it is not known any more.
        text: why the last of them has: the reason, with a traceback where there is one; empty: none has.
    """

    name: str
    attempts: int = 0
    text: str = ""


@dataclass(frozen=True, init=False)
class ItemPlace:
    """The place of an item in its queue.

    ``str()`` of it is a text to be stored, from which ``client.receipt(text)`` makes a receipt again, in any process.

    Attributes:
        queue: its name.
        owner: the router whose queue server has the item.
        id: that was given, or that the client has made.
        priority, number: the item's place there; ``number`` is 0 if it had been put before.
    """

    queue: str
    owner: str
    id: str
    priority: int
    number: int

    def __init__(self, queue: str, owner: str, id: str, priority: int, number: int) -> None:
        # In one step: a frozen dataclass has its attributes set by a call each, and a put of many makes many of these.
        self.__dict__.update(queue=queue, owner=owner, id=id, priority=priority, number=number)

    @property
    def is_new(self) -> bool:
        """Whether the item was put just now, because none with this id was known before."""
        return self.number != 0

    def __str__(self) -> str:
        place = [self.queue, self.owner, self.id, self.priority, self.number]
        return json.dumps(place, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of ``str()``.

        Raises:
            UsageError: it is not of that form.
        """
        try:
            place = json.loads(text)
        except (TypeError, ValueError):
            place = None
        if type(place) is not list or [type(each) for each in place] != [str, str, str, int, int]:
            raise UsageError(f"a receipt as text is {_FORM}, not {short_repr(text)}")
        queue, owner, id, priority, number = place
        if priority not in PRIORITIES or number < 0:
            raise UsageError(f"a receipt has a priority from 0 to 9 and a number, not {short_repr(text)}")
        return cls(check_queue(queue), owner, id, priority, number)

    def key(self) -> dict[str, Any]:
        """The item, as a queue server knows it.

        Raises:
            UsageError: its number is not known.
        """
        if not self.number:
            raise UsageError(
                f"item {short_repr(self.id)} of queue {self.queue!r} had been put before: the receipt of the first put "
                "knows its place, and this one does not"
            )
        return {"priority": self.priority, "number": self.number, "id": self.id}


class BoundPlace(ItemPlace, Generic[C]):
    """A place whose item is asked about over a client. Pickled, or stored as text, it leaves that behind."""

    _client: C | None = None

    @classmethod
    def of(cls, place: ItemPlace, client: C) -> Self:
        """``place``, asked about over ``client``."""
        made = object.__new__(cls)
        attributes = made.__dict__
        attributes.update(place.__dict__)
        attributes["_client"] = client
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), astuple(self)

    def _usable(self) -> C:
        """The client.

        Raises:
            UsageError: it has none.
        """
        if self._client is None:
            raise UsageError(
                f"this receipt came from elsewhere: ask by client.receipt(receipt), or rpc.receipt: {self}"
            )
        return self._client


def place_of(receipt: object) -> ItemPlace:
    """The place that a receipt, or its text, tells of.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(receipt, ItemPlace):
        return receipt
    if not isinstance(receipt, str):
        raise UsageError(f"a receipt is what put returns, or that as text, not {short_repr(receipt)}")
    return ItemPlace.parse(receipt)
