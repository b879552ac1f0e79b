"""Turns of requests that several consumers of an event loop share: at most so many run at once."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Turns"]


class Turns:
    """Lets at most ``most`` requests run at once; where those of several consumers wait, the consumers take turns."""

    def __init__(self, most: int) -> None:
        self._free = most
        #: The consumers whose requests wait; the first one is next.
        self._shares: deque[TurnShare] = deque()

    def share(self) -> TurnShare:
        """The turns of one consumer, in the order in which it asks for them."""
        return TurnShare(self)

    async def acquire(self, share: TurnShare) -> None:
        """Wait for a turn."""
        if self._free > 0 and not self._shares:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        share.waiting.append(turn)
        if len(share.waiting) == 1:
            self._shares.append(share)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """End a turn."""
        self._free += 1
        while self._shares and self._free > 0:
            share = self._shares.popleft()
            turn = share.waiting.popleft()
            if share.waiting:
                self._shares.append(share)
            if not turn.done():
                self._free -= 1
                turn.set_result(None)


class TurnShare:
    """The turns of one consumer.

    Attributes:
        waiting: requests that wait for their turn.
    """

    __slots__ = ("_turns", "waiting")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        """Wait for a turn, which ends with :meth:`release`."""
        await self._turns.acquire(self)

    def release(self) -> None:
        """End a turn."""
        self._turns.release()
