"""The end of a drain: the callers of what still runs are told."""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Link, Request
from rpcmq.core.router.roundrobin import explain
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.errors import Outcome
from rpcmq.wire import Flag

__all__ = ["fail_unfinished_calls"]

_SEND_AGAIN: explain.Explanation = ("the router has shut down; send it again", {})


def fail_unfinished_calls(
    now: float, links: LinkTable, requests: RequestTable, outlives: Callable[[Link, Request], bool]
) -> None:
    """Fail unfinished calls; callers send those that may run again to the next life.

    Args:
        outlives: whether another router asks for a call that runs, which the given link has sent, when this one has
            gone: nobody is told of it.
    """
    for link in list(links):
        for request in list(link.calls.values()):
            delivery = request.delivery
            if delivery is not None and outlives(link, request):
                continue
            outcome, (text, details) = Outcome.DRAINING, _SEND_AGAIN
            if delivery is not None and not request.flags & Flag.IDEMPOTENT:
                outcome, (text, details) = Outcome.LINK_LOST, explain.drain_timed_out(now, delivery)
            if requests.finish(now, request, outcome):
                requests.tell(link, request.key, outcome, text, details)
