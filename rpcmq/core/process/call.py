"""One awaited message of this process, from its start until its waiter has its answer or error.

Its states and events are those of :mod:`rpcmq.core.process.call_states`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rpcmq.core.common.stream_credit import UNASKED_BYTES
from rpcmq.core.process.call_states import CallState
from rpcmq.errors import CallError
from rpcmq.wire import LOW_FLAGS_AT, Flag, size_of
from rpcmq.wire.hedge import HedgeTerms

__all__ = ["Call", "TakenItems", "taken_of"]

#: Bounds of unread progress reports: their number, and their approximate bytes.
_MAX_PROGRESS = 100
_MAX_PROGRESS_BYTES = 16 << 20


class TakenItems:
    """The items of a stream that were taken by the caller since its consumer was last granted more.

    Attributes:
        items, size_bytes: their number, and the bytes of their payloads where their consumer counts them.
        stamp: of the items of that consumer; empty: it counts no bytes.
        granted_to, window_bytes: the consumer that was granted bytes, and those that may have come, or come, of it.
    """

    __slots__ = ("granted_to", "items", "size_bytes", "stamp", "window_bytes")

    def __init__(self) -> None:
        self.items = self.size_bytes = 0
        self.stamp = self.granted_to = b""
        self.window_bytes = UNASKED_BYTES


class Call:
    """An awaited message: a call, a multicall, or a cast to be confirmed."""

    __slots__ = (
        "address", "answer", "cancelled", "error", "flags", "hedge", "items", "key", "message", "progress",
        "seal", "sent_at", "sign_of_life", "silence", "slot", "taken", "timeout", "waiter", "withdrawn",
    )  # fmt: skip

    def __init__(self, address: str, flags: int, timeout: float | None) -> None:
        self.address = address
        self.flags = flags
        #: Seconds; for a stream, those between items.
        self.timeout = timeout
        self.key = b""
        self.message = b""
        self.slot: dict[Any, Call] | None = None
        self.sent_at = 0.0
        #: The last message: REPLY, FAULT, END or CONFIRM.
        self.answer: bytes | None = None
        self.error: CallError | None = None
        self.items: list[bytes] = []
        self.progress: list[bytes] = []
        #: Owned by the shell: the signature tag to which answers are bound, if the request is signed.
        self.seal: Any = None
        #: Of the items of a stream; None: none was taken.
        self.taken: TakenItems | None = None
        #: Longest silence allowed (seconds), and the last sign of life.
        self.silence: float | None = None
        self.sign_of_life = 0.0
        #: Owned by the shell: called when the call has ended, or has an item or progress.
        self.waiter: Callable[[], object] | None = None
        #: Cancelled before any router received it.
        self.withdrawn = False
        #: The terms on which several consumers may have it; None: one has it.
        self.hedge: HedgeTerms | None = None
        #: Whether nobody waits for it any more: it was cancelled, and not started again.
        self.cancelled = False

    def add_progress(self, message: bytes) -> None:
        """Queue a progress report for the waiter; if it does not keep up, only the newest are kept."""
        progress = self.progress
        progress.append(message)
        size = sum(map(size_of, progress)) if message[LOW_FLAGS_AT] & Flag.DETACHED else 0
        while len(progress) > _MAX_PROGRESS or (size > _MAX_PROGRESS_BYTES and len(progress) > 1):
            size -= size_of(progress.pop(0))

    @property
    def state(self) -> CallState:
        """Its state, which follows from what was said of it."""
        if self.answer is not None:
            return CallState.ANSWERED
        if self.error is not None:
            return CallState.FAILED
        if self.cancelled:
            return CallState.CANCELLED
        return CallState.OPEN if self.key else CallState.NEW

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.answer is not None or self.error is not None


def taken_of(call: Call) -> tuple[int, int, bytes]:
    """Return items, bytes and stamp of what was taken of ``call`` since this was asked last."""
    taken = call.taken
    if taken is None:
        return 0, 0, b""
    found = taken.items, taken.size_bytes, taken.stamp
    taken.items = taken.size_bytes = 0
    return found
