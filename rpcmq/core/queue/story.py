"""The story of an item: its attempts, and what became of each. Kept with the item while it is postponed or dead."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

__all__ = ["IN_DOUBT", "LOST", "Ending", "Story"]

#: Outcomes of attempts of which nobody knows how, or whether, they have ended: with a worker, and with a router.
LOST, IN_DOUBT = "lost", "in doubt"

#: Attempts that are told; the first ones go.
_TOLD = 10
#: Characters of a text, which may be a traceback: its end says most.
_TEXT = 4000


@dataclass(frozen=True)
class Ending:
    """The end of one attempt.

    Attributes:
        at: milliseconds of the wall clock.
        worker: the identity of the process that had the item.
        outcome: ``failed``, ``lost`` (with its worker), ``in doubt`` (with its router), ``rejected``, ``expired``,
            ``damaged``.
        text: the reason, with a traceback where there is one.
    """

    at: int
    worker: str
    outcome: str
    text: str


@dataclass(frozen=True)
class Story:
    """The attempts of one item that did not end it well.

    Attributes:
        failures, losses: how often it has failed, and has lost its worker.
        endings: of the last attempts.
        doubts: how often nobody knew who had it, or whether anybody had.
    """

    failures: int = 0
    losses: int = 0
    endings: tuple[Ending, ...] = ()
    doubts: int = 0

    @property
    def attempts(self) -> int:
        """The number of attempts."""
        return self.failures + self.losses + self.doubts

    @property
    def reason(self) -> str:
        """The end of the last attempt, in words."""
        return f"{self.endings[-1].outcome}: {self.endings[-1].text}" if self.endings else ""

    def with_ending(self, ending: Ending) -> Story:
        """The story with one more end."""
        ending = replace(ending, text=ending.text[-_TEXT:])
        return Story(
            self.failures + (ending.outcome == "failed"),
            self.losses + (ending.outcome == LOST),
            (*self.endings, ending)[-_TOLD:],
            self.doubts + (ending.outcome == IN_DOUBT),
        )

    def again(self) -> Story:
        """The story of an item that is tried again as often as a new one."""
        return replace(self, failures=0, losses=0, doubts=0)

    def to_bytes(self) -> bytes:
        """The story as the store keeps it; empty if nothing was told yet."""
        return json.dumps(asdict(self)).encode() if self.endings else b""

    @classmethod
    def from_bytes(cls, raw: bytes) -> Story:
        """The inverse of :meth:`to_bytes`."""
        if not raw:
            return cls()
        told = json.loads(raw)
        endings = tuple(Ending(**each) for each in told["endings"])
        return cls(told["failures"], told["losses"], endings, told.get("doubts", 0))
