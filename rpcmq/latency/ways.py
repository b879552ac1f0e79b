"""Network time, split into both directions: how long an answer took from the service to the router.

Each answer whose service said when it sent it is an exchange of four readings of two clocks:

=====  ==========================================  =======
t1     the router sends the message                router
t2     the service has it: t3 less ``handler_us``  service
t3     the service sends the answer: ``sent_us``   service
t4     the router has the answer                   router
=====  ==========================================  =======

Both ways together took *delay* = (t4 - t1) - (t3 - t2), whatever the clocks show. How far the service's clock is
behind the router's is ((t4 - t3) - (t2 - t1)) / 2 if both ways took the same, so with an error of at most half of
*delay*. Of several exchanges the one with the least delay tells it best: the clock filter of NTP (RFC 5905, section
10). It is chosen here for each server and each 10 s: clocks that drift apart by 50 ppm, as bad quartz does, err by
0.5 ms meanwhile. For the same reason a delay counts as longer by 50 ppm of the handler's time, in which they drift too.

The offset put in: of the best exchange the way back is half of its delay, and of any other it is longer by as much as
its (t4 - t3) is larger. It is never less than nothing, nor more than its own delay, whatever the clocks say.

``columns`` does the same for many at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from rpcmq.log_format import Record

__all__ = ["DRIFT", "LATEST", "WINDOW_US", "replies"]

#: Window in which the best exchange is selected (microseconds).
WINDOW_US = 10_000_000
#: Inverse of the largest drift of two clocks: 50 ppm.
DRIFT = 20_000
#: A clock that shows more (microseconds; 36,000 years) is none.
LATEST = 1 << 60


def replies(records: Sequence[Record]) -> list[int | None]:
    """The way back of each of ``records``, all of one file, in microseconds; None where it is not known."""
    best: dict[tuple[str | None, str | None, int], tuple[int, int, int]] = {}
    for record in records:
        found = _exchange(record)
        if found is not None:
            delay, gap, handler = found
            group = _group(record)
            if group not in best or delay + handler // DRIFT < best[group][0]:
                best[group] = delay + handler // DRIFT, gap, delay
    return [_reply(record, best) for record in records]


def _group(record: Record) -> tuple[str | None, str | None, int]:
    return record.server, record.server_identity, (record.received_us + record.total_us) // WINDOW_US


def _exchange(record: Record) -> tuple[int, int, int] | None:
    """The delay, t4 - t3 and the handler's time; None if they are not known, or cannot be."""
    service, handler, sent = record.service_us, record.handler_us, record.sent_us
    if service is None or handler is None or sent is None or sent >= LATEST or handler > service:
        return None
    return service - handler, record.received_us + record.total_us - sent, handler


def _reply(record: Record, best: dict[tuple[str | None, str | None, int], tuple[int, int, int]]) -> int | None:
    found = _exchange(record)
    if found is None:
        return None
    delay, gap, _ = found
    _, best_gap, best_delay = best[_group(record)]
    return max(0, min(delay, gap - best_gap + best_delay // 2))
