"""Items that several greenlets put at the same time, offered to their owner in one message.

A put waits for a sync of the disk, so where many are under way, many go on in the same turn of the loop. The first of
them sends what they put, and the others wait for its answer: a call for each costs all processes on the way more than
the item itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from rpcmq.client.queue.protocol import PutAnswer, Record
from rpcmq.client.queue.steps import Pause, Steps, Wait
from rpcmq.client.request import handling
from rpcmq.errors import CallError, LinkLost, PayloadError, RouterUnreachable
from rpcmq.transport.shell import WaitableEvent

__all__ = ["Send", "SharedOffers"]

#: Items of one message, and their bytes; a larger item goes alone.
_MOST, _MOST_BYTES = 256, 64 << 10
#: So many go together at the most, or a quarter of those under way if that is more: the disk is to have something to do
#: while the next ones come.
_FEW = 8

#: Offers items to an owner within so many seconds.
Send = Callable[[Sequence[Record], float], Steps[PutAnswer]]
#: Queue, owner, and whether a handler puts: a draining router takes what running handlers need.
_Key = tuple[str, str, bool]


class SharedOffers:
    """The offers of one client, made in its loop.

    Args:
        event: makes a flag to wait for there.
    """

    def __init__(self, event: Callable[[], WaitableEvent]) -> None:
        self._event = event
        self._under_way = 0
        #: Offers that others can still join.
        self._forming: dict[_Key, _Offer] = {}

    def offer(self, queue: str, owner: str, record: Record, seconds: float, send: Send) -> Steps[PutAnswer]:
        """Offer ``record`` once by ``send``, along with those of others who do so now. Alone it is sent at once.

        Raises:
            CallError, RouterUnreachable: as ``send`` does.
        """
        if not self._under_way or len(record.body) > _MOST_BYTES:
            return (yield from self._counted(send([record], seconds)))
        return (yield from self._counted(self._shared((queue, owner, handling() is not None), record, seconds, send)))

    def _counted(self, steps: Steps[PutAnswer]) -> Steps[PutAnswer]:
        self._under_way += 1
        try:
            return (yield from steps)
        finally:
            self._under_way -= 1

    def _shared(self, key: _Key, record: Record, seconds: float, send: Send) -> Steps[PutAnswer]:
        deadline = monotonic() + seconds
        offer = self._forming.get(key)
        most = min(_MOST, max(_FEW, self._under_way // 4))
        if offer is not None and offer.may_join(most, deadline):
            at = offer.add(record)
            yield Wait(offer.ended)
        else:
            offer = self._forming[key] = _Offer(self._event(), deadline)
            at = offer.add(record)
            yield from self._lead(key, offer, send)
        answer = offer.answer_to(at)
        # Refused are all or none: another one may be the reason.
        return answer or (yield from send([record], max(0.001, deadline - monotonic())))

    def _lead(self, key: _Key, offer: _Offer, send: Send) -> Steps[None]:
        """Send ``offer`` once those who can go on have joined it; whatever happens, they are told its end."""
        try:
            try:
                yield Pause(0.0)
            finally:
                if self._forming.get(key) is offer:
                    del self._forming[key]
            offer.answer = yield from send(offer.records, max(0.001, offer.deadline - monotonic()))
            offer.error = None
        except PayloadError:
            offer.error = None  # together they may be too large for somebody
        except (CallError, RouterUnreachable) as error:
            offer.error = error
        finally:
            offer.ended.set()


class _Offer:
    """Items of several puts.

    Attributes:
        ended: set at its end.
        deadline: of whoever sends it (monotonic seconds).
        answer: what came; None: each is to be offered alone.
        error: to be raised for all.
    """

    def __init__(self, ended: WaitableEvent, deadline: float) -> None:
        self.records: list[Record] = []
        self._size = 0
        self.ended = ended
        self.deadline = deadline
        self.answer: PutAnswer | None = None
        #: Unless there is another end: they ask again.
        self.error: CallError | RouterUnreachable | None = LinkLost("the put that had sent the item was interrupted")

    def may_join(self, most: int, deadline: float) -> bool:
        """Return whether an item to be put by ``deadline`` goes along: nobody waits for longer than they asked for."""
        return len(self.records) < most and self._size < _MOST_BYTES and self.deadline <= deadline

    def add(self, record: Record) -> int:
        """Add an item; return its place."""
        self.records.append(record)
        self._size += len(record.body)
        return len(self.records) - 1

    def answer_to(self, at: int) -> PutAnswer | None:
        """The answer to the item in place ``at``; None: it is to be offered alone.

        Raises:
            CallError, RouterUnreachable: there is none.
        """
        if self.error is not None:
            raise self.error.with_traceback(None)
        answer = self.answer
        if answer is None or len(self.records) == 1:
            return answer
        if answer.refusal:
            return None
        return PutAnswer("", [answer.numbers[at]], [0] if at in answer.others else [])
