"""Fair turns: the messages of one peer are handled for a bounded time, then others get their turn.

A message can cost the router far more than its own handling: a copy for each subscriber, the states of a match,
the rows of a view. What does so says how many *steps* it has taken; a turn ends with the message that takes it
beyond :data:`TURN_STEPS`. What is left of the batch waits in its link's inbox, in its order and with all that the
link sends after it, and is neither counted as received nor acknowledged before it is handled: a sender that keeps
to a window slows down, and one that resumes sends it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.model import Link
from rpcmq.wire import size_of

__all__ = ["ERROR_STEPS", "TURN_STEPS", "Turns"]

#: A step is the work of one copy of an event, about a microsecond. Ordinary messages count one each, and only between
#: batches: a batch of them is handled without interruption.
TURN_STEPS = 5_000
#: Cost of refusing a message: explaining, counting and logging it.
ERROR_STEPS = 25
#: Memory of a waiting message beside its bytes.
_OVERHEAD_BYTES = 100


class Turns:
    """The steps used in this turn, and the links waiting for another."""

    __slots__ = ("spent", "waiting")

    def __init__(self) -> None:
        self.spent = 0
        #: Links of which messages wait, in the order of their turns.
        self.waiting: deque[Link] = deque()

    @property
    def is_over(self) -> bool:
        """Whether the turn's steps are used up."""
        return self.spent > TURN_STEPS

    @property
    def is_anybody_waiting(self) -> bool:
        """Whether :meth:`next_link` has one."""
        return bool(self.waiting)

    def spend(self, steps: int) -> None:
        """Count ``steps``."""
        self.spent += steps

    def defer(self, link: Link, messages: Sequence[bytes]) -> None:
        """Queue ``messages`` of ``link`` behind those that wait already."""
        if not link.inbox:
            self.waiting.append(link)
        link.inbox.extend(messages)
        link.inbox_bytes += sum(map(size_of, messages)) + _OVERHEAD_BYTES * len(messages)

    def next_link(self) -> Link | None:
        """Start the turn of the next link and return it; None if none waits."""
        self.spent = 0
        while self.waiting:
            link = self.waiting.popleft()
            if link.inbox and link.state is not LinkState.ENDED:
                return link
        return None

    def take(self, link: Link) -> bytes:
        """Take the next message of ``link``."""
        message = link.inbox.popleft()
        link.inbox_bytes -= size_of(message) + _OVERHEAD_BYTES
        return message

    def end(self, link: Link, handled: Sequence[bytes]) -> None:
        """End the turn of ``link``, in which ``handled`` messages were handled; the rest gets another."""
        if link.state is LinkState.ENDED:
            return
        if handled:
            link.count_received(len(handled), sum(map(size_of, handled)))
        if link.inbox:
            self.waiting.append(link)
        else:
            # It may have queued more meanwhile.
            link.acknowledge()
