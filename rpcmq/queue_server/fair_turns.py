"""Turns: what is asked of one store, begun caller by caller, so that one who asks for much delays others little.

The store answers in the order in which it is asked. So there is never more at it than a little, and what waits is
begun one request of each caller after the other. One that is much work has its turn when its caller was passed over so
often that it may have that much (deficit round robin): so little waits for little of each caller, also where somebody
has many callers, who all ask for much.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import NamedTuple

from rpcmq.client.queue.protocol import Crowded
from rpcmq.client.request import handling
from rpcmq.wire import ORIGIN_OF_KEY

__all__ = ["MOST_BYTES", "MOST_WORK", "End", "Turns", "caller_now"]

#: Work at the store at the same time, in items: that of the largest put.
MOST_WORK = 10_000
#: Bytes that wait for their turn. Beyond it those are refused who have more than their equal share.
MOST_BYTES = 64 << 20
#: Work that a caller may have begun more with each turn, in items.
_SHARE = 1024
#: Bytes that a request takes beside its content.
_OVERHEAD = 1024

End = Callable[[], None]


class _Turn(NamedTuple):
    work: int
    size: int
    begin: Callable[[End], object]
    fail: Callable[[BaseException], object]


class _Line:
    """The requests of one caller, their bytes, and the work that it may have begun."""

    __slots__ = ("allowed", "size", "turns")

    def __init__(self) -> None:
        self.turns: deque[_Turn] = deque()
        self.size = self.allowed = 0


class Turns:
    """Begins requests when it is their turn.

    Attributes:
        size: bytes that wait.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[bytes, _Line] = OrderedDict()
        self._work = 0
        self._is_beginning = False
        self.size = 0

    def take(
        self, caller: bytes, work: int, size: int, begin: Callable[[End], object],
        fail: Callable[[BaseException], object],
    ) -> None:  # fmt: skip
        """Have ``begin`` called when it is the turn of a request, now or later.

        Args:
            caller: whose request it is.
            work: for the store, in items.
            size: of the request (bytes).
            begin: gets a function, which is to be called when the request has ended, with whatever outcome.
            fail: gets what ``begin`` raises. It goes to the caller: who happens to be heard when it is the turn of the
                request may be another one.

        Raises:
            Crowded: too much waits, and the caller has more than its share of it.
        """
        if not self._lines and self._has_room(work) and not self._is_beginning:
            self._begin_one(work, begin, fail)
            return
        size += _OVERHEAD
        line = self._lines.get(caller)
        own = size + (line.size if line is not None else 0)
        callers = len(self._lines) + (line is None)
        if self.size + size > MOST_BYTES and own > MOST_BYTES // callers and self.size:
            raise Crowded(
                f"{self.size} bytes of puts and questions wait for the store, of which this caller has {own - size}, "
                f"more than its share of {MOST_BYTES}: send less at a time"
            )
        if line is None:
            line = self._lines[caller] = _Line()
        line.turns.append(_Turn(work, size, begin, fail))
        line.size += size
        self.size += size
        self._begin()

    def _begin(self) -> None:
        if self._is_beginning:
            return
        self._is_beginning = True
        try:
            # Nobody is chosen before there is room for anything: somebody may come who asks for less.
            while self._lines and self._has_room(1) and self._has_room(self._next().work):
                turn = self._take_next()
                self._begin_one(turn.work, turn.begin, turn.fail)
        finally:
            self._is_beginning = False

    def _has_room(self, work: int) -> bool:
        return not self._work or self._work + work <= MOST_WORK

    def _next(self) -> _Turn:
        """The first request of the first caller who may have it begun; he is the first of all then."""
        while True:
            caller, line = next(iter(self._lines.items()))
            turn = line.turns[0]
            if line.allowed < turn.work:
                line.allowed += _SHARE
            if line.allowed >= turn.work or len(self._lines) == 1:
                return turn
            self._lines.move_to_end(caller)

    def _take_next(self) -> _Turn:
        caller, line = next(iter(self._lines.items()))
        turn = line.turns.popleft()
        line.allowed = max(0, line.allowed - turn.work)
        line.size -= turn.size
        self.size -= turn.size
        if line.turns:
            self._lines.move_to_end(caller)
        else:
            del self._lines[caller]
        return turn

    def _begin_one(self, work: int, begin: Callable[[End], object], fail: Callable[[BaseException], object]) -> None:
        self._work += work
        under_way = [work]

        def end() -> None:
            if under_way:
                self._work -= under_way.pop()
                self._begin()

        try:
            begin(end)
        except Exception as error:
            fail(error)
            end()


def caller_now() -> bytes:
    """The origin of the request that is handled now."""
    current = handling()
    return b"" if current is None else current[0].key[ORIGIN_OF_KEY]
