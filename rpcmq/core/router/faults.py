"""Unexpected exceptions inside the engine: they must affect only the peer that triggered them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from traceback import format_exc
from typing import Any

from rpcmq.core.common.token_bucket import TokenBucket
from rpcmq.core.router.actions import Action, LogEvent
from rpcmq.core.router.journal import Journal

__all__ = ["INTERNAL_ERROR", "FaultReporter", "reraise"]

#: As counted among the refused messages, and as the event in the log.
INTERNAL_ERROR = "internal error"
#: Tracebacks written in a second; all are counted. A peer may be able to cause one with each message.
_PER_SECOND = 5.0


class FaultReporter:
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
        #: Rare events of messages, of which those are reported that the exception is about.
        self.journal = Journal()
        #: Tells where the message with a key is now, if it is anywhere: (now, key) -> lines.
        self.whereabouts: Callable[[float, bytes], Iterable[str]] = lambda now, key: ()

    def guarded(self, now: float, step: Callable[..., None], *args: Any) -> None:
        """Run ``step``; an exception of it is reported, and keeps nothing else from being done."""
        try:
            step(now, *args)
        except Exception:
            self.report(now)

    def report(self, now: float, identity: str = "", key: bytes = b"") -> None:
        """Report the exception that is being handled.

        Args:
            identity: whose message or link it was about; empty if nobody's.
            key: of the message that it was about; empty if it was about none.
        """
        self._refused[INTERNAL_ERROR] += 1
        if self._bucket.take(now):
            return
        text, fields = format_exc(), {}
        if key and (story := self._story(now, key)):
            text += "".join(f"\n{line}" for line in (f"The message {key.hex()} before that:", *story))
            fields = {"key": key.hex(), "story": story}
        self._act(LogEvent(INTERNAL_ERROR, text, identity, fields))

    def _story(self, now: float, key: bytes) -> list[str]:
        try:
            return [*self.journal.story(now, key), *self.whereabouts(now, key)]
        except Exception as error:
            # The tables may be what is wrong.
            return [f"not to be told: {error!r:.200}"]


def reraise(now: float, identity: str = "", key: bytes = b"") -> None:
    """Default fault handler, for engines without a router: re-raise the current exception."""
    error = sys.exception()
    if error is not None:
        raise error
