"""The calls of a process that have not ended, by key, by deadline and by allowed silence."""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.core.common.timing_wheel import DeadlineWheel
from rpcmq.core.process.call import Call
from rpcmq.errors import CallError
from rpcmq.wire import KEY

__all__ = ["CallTable"]


class CallTable:
    """Open calls.

    Args:
        report_illegal: called with the text of an illegal event (:mod:`rpcmq.core.process.call_states`).

    Attributes:
        open: by key. The dict stays the same one.
        changed: calls whose waiters are to be woken. The list stays the same one.
        watched: those with a longest silence, by key.
        wheel: those with a timeout, by the time of their next check.
        not_accepted: keys of calls that a router which shuts down has refused to accept: they did not run.
    """

    __slots__ = ("_report_illegal", "changed", "not_accepted", "open", "watched", "wheel")

    def __init__(self, report_illegal: Callable[[str], None]) -> None:
        self._report_illegal = report_illegal
        self.open: dict[bytes, Call] = {}
        self.changed: list[Call] = []
        self.watched: dict[bytes, Call] = {}
        self.wheel: DeadlineWheel[Call] = DeadlineWheel()
        self.not_accepted: set[bytes] = set()

    def check_at(self, call: Call, due: float) -> None:
        """Have ``call``, which is in no slot of the wheel, checked at ``due``."""
        call.slot = self.wheel.slot(due)
        call.slot[call.key] = call

    def remove(self, call: Call) -> None:
        """Forget ``call``; its waiter is not woken."""
        self.open.pop(call.key, None)
        if call.slot is not None:
            call.slot.pop(call.key, None)
            call.slot = None
        if call.silence is not None:
            self.watched.pop(call.key, None)

    def fail(self, call: Call, error: CallError) -> None:
        """End ``call`` with ``error``, unless it has ended.

        Raises:
            IllegalEvent: it has, in tests.
        """
        if call.done:
            self._report_illegal(f"call: failed while it is {call.state.value}")
            return
        call.error = error
        self.remove(call)
        self.changed.append(call)

    def rekey(self, with_current_origin: Callable[[bytes], bytes]) -> None:
        """Give each call the key that follows from the new handle of this process."""
        calls = list(self.open.values())
        self.open.clear()
        for call in calls:
            old = call.key
            call.message = with_current_origin(call.message)
            call.key = call.message[KEY]
            self.open[call.key] = call
            if call.slot is not None:
                call.slot[call.key] = call.slot.pop(old)
            if self.watched.pop(old, None) is not None:
                self.watched[call.key] = call
