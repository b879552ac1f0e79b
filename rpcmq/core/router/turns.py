"""Turns: what one peer sends is worked on for a while, then others are heard and the rest waits.

A message can cost the router far more than its own handling: a copy for each subscriber, the states of a match,
the rows of a view. What does so says how many *steps* it has taken; a turn ends with the message that takes it
beyond :data:`TURN_STEPS`. What is left of the batch waits in its link's inbox, in its order and with all that the
link sends after it, and is neither counted as received nor acknowledged before it is handled: a sender that keeps
to a window slows down, and one that resumes sends it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rpcmq.core.router.links import Link, LinkState
from rpcmq.wire import size_of

__all__ = ["ERROR_STEPS", "TURN_STEPS", "Turns"]

#: A step is the work of one copy of an event, about a microsecond. Ordinary messages count one each, and only between
#: batches: a batch of them is handled in one go.
TURN_STEPS = 5_000
#: What it takes to refuse a message: to say why, count it, and note it for the log.
ERROR_STEPS = 25
#: What a waiting message takes beside its bytes.
_OVERHEAD_BYTES = 100


class Turns:
    """Steps taken in this turn, and the links whose messages wait for another."""

    __slots__ = ("spent", "waiting")

    def __init__(self) -> None:
        self.spent = 0
        #: Links of which messages wait, in the order of their turns.
        self.waiting: deque[Link] = deque()

    @property
    def is_over(self) -> bool:
        """Whether others are to be heard before more is handled."""
        return self.spent > TURN_STEPS

    @property
    def is_anybody_waiting(self) -> bool:
        """Whether :meth:`next_link` has one."""
        return bool(self.waiting)

    def spend(self, steps: int) -> None:
        """Count ``steps``."""
        self.spent += steps

    def put_off(self, link: Link, parts: Sequence[bytes]) -> None:
        """Let ``parts`` of ``link`` wait, behind those that do already."""
        if not link.inbox:
            self.waiting.append(link)
        link.inbox.extend(parts)
        link.inbox_bytes += sum(map(size_of, parts)) + _OVERHEAD_BYTES * len(parts)

    def next_link(self) -> Link | None:
        """The link whose turn it is now, which begins with no steps taken; None: nobody waits."""
        self.spent = 0
        while self.waiting:
            link = self.waiting.popleft()
            if link.inbox and link.state is not LinkState.ENDED:
                return link
        return None

    def take(self, link: Link) -> bytes:
        """The message of ``link`` that is to be handled next."""
        part = link.inbox.popleft()
        link.inbox_bytes -= size_of(part) + _OVERHEAD_BYTES
        return part

    def end(self, link: Link, handled: Sequence[bytes]) -> None:
        """The turn of ``link``, in which ``handled`` were, is over; what still waits has another."""
        if link.state is LinkState.ENDED:
            return
        if handled:
            link.note_received(len(handled), sum(map(size_of, handled)))
        if link.inbox:
            self.waiting.append(link)
        else:
            # It may have asked while they waited, and be waiting itself.
            link.acknowledge()
