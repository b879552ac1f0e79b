"""The items of a multicall, one by one."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, Self

from rpcmq.client.process import Process
from rpcmq.client.results import check_end, decoded, result_of
from rpcmq.core.process.call import Call
from rpcmq.errors import UsageError
from rpcmq.transport.forks import OF_THE_PARENT
from rpcmq.transport.home import Home, Housed, at_home_here
from rpcmq.wire import KIND_AT, Kind

__all__ = ["OVER", "Items", "Stream"]

_END = int(Kind.END)
#: In place of the result of a stream that has given all of its items.
OVER: Any = object()


class Items:
    """The items of a multicall, without the waits for them."""

    __slots__ = ("_call", "_payloads", "_process")

    def __init__(self, process: Process, call: Call | None) -> None:
        self._process = process
        self._payloads = process.payloads
        #: None: it is over.
        self._call = call

    def _before_wait(self, call: Call) -> None:
        if call.done:
            return
        # The timeout of this item starts now, not at the previous item.
        is_late = monotonic() - call.sign_of_life > (call.timeout or 0.0) / 10
        if is_late or self._process.calls.read_streams.is_worth_a_grant(call):
            self._process.grant(call)

    def _take(self, call: Call) -> Any:
        """Decode the next of the items that have come, and have the service send more."""
        message = call.items.pop(0)
        if self._process.calls.read_streams.take(call, message) and not call.done:
            self._process.grant(call)
        return decoded(self._payloads, call, message)

    def _end_of(self, call: Call) -> Any:
        """The result of a call that has ended; :data:`OVER` if there were all items."""
        if call.error is None and call.answer is not None and call.answer[KIND_AT] == _END:
            check_end(self._payloads, call, call.answer)
            return OVER
        return result_of(self._payloads, call)


class Stream(Items):
    """Iterates over the items of a multicall as they come.

    Args:
        client: keeps its process open, and has a home.
        call: the request, sent already.
        again: starts the call again if it ended for a reason that another attempt mends; called once.
    """

    def __init__(self, client: Housed, process: Process, call: Call, again: Callable[[Call], Call | None]) -> None:
        super().__init__(process, call)
        self._client = client
        self.shell = client.shell
        self._again: Callable[[Call], Call | None] | None = again

    def __iter__(self) -> Self:
        return self

    @property
    def home(self) -> Home:
        """The home of the client."""
        return self._client.home

    def __next__(self) -> Any:
        # Before anything in here is touched: in the child of a fork it is a copy of what the parent uses.
        if self._process.connection.abandoned:
            raise UsageError(OF_THE_PARENT)
        return self._next()

    @at_home_here
    def _next(self) -> Any:
        call = self._call
        if call is None:
            raise StopIteration
        if not call.items:
            self._before_wait(call)
            self._process.wait(call, until_item=True)
        if call.items:
            return self._take(call)
        again, self._again = self._again, None
        self._call = None if again is None else again(call)
        if self._call is not None:
            return self._next()
        result = self._end_of(call)
        if result is OVER:
            raise StopIteration
        return result

    def close(self) -> None:
        """Cancel the call. In the child of a fork: leave it to the parent."""
        if not self._process.connection.abandoned:
            self._close()

    @at_home_here
    def _close(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            self._process.cancel(call)

    def __del__(self) -> None:
        # Garbage is collected in whatever thread happens to notice it; the handler of a signal may have interrupted the
        # making of this.
        call = getattr(self, "_call", None)
        if call is not None and not call.done and not self._process.connection.abandoned:
            self._process.cancel_soon(call)
