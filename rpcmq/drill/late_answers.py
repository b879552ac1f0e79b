"""Answers that end no call: each is counted as late by the router or by the caller, and by nobody as anything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rpcmq.drill.history import Event, What
from rpcmq.drill.lives import Lives
from rpcmq.drill.promises import Violation
from rpcmq.drill.work import Work

__all__ = ["LATE", "LateAnswers"]

#: Prefix of the router's counters of unclaimed answers.
LATE = ("late", "reply of", "reply for", "answers")


class LateAnswers:
    """Checks that late answers are accounted for.

    Attributes:
        counted: answers that were counted as late.
    """

    def __init__(self, lives: Lives, works: Mapping[str, Work]) -> None:
        self._lives = lives
        self._works = works
        self._has_counted = False
        self.counted = 0

    def see(self, event: Event) -> None:
        """The next event."""
        if event.what == What.COUNTED:
            self._has_counted = True
            count = event.fields.get("late answers", 0)
            self.counted += count if isinstance(count, int) else 0

    def violations(self) -> Iterator[Violation]:
        """Report answers that ended no call and were not counted."""
        if not self._has_counted or self._lives.left or self._lives.dead or self._lives.router_starts:
            return  # what they had counted is gone with them
        calls = (work for work in self._works.values() if work.verb == "call")
        spare = sum(work.finished - (work.outcome in ("ok", "remote_error")) for work in calls)
        if spare > self.counted:
            text = f"{spare} answers of handlers ended no call, and only {self.counted} were counted as late"
            yield Violation("answers not accounted for", text)
