"""The items of a multicall, for ``async for``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

from rpcmq.aio.bridge import Bridge
from rpcmq.aio.caller import Caller
from rpcmq.client.answers import OVER, Items
from rpcmq.core.process.call import Call

__all__ = ["Stream"]


class Stream(Items):
    """Iterates over the items of a multicall as they come.

    The request is sent when the first item is asked for. A loop that is left early cancels the call, as
    :meth:`aclose` does.

    Args:
        caller: sends it.
        start: sends the request.
    """

    __slots__ = ("_bridge", "_caller", "_may_start_again", "_start", "_started")

    def __init__(self, caller: Caller, start: Callable[[], Awaitable[Call]]) -> None:
        super().__init__(caller.bridge.process, None)
        self._caller = caller
        self._bridge: Bridge = caller.bridge
        self._start = start
        self._started = False
        #: Once, in another format.
        self._may_start_again = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if not self._started:
            self._started = True
            self._call = await self._start()
        while (call := self._call) is not None:
            if not call.items:
                self._before_wait(call)
                try:
                    await self._bridge.wait(call, until_item=True)
                except BaseException:
                    self._call = None
                    raise
            if call.items:
                return await self._opened(self._take, call)
            self._call = None
            if self._may_start_again and self._caller.sender.learn_format(call):
                self._may_start_again = False
                self._call = await self._start()
                continue
            result = await self._opened(self._end_of, call)
            if result is not OVER:
                return result
        raise StopAsyncIteration

    async def _opened(self, function: Callable[[Call], Any], call: Call) -> Any:
        return function(call) if self._bridge.posts else await self._bridge.in_thread(function, call)

    async def aclose(self) -> None:
        """Cancel the call, unless it is over."""
        self._cancel()

    def _cancel(self) -> None:
        self._started = True
        call, self._call = self._call, None
        if call is not None and not self._process.connection.abandoned:
            self._process.cancel(call)

    def __del__(self) -> None:
        # Garbage is collected in whatever thread happens to notice it; the handler of a signal may have interrupted the
        # making of this.
        call = getattr(self, "_call", None)
        if call is not None and not call.done and not self._process.connection.abandoned:
            self._process.cancel_soon(call)
