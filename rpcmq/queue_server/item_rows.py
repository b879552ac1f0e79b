"""An item as operators are told of it."""

from __future__ import annotations

from typing import Any

from rpcmq.client.queue.messages import Message
from rpcmq.core.queue.item_ids import shown_id
from rpcmq.core.queue.views import ItemView

__all__ = ["item_row"]

#: Characters of a reason, where the whole story is not asked for.
_REASON = 500


def item_row(view: ItemView, wall: int, has_story: bool = False, has_message: bool = False) -> dict[str, Any]:
    """The item as plain data.

    Args:
        wall: milliseconds of the wall clock now.
        has_story: with each of its attempts.
        has_message: with its message, as it was encoded.
    """
    row: dict[str, Any] = {
        "item": f"{view.priority}/{view.number}",
        "id": shown_id(view.id, view.maker),
        "state": view.state,
        "age": _seconds(wall - view.at) if view.at else None,
        "dead_for": _seconds(wall - view.since) if view.state == "dead" else None,
        "due_in": _seconds(view.since - wall) if view.state == "postponed" else None,
        "expires_in": _seconds(view.expires - wall) if view.expires else None,
        "key": view.series.decode(errors="replace"),
        "attempts": view.story.attempts + sum(each.outcome == "rejected" for each in view.story.endings),
        "reason": _reason(view),
    }
    if not view.damage:
        message = Message.from_bytes(view.message)
        row |= {"method": message.method.decode(errors="replace"), "bytes": len(message.body)}
        if has_message:
            row |= {"format": message.format, "body": message.body}
    if view.state == "dead":
        row["mark"] = [view.since, view.place, view.number]
    if has_story:
        row["story"] = [
            {"ago": _seconds(wall - each.at), "worker": each.worker, "outcome": each.outcome, "text": each.text}
            for each in view.story.endings
        ]
    return row


def _reason(view: ItemView) -> str:
    """The last that is said of its last attempt, in one line: of a traceback that is its end."""
    if view.damage:
        return f"damaged: {view.damage}"
    if not view.story.endings:
        return ""
    last = view.story.endings[-1]
    lines = last.text.strip().splitlines()
    # Whoever rejects an item says why himself, and begins with it.
    return f"{last.outcome}: {lines[0 if last.outcome == 'rejected' else -1][:_REASON]}" if lines else last.outcome


def _seconds(milliseconds: int) -> float:
    return milliseconds / 1000
