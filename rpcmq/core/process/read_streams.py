"""The caller's side of streams that answer calls: how much more their consumers are granted, as items are taken.

A consumer begins with what it may send unasked. From then on as much is granted as was taken, and more where the window
of bytes is still smaller than it may be. All streams that are read in a process share a bound.
"""

from __future__ import annotations

from rpcmq.core.common.stream_credit import UNASKED_BYTES, UNASKED_ITEMS
from rpcmq.core.process.call import Call, TakenItems
from rpcmq.core.process.received_streams import LEAST_WINDOW_BYTES, SHARED_BYTES, WINDOW_BYTES
from rpcmq.core.process.uplink import Uplink
from rpcmq.wire import STAMP, Flag, flags_of, payload_of
from rpcmq.wire.stream_grant import grant_payload

__all__ = ["ReadStreams", "takes_byte_credit"]

#: Taken items, and bytes, that are granted anew in the moment in which nothing else has come.
_WORTH_A_GRANT = UNASKED_BYTES // 2


class ReadStreams:
    """The streams of the calls of one uplink that bytes are granted for.

    Args:
        calls: those that have not ended, by key.
    """

    def __init__(self, calls: dict[bytes, Call]) -> None:
        self._calls = calls
        #: Keys of calls that were granted bytes; of some the call has ended since.
        self._granted: set[bytes] = set()
        self._grants_until_looked = 0

    @staticmethod
    def take(call: Call, message: bytes) -> bool:
        """An item of ``call`` was taken; return whether more is to be granted now. Perhaps beside the client's loop."""
        taken = call.taken
        if taken is None:
            taken = call.taken = TakenItems()
        if flags_of(message) & Flag.BYTE_CREDIT:
            if taken.stamp != message[STAMP]:  # this consumer has begun with what it may send unasked
                taken.stamp, taken.items, taken.size_bytes = message[STAMP], 0, 0
            taken.size_bytes += len(payload_of(message))
        taken.items += 1
        return taken.items >= UNASKED_ITEMS // 2 or taken.size_bytes > taken.window_bytes // 2

    @staticmethod
    def is_worth_a_grant(call: Call) -> bool:
        """Return whether enough was taken of ``call`` to grant it before its caller waits for the next item."""
        return call.taken is not None and call.taken.size_bytes >= _WORTH_A_GRANT

    def payload(self, call: Call, items: int, size_bytes: int, stamp: bytes) -> bytes:
        """The payload of GRANT for what was taken of ``call``, and what its window lacks. In the client's loop.

        Args:
            items, size_bytes: taken since the last one.
            stamp: of the consumer that has sent them; empty: it counts no bytes.
        """
        taken = call.taken
        if taken is None or not stamp or not items:
            return items.to_bytes(4)
        if taken.granted_to != stamp:
            taken.granted_to, taken.window_bytes = stamp, UNASKED_BYTES
        left = taken.window_bytes - size_bytes
        more = max(0, self._window(call) - left)
        taken.window_bytes = left + more
        return grant_payload(items, more)

    def _window(self, call: Call) -> int:
        """The bytes of ``call`` that may have come, or come, and were not taken."""
        granted = self._granted
        granted.add(call.key)
        self._grants_until_looked -= 1
        if self._grants_until_looked < 0:
            granted &= self._calls.keys()
            granted.add(call.key)
            self._grants_until_looked = len(granted)
        return max(LEAST_WINDOW_BYTES, min(WINDOW_BYTES, SHARED_BYTES // len(granted)))


def takes_byte_credit(uplink: Uplink) -> bool:
    """Return whether the router takes grants of items in bytes; it may, while there is none."""
    return uplink.router is None or uplink.router.byte_credit
