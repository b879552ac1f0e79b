"""Losses of casts and events that this process has sent: counted, and summed up in lines for the log."""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.core.common.drops import Drop, Drops, drop_text
from rpcmq.core.common.log_limit import LogLimit
from rpcmq.core.process.retained_casts import RetainedCasts
from rpcmq.errors import CallError
from rpcmq.printable import printable
from rpcmq.wire import KIND_AT, LOW_FLAGS_AT, Address, Flag, Kind, address_of
from rpcmq.wire.bodies import DroppedBody

__all__ = ["Losses"]

#: Memory bound of the table of drops (bytes), and characters of a name in it.
_MAX_DROPS_BYTES = 256 << 10
_MAX_NAME = 600


class Losses:
    """Drops that the router reports, casts that it refused, and retained casts that were discarded.

    Attributes:
        drops: of this process's messages.
        discarded: how many discarded casts were counted.
        on_loss: owned by the shell: called with a sentence for the log.
    """

    __slots__ = ("_discarded_log", "discarded", "drops", "on_loss")

    def __init__(self) -> None:
        self.drops = Drops(_MAX_DROPS_BYTES)
        self.discarded = 0
        self._discarded_log: LogLimit[str] = LogLimit()
        self.on_loss: Callable[[str], None] = lambda text: None

    def on_dropped(self, now: float, message: bytes) -> None:
        """Handle DROPPED.

        Raises:
            ProtocolError: its body is malformed.
        """
        for topic, verb, reason, count in DroppedBody.of(message).dropped:
            self.drops.add(now, Drop(_name(topic), _name(verb), _name(reason)), count)

    def add_refused(self, now: float, message: bytes, error: CallError) -> None:
        """Count the cast or event ``message``, which was refused for good. The shell has logged it, with its reason."""
        verb = "cast"
        if message[KIND_AT] == Kind.PUBLISH:
            verb = "event"
        elif message[LOW_FLAGS_AT] & Flag.FANOUT:
            verb = "fanout"
        reason = error.outcome.name.lower().replace("_", " ")
        self.drops.add(now, Drop(str(Address.decode(address_of(message))), verb, reason), log=False)

    def report(self, now: float, retained: RetainedCasts) -> None:
        """Log the lines that are due.

        Args:
            retained: the casts that this process retains.
        """
        if retained.discarded > self.discarded:
            self._discarded_log.add(now, "", retained.discarded - self.discarded)
            self.discarded = retained.discarded
        for drop, count in self.drops.due(now):
            self.on_loss(drop_text(drop, count))
        for _, count in self._discarded_log.due(now):
            self.on_loss(
                f"{count} casts waiting for a consumer are held by the router only, and are lost if it is killed: "
                f"this process retains at most {retained.max_messages} of them (cast_kept) and "
                f"{retained.max_bytes} bytes (cast_kept_bytes)"
            )

    def deadlines(self) -> tuple[float | None, float | None]:
        """The times at which :meth:`report` has lines (monotonic seconds)."""
        return self.drops.next_deadline(), self._discarded_log.next_deadline()


def _name(value: str) -> str:
    """Return a name received from the router, bounded for counters and the log."""
    return printable(value[:_MAX_NAME], "?")
