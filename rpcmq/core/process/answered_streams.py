"""The consumer's side of streams that answer calls: how much of each may be sent.

A consumer sends a few items unasked, and as many more as the caller grants: items, and bytes of their payloads where
the caller, and the routers of both, know these.
"""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.core.common.stream_credit import StreamCredit, unasked_credit
from rpcmq.core.process.read_streams import takes_byte_credit
from rpcmq.core.process.task import Task
from rpcmq.core.process.uplink import Uplink
from rpcmq.wire import Flag, Kind
from rpcmq.wire.stream_grant import reply_grant_of

__all__ = ["AnsweredStreams"]

_BYTE_CREDIT = Flag.BYTE_CREDIT


class AnsweredStreams:
    """The credit of the tasks of one uplink that are answered item by item.

    Args:
        running: the task that a message of its caller is about; None: it has ended.
        on_change: called with a task of which more may be sent.
    """

    def __init__(
        self, uplink: Uplink, running: Callable[[bytes], Task | None], on_change: Callable[[Task], object]
    ) -> None:  # fmt: skip
        self._uplink = uplink
        self._running = running
        self._on_change = on_change
        uplink.handle(Kind.GRANT, self.grant)

    def grant(self, now: float, message: bytes) -> None:
        """Extend the credit of a stream.

        Raises:
            ProtocolError: it is malformed.
        """
        items, size_bytes = reply_grant_of(message)
        task = self._running(message)
        if task is not None:
            self.credit_of(task).add(items, size_bytes)
            self._on_change(task)

    def credit_of(self, task: Task) -> StreamCredit:
        """The credit of the answer to ``task``."""
        credit = task.credit
        if credit is None:
            uplink = self._uplink
            counts_bytes = task.flags & _BYTE_CREDIT and task.sender is uplink and takes_byte_credit(uplink)
            credit = task.credit = unasked_credit(bool(counts_bytes))
        return credit

    def use(self, task: Task, size_bytes: int) -> int:
        """Use credit for an item with so many bytes; return the flags that it is to have."""
        credit = self.credit_of(task)
        credit.items -= 1
        if not credit.counts_bytes:
            return 0
        credit.size_bytes -= size_bytes
        return _BYTE_CREDIT
