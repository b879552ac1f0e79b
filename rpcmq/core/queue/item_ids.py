"""The ids of items as text: so workers, receipts and operators know them."""

from __future__ import annotations

from rpcmq.store.contract import Damaged, Stored

__all__ = ["id_of", "is_other", "shown_id"]


def shown_id(id: bytes, maker: tuple[int, int]) -> str:
    """The id that the user gave, or, where that is empty, the one that the client has made; empty: there is neither."""
    if id or not any(maker):
        return str(id, "utf-8", "replace")
    return "{:x}-{}".format(*maker)


def id_of(item: Stored | Damaged) -> str:
    """The id of an item; empty: it is damaged, and its id is not known."""
    return "" if isinstance(item, Damaged) else shown_id(item.id, item.maker)


def is_other(shown: str, id: str) -> bool:
    """Return whether the item that is known as ``shown`` is certainly not the one with this id, which is asked for.

    The number of an item is not enough: a queue that was begun anew counts from 1 again.
    """
    return bool(id and shown) and shown != id
