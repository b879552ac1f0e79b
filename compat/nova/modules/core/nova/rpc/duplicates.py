"""Messages that come again: how they are marked, and recognised (Grizzly)."""

from __future__ import annotations

import uuid
from collections import deque
from typing import Any

from nova.rpc import common

__all__ = ["UNIQUE_ID", "MsgIdCache", "add_unique_id"]

#: Number of the latest messages a consumer remembers, to recognise duplicates.
_REMEMBERED = 16
#: The message key that identifies duplicates.
UNIQUE_ID = "_unique_id"


class MsgIdCache:
    """The messages that a consumer has had, to recognise one that comes again."""

    def __init__(self) -> None:
        self.prev_msgids: deque[str] = deque(maxlen=_REMEMBERED)

    def check_duplicate_message(self, message: dict[str, Any]) -> None:
        """Remember ``message``.

        Raises:
            DuplicateMessageError: it is among those remembered.
        """
        msg_id = message.pop(UNIQUE_ID, None)
        if msg_id is None:
            return
        if msg_id in self.prev_msgids:
            raise common.DuplicateMessageError(msg_id=msg_id)
        self.prev_msgids.append(msg_id)


def add_unique_id(msg: dict[str, Any]) -> None:
    """Mark ``msg`` so that consumers recognise it when it comes again."""
    msg[UNIQUE_ID] = uuid.uuid4().hex
