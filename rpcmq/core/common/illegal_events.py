"""Illegal events: an engine is told something that its transition table does not have.

An illegal event of a *peer* is a :class:`~rpcmq.errors.ProtocolError`, counted as any other: peers may say anything.
An illegal event of *this program* (a shell that reports a connection twice) is a defect. It changes no state. In tests,
which set :data:`strict`, it raises; in production it is counted, and reported the first time.
"""

from __future__ import annotations

from collections import Counter

__all__ = ["IllegalEvent", "IllegalEvents", "raise_illegal_events"]


class IllegalEvent(RuntimeError):
    """An engine was told something that is impossible in its state."""


_strict = False
#: In tests: those raised since :func:`raise_illegal_events` was called. A hub prints what its callbacks raise, and so
#: the tests ask for them when they are over.
raised: list[str] = []


def raise_illegal_events() -> None:
    """Have illegal events raise from now on; for tests."""
    global _strict
    _strict = True
    raised.clear()


class IllegalEvents:
    """The illegal events of one engine.

    Attributes:
        counts: by text.
    """

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, text: str) -> IllegalEvent | None:
        """Count an illegal event.

        Returns:
            The error to report, if it is the first of its kind.

        Raises:
            IllegalEvent: in tests.
        """
        self.counts[text] += 1
        if _strict:
            raised.append(text)
            raise IllegalEvent(text)
        return IllegalEvent(text) if self.counts[text] == 1 else None
