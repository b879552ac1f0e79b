"""An append-only history: one file a process, one JSON line an event, merged by time afterwards.

Each event is one small write to a file that is open for appending, so a process that is killed loses at most
the event that it was about to write, and what it could not write because the disk was full. Times are of the
system-wide monotonic clock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from heapq import merge
from operator import attrgetter
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Self

from rpcmq.errors import RpcError
from rpcmq.transport.originals import allocate_lock

__all__ = ["ANSWERS", "SILENT", "Event", "HistoryError", "Recorder", "What", "line_of", "merged", "read"]


class HistoryError(RpcError):
    """A history cannot be read."""


class What(StrEnum):
    """Kinds of events. In brackets: the fields beside time, process and id."""

    #: A caller is about to send [verb, topic, idempotent, confirm, timeout; size: if it is large; quick: its handler
    #: does not wait; misspelt: nobody has the topic; nested: a handler sends it].
    SUBMIT = "submit"
    #: The router has taken it from its sender.
    ACCEPT = "accept"
    #: The sender of a cast knows that.
    CONFIRM = "confirm"
    #: The router gives it to a consumer [to, attempt].
    DISPATCH = "dispatch"
    #: The verb of a plain program has returned: what it sent is on its way.
    RETURN = "return"
    #: A handler begins [topic, attempt; changed: what came is not what was sent].
    START = "start"
    #: A handler is done [failed].
    FINISH = "finish"
    #: It has ended for its caller [outcome; of: what the result says that it answers; changed, as above].
    END = "end"
    #: The router has recorded how it ended [outcome].
    SETTLE = "settle"
    #: A process has a session with the router [resumed; away: seconds without; link: what a real router calls it].
    LINKED = "linked"
    #: The router says of a process [state].
    DECLARED = "declared"
    #: A fault begins; the id says which [target].
    FAULT = "fault"
    #: A fault is over; the id says which [target].
    HEALED = "healed"
    #: A process has done all it was asked to do [left: casts that the router has not taken].
    DONE = "done"
    #: Figures of a process [any].
    COUNTED = "counted"
    #: A process writes of the router into its log; the id says what: :data:`SILENT` or :data:`ANSWERS`.
    SAYS = "says"
    #: A plain program computes or sleeps from now on [seconds].
    BUSY = "busy"
    #: The writer has counted dropped messages of the topic named by the id [verb, reason, count].
    DROPPED = "dropped"
    #: The same for all topics of a router, which the id names [verb, reason, count].
    DROPPED_IN_ALL = "dropped in all"
    #: A router that was told to stop has ended in order.
    EXITED = "exited"


SILENT = "silent"
ANSWERS = "answers"


class Event(NamedTuple):
    """One thing that happened.

    Attributes:
        at: seconds.
        process: who saw it.
        what: see :class:`What`.
        id: of the call, cast or fault.
        fields: what else there is to say.
    """

    at: float
    process: str
    what: str
    id: str
    fields: dict[str, Any]


def line_of(event: Event) -> bytes:
    """``event`` as a line of a history file."""
    return json.dumps([round(event.at, 6), *event[1:]], separators=(",", ":"), sort_keys=True).encode() + b"\n"


class Recorder:
    """Writes the history of one process.

    Args:
        path: the file; it is made if need be, and appended to.
        process: the name of the process in it.
    """

    def __init__(self, path: str | Path, process: str) -> None:
        self.process = process
        #: Programs of threads write, too.
        self._lock = allocate_lock()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        #: Events not yet written for want of disk space.
        self._unwritten = bytearray()

    def write(self, what: str, id: str = "", /, **fields: Any) -> None:
        """Write down that something happens now; if that fails, it is written together with what happens next."""
        with self._lock:
            self._unwritten += line_of(Event(monotonic(), self.process, what, id, fields))
            self._flush()

    def _flush(self) -> None:
        # What is watched must not fail because its observer cannot write.
        with suppress(OSError):
            del self._unwritten[: os.write(self._file, self._unwritten)]

    def close(self) -> None:
        """Nothing more is written."""
        with self._lock:
            self._flush()
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def read(path: str | Path) -> Iterator[Event]:
    """The events of one file, in order. A last line that was not written to its end is left out.

    Raises:
        HistoryError: a line is no event.
    """
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                at, process, what, id, fields = json.loads(line)
            except (TypeError, ValueError):
                raise HistoryError(f"{path}, line {number}: {line[:80]!r} is no event") from None
            yield Event(at, process, what, id, fields)


def merged(paths: Iterable[str | Path]) -> Iterator[Event]:
    """The events of all files, by time.

    Raises:
        HistoryError: a line is no event.
    """
    return merge(*map(read, paths), key=attrgetter("at"))
