"""The clock of an owner's queues, by which delays, expiry and what is kept for a time are measured.

It outlives the process, so it cannot be a monotonic one; and a machine's clock is set: at its first start by hours or
years, now and then by people. An item that is to run in a minute must neither wait for a month then, nor run at once.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from struct import Struct

from rpcmq.server.log import log_event
from rpcmq.store.contract import Note

__all__ = ["CLOCK", "QueueClock"]

log = logging.getLogger("rpcmq.queue")

#: The name of the note with what it showed last.
CLOCK = "clock"
#: The time that it showed, and how long the machine had run (milliseconds); then which start of the machine that was.
_NOTE = Struct(">QQ")
#: It is noted so often (seconds): so much may be forgotten where the machine fails and its clock was put back.
_EVERY = 60.0
#: It is told of where it is so far from the store's (seconds).
_NOTABLE = 60.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class QueueClock:
    """Shows milliseconds since 1970, and goes on from life to life whatever the clock of the machine is set to.

    It begins with what it had noted and the time since, where the machine has not been started again. Else it begins
    with the store's clock, but never before what it had noted.

    Args:
        store: what the clock of the store's machine showed when it was opened (milliseconds); 0: take this machine's.
        noted: of its last life; empty: there was none.

    Attributes:
        ahead: seconds by which it was ahead of the store's clock at first.
    """

    def __init__(self, store: int, noted: bytes) -> None:
        store = store or int(time.time() * 1000)
        begin = _continued(noted, store)
        self.ahead = (begin - store) / 1000
        self._offset = begin / 1000 - time.monotonic()
        self._next_note = 0.0
        if abs(self.ahead) >= _NOTABLE:
            _tell(self.ahead)

    def __call__(self, now: float) -> int:
        """The time at ``now`` (monotonic seconds)."""
        return int((now + self._offset) * 1000)

    def note(self, now: float) -> Note | None:
        """A note of it for the next life; None: it was noted less than a minute ago."""
        if now < self._next_note:
            return None
        self._next_note = now + _EVERY
        boot, runs = _machine()
        return Note(CLOCK, _NOTE.pack(self(time.monotonic()), runs) + boot)


def _continued(noted: bytes, store: int) -> int:
    if len(noted) < _NOTE.size:
        return store
    last, ran = _NOTE.unpack_from(noted)
    boot, runs = _machine()
    if boot and boot == noted[_NOTE.size :] and runs >= ran:
        return int(last + runs - ran)
    return max(store, int(last))


def _machine() -> tuple[bytes, int]:
    """The start of the machine that this is, and the milliseconds since; nothing where the system does not tell."""
    try:
        boot = _BOOT.read_bytes().strip()
    except OSError:
        return b"", 0  # no Linux
    return boot, int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)


def _tell(ahead: float) -> None:
    text = (
        f"the clock of the queues is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} that of their store's "
        "machine, which was set meanwhile: it goes on from their last life, so that what is delayed or expires is "
        "neither early nor late"
    )
    log_event(log, logging.WARNING, "queue clock", text, seconds=ahead)
