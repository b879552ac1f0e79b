"""The obstacles to links with other routers: each is counted, logged when it is new, and shown while it lasts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from rpcmq.core.common.text import shorten
from rpcmq.core.router.actions import Action, LogEvent

__all__ = ["Problems"]

#: Most that are known at a time; of further ones only the counts are.
_MOST = 1000


class Problems:
    """The obstacles that are known.

    Args:
        counters: where they are counted, by reason.
        act: takes the events for the log.
    """

    def __init__(self, counters: Counter[str], act: Callable[[Action], None]) -> None:
        self._counters = counters
        self._act = act
        #: Subject -> reason, text, since when.
        self._lasting: dict[str, tuple[str, str, float]] = {}

    def note(self, now: float, subject: str, reason: str, text: str) -> None:
        """``subject`` (a url, or a router) cannot be linked to.

        Args:
            reason: in a word, for counters; one of few.
            text: a sentence that says what to do about it, if anything.
        """
        self._counters[f"mesh {reason}"] += 1
        text = shorten(text)
        known = self._lasting.get(subject)
        if known is not None and known[:2] == (reason, text):
            return
        if known is None and len(self._lasting) >= _MOST:
            return
        self._lasting[subject] = reason, text, now
        self._act(LogEvent("mesh problem", text, "", {"subject": subject, "reason": reason}))

    def solved(self, *subjects: str) -> None:
        """Nothing is in the way of a link with ``subjects`` any more."""
        for subject in subjects:
            self._lasting.pop(subject, None)

    def rows(self, now: float) -> list[dict[str, Any]]:
        """The problems that last, as plain data."""
        return [
            {"subject": subject, "reason": reason, "text": text, "for_seconds": round(now - since, 3)}
            for subject, (reason, text, since) in self._lasting.items()
        ]
