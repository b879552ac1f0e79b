"""The result of checking a history, and the protocol of those who check one promise each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from rpcmq.drill.history import Event
from rpcmq.drill.promises import Violation

__all__ = ["Judge", "Verdict"]


@dataclass
class Verdict:
    """The result of checking a history.

    Attributes:
        violations: what must not have happened.
        submitted: how many there were of each verb.
        ended: how many calls ended with each outcome.
        lost: casts that nobody ran, and whose loss no guarantee allows.
        forgotten: casts that were lost with a router that was killed, and with their sender or their consumer.
        dropped: casts that nobody ran, of which the router has said so.
        doubled: calls and casts that were started twice and must not.
        misrouted: answers and requests that came to the wrong place.
        told: seconds, from the kill of a process to the failure of what it was running: the longest.
        recovery: seconds, from the router's return to a caller's first answer: the longest.
        late: answers that came after their call had ended: they were counted and dropped.
        after_large: seconds, of small calls of processes that have sent something large: the longest median.
        accounted: casts to topics that nobody has, which the router has counted by name.
        outlived: calls that ended with a router that was stopped in order, and had waited for them in vain.
    """

    violations: list[Violation] = field(default_factory=list)
    submitted: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    forgotten: int = 0
    dropped: int = 0
    doubled: int = 0
    misrouted: int = 0
    told: float = 0.0
    recovery: float = 0.0
    late: int = 0
    outlived: int = 0
    after_large: float = 0.0
    accounted: int = 0

    @property
    def ok(self) -> bool:
        """Whether all held."""
        return not self.violations


class Judge(Protocol):
    """Looks at one promise."""

    def see(self, event: Event) -> None:
        """The next event."""

    def violations(self) -> Iterable[Violation]:
        """Return the violations found at the end of the history."""
