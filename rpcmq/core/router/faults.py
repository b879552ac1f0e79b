"""Unexpected exceptions inside the engine: they must affect only the peer that triggered them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from traceback import format_exc

from rpcmq.core.common.token_bucket import TokenBucket
from rpcmq.core.router.actions import Action, Note

__all__ = ["INTERNAL_ERROR", "Faults", "reraise"]

#: As counted among the refused messages, and as the event in the log.
INTERNAL_ERROR = "internal error"
#: Tracebacks written in a second; all are counted. A peer may be able to cause one with each message.
_PER_SECOND = 5.0


class Faults:
    """Counts each exception, and reports the first few of each second with their tracebacks.

    Args:
        refused: where they are counted.
        act: takes the notes for the log.
        now: monotonic seconds.
    """

    def __init__(self, refused: Counter[str], act: Callable[[Action], None], now: float) -> None:
        self._refused = refused
        self._act = act
        self._bucket = TokenBucket(_PER_SECOND, now)

    def report(self, now: float, identity: str = "") -> None:
        """Report the exception that is being handled.

        Args:
            identity: whose message or link it was about; empty if nobody's.
        """
        self._refused[INTERNAL_ERROR] += 1
        if not self._bucket.take(now):
            self._act(Note(INTERNAL_ERROR, format_exc(), identity))


def reraise(now: float, identity: str = "") -> None:
    """Default fault handler, for engines without a router: re-raise the current exception."""
    error = sys.exception()
    if error is not None:
        raise error
