"""What the router has sent to whom, as its dispatch log says: events for the history of a drill with real processes.

Each call and cast of a drill has a trace id that stands for its id; the records of the log have that. A record
names the consumer that had the message last. Of one that went to several, the log has an earlier one only if that
had a call, and had it when the call was a second old or somewhat more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from rpcmq.drill.history import Event, What
from rpcmq.latency.record import PART, SEALED, Problem, Spool, SpoolError, read_spool

__all__ = ["Dispatch", "Log", "events_of", "read_log", "trace_id_of", "traceparent_of"]

#: Two looks at one dispatch differ by less, as they are rounded to microseconds (seconds).
_SAME = 1e-5
#: The router reads the clock before it receives: what it sends may be stamped with a time so long before what led to it
#: (seconds). A process takes longer to start.
_STEP = 0.1


def trace_id_of(id: str) -> bytes:
    """The trace id of the call or cast ``id``."""
    return blake2b(id.encode(), digest_size=16).digest()


def traceparent_of(id: str) -> str:
    """The W3C traceparent of the call or cast ``id``."""
    trace_id = trace_id_of(id).hex()
    return f"00-{trace_id}-{trace_id[:16]}-01"


class Dispatch(NamedTuple):
    """The router has sent a message to a consumer.

    Attributes:
        at: seconds of the system-wide monotonic clock.
        trace_id: of the message.
        to: identity of the consumer's process.
        attempt: consumers that had it before and may have run it.
    """

    at: float
    trace_id: bytes
    to: str
    attempt: int


class Log:
    """What a dispatch log has, of all lives of its router.

    Attributes:
        dispatches: in the order in which they were found.
        is_complete: the last life of the router has ended in good order and has dropped nothing.
    """

    def __init__(self) -> None:
        self.dispatches: list[Dispatch] = []
        self.is_complete = False
        #: Life of the router and number of a message -> when it was dispatched.
        self._seen: dict[tuple[int, int], float] = {}

    def take(self, spool: Spool) -> None:
        """The next file: those of a life in their order, and the lives in theirs.

        Raises:
            SpoolError: it is damaged. That it was cut off by the death of the router is no damage.
        """
        self.is_complete = False
        try:
            self._take(spool)
        except SpoolError as error:
            if error.problem is not Problem.TRUNCATED:
                raise
        if spool.seal is not None:
            self.is_complete = spool.seal.final and not spool.seal.dropped

    def _take(self, spool: Spool) -> None:
        head = spool.head
        for record in spool:
            if record.trace_id is None or record.server_identity is None:
                continue
            # Both clocks were read together for the head: so the way back is exact, whatever the wall clock did since.
            at = head.monotonic + (record.received_us - head.wall_us + record.queued_us) / 1e6
            number = head.boot, record.seq
            # A call that took long was seen before its end.
            if number not in self._seen or abs(self._seen[number] - at) > _SAME:
                self.dispatches.append(Dispatch(at, record.trace_id, record.server_identity, record.attempt))
            if record.outcome is None:
                self._seen[number] = at


def read_log(directory: str | Path) -> Log:
    """All that routers that have ended have written into ``directory``.

    Raises:
        OSError, SpoolError: a file cannot be read, or is damaged.
    """
    log = Log()
    for path in sorted(Path(directory, "spool").glob("[0-9]*")):
        if path.suffix not in (PART, SEALED):
            continue
        try:
            spool = read_spool(path)
        except SpoolError as error:
            if error.problem is not Problem.TRUNCATED:
                raise
            continue  # the router died before it had written the head
        log.take(spool)
    return log


def events_of(dispatches: Iterable[Dispatch], history: Iterable[Event]) -> Iterator[Event]:
    """``dispatches`` as events, by time.

    Args:
        history: all other events: they tell which id a trace id stands for, and which life of a process was linked
            under its identity at that time.
    """
    ids: dict[bytes, str] = {}
    #: Identity -> when a life of it had a session with the router, and its name.
    lives: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for event in history:
        if event.what == What.SUBMIT:
            ids[trace_id_of(event.id)] = event.id
        elif event.what == What.LINKED:
            lives[event.process.rpartition("#")[0]].append((event.at, event.process))
    for links in lives.values():
        links.sort()
    for dispatch in sorted(dispatches):
        id = ids.get(dispatch.trace_id)
        if id is not None:
            to = _life_at(lives[dispatch.to], dispatch.at) or dispatch.to
            yield Event(dispatch.at, "router", What.DISPATCH, id, {"to": to, "attempt": dispatch.attempt})


def _life_at(links: list[tuple[float, str]], at: float) -> str:
    # A process serves only after it has written down that it is linked.
    place = bisect_right(links, at + _STEP, key=lambda link: link[0])
    return links[place - 1][1] if place else ""
