"""Queues and items as peers name them, checked before the store is asked: its answer comes when nobody hears of it."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from rpcmq.client.queue.protocol import FIRST_MARK, MOST_ITEMS, PRIORITIES
from rpcmq.core.queue.dead_items import Progress
from rpcmq.core.queue.given_item import Key
from rpcmq.payload.bounded_text import short_repr
from rpcmq.store.contract import Position

__all__ = ["Named", "check_place", "is_known", "mark_of", "named_items", "position_at", "progress_at"]

#: The items that an operator names: priority and number of each.
Named = Sequence[Sequence[int]]

#: Items of a part of a change of all dead ones: done in a part of a second, and in some also where much else is done.
_PART = 1024
_MOST_NUMBER = (1 << 63) - 1


def is_known(served: Container[str], queue: object) -> bool:
    """Return whether ``queue`` is one of those that are served."""
    return type(queue) is str and queue in served


def check_place(priority: object, number: object, id: object = "") -> None:
    """Check that there can be an item of this priority and number, and of this id.

    Raises:
        ValueError: there cannot.
    """
    if type(priority) is not int or priority not in PRIORITIES:
        raise ValueError(f"priority must be an integer from 0 to 9, not {short_repr(priority)}")
    if type(number) is not int or not 0 <= number <= _MOST_NUMBER:
        raise ValueError(f"number must be that of an item, not {short_repr(number)}")
    if type(id) is not str or id != str(id.encode("utf-8", "replace"), "utf-8"):
        raise ValueError(f"id must be the text of an item's id, not {short_repr(id)}")


def named_items(items: object) -> list[Key] | None:
    """The items that an operator names, each once; None: he means all.

    Raises:
        ValueError: they are none, or too many.
    """
    if items is None:
        return None
    if not isinstance(items, (list, tuple)) or len(items) > MOST_ITEMS:
        raise ValueError(f"items must be a list of {MOST_ITEMS} places at the most, or None, not {short_repr(items)}")
    for place in items:
        if not isinstance(place, (list, tuple)) or len(place) != 2:
            raise ValueError(f"an item must be named by its priority and number, not {short_repr(place)}")
        check_place(*place)
    return list(dict.fromkeys((priority, number) for priority, number in items))


def progress_at(mark: object) -> Progress:
    """The beginning of a part of a change that goes on at ``mark``; None: the change is made as a whole.

    Raises:
        ValueError: it is none.
    """
    if mark is None:
        return Progress()
    until, *after = _numbers(mark, len(FIRST_MARK), "mark must be that of an earlier answer")
    return Progress(_PART, until, Position(*after))


def position_at(mark: object) -> Position:
    """The place among dead items that the row of one has as its ``mark``; None: that before all.

    Raises:
        ValueError: it is none.
    """
    if mark is None:
        return Position()
    return Position(*_numbers(mark, len(Position._fields), "after must be the mark of a dead item"))


def _numbers(mark: object, count: int, rule: str) -> list[Any]:
    numbers = list(mark) if isinstance(mark, (list, tuple)) else []
    if len(numbers) != count or not _are_numbers(numbers):
        raise ValueError(f"{rule}, not {short_repr(mark)}")
    return numbers


def _are_numbers(values: list[object]) -> bool:
    return all(type(each) is int and 0 <= each <= _MOST_NUMBER for each in values)


def mark_of(progress: Progress) -> list[int] | None:
    """The mark at which the next part goes on; None: there is none."""
    return None if progress.after is None else [progress.until, *progress.after]
