"""The drain of a router: nothing new is accepted, running work may finish, everyone is told, and leftovers are logged.

Which work is refused or returned meanwhile is up to the nodes of the engine
(:meth:`rpcmq.core.router.router.Router.begin_drain`, for calls and casts
:meth:`rpcmq.core.router.roundrobin.node.RoundRobin.begin_drain`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

import gevent

from rpcmq.core.router.router import Router
from rpcmq.server.embedded import EmbeddedRouter
from rpcmq.server.leftovers import leftovers, under_way
from rpcmq.server.log import log_event

__all__ = ["LINGER", "drain"]

log = logging.getLogger("rpcmq.router")

#: Time for queued messages to leave when the router stops (seconds).
LINGER = 2.0
#: Time for a busy process to report that it sends nothing new (seconds).
_QUIET = 2.0
_POLL = 0.02


def drain(router: EmbeddedRouter, seconds: float, is_needed: Callable[[], bool] = lambda: False) -> None:
    """Drain ``router``; return when its processes have left it, or time is up.

    Args:
        seconds: how long running work is waited for.
        is_needed: whether somebody needs it still, who ends by himself.
    """
    engine = router.engine
    started = monotonic()
    engine.begin_drain(started)
    router.shell.wake()
    gevent.sleep(0)
    while (looked := monotonic()) < started + seconds:
        if (
            not is_needed()
            and not under_way(engine)
            and not (engine.links.has_undrained_senders and looked < started + _QUIET)
        ):
            break
        # A scan is costly with many topics; leave most of the time to the router.
        gevent.sleep(max(_POLL, 5 * (monotonic() - looked)))
    _report_leftovers(engine, monotonic() - started)
    router.shell.finish_drain()
    ended = monotonic()
    # They disconnect when they have read all that was sent to them.
    while engine.links.routes and monotonic() < ended + LINGER:
        gevent.sleep(_POLL)


def _report_leftovers(engine: Router, seconds: float) -> None:
    left = leftovers(engine)
    for name, count, size_bytes, kept in left.casts:
        text = f"{count} casts ({size_bytes} bytes) wait on {name!r}; "
        text += f"the senders of {kept} keep them for the next start, {count - kept} are lost"
        log_event(log, logging.WARNING, "casts left", text, topic=name, casts=count, bytes=size_bytes, kept=kept)
    fields = left.totals()
    text = f"drained in {seconds:.1f} s; left behind: "
    text += ", ".join(f"{count} {what}" for what, count in fields.items() if count) or "nothing"
    level = logging.WARNING if any(fields.values()) else logging.INFO
    log_event(log, level, "drained", text, seconds=round(seconds, 3), left=fields)
