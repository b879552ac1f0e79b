"""Callers during a drain: undelivered calls are returned when it begins; those that still run fail when it ends."""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Link, Request
from rpcmq.core.router.roundrobin import explain
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.errors import Outcome
from rpcmq.wire import Flag

__all__ = ["fail_unfinished_calls", "return_undelivered_calls"]

_DID_NOT_RUN = "the router is shutting down; the call did not run"
_SEND_AGAIN: explain.Explanation = ("the router has shut down; send it again", {})


def return_undelivered_calls(now: float, links: LinkTable, requests: RequestTable, does_work_run: bool) -> None:
    """Return calls that nobody has yet to their callers, which ask the router's next life for them.

    Args:
        does_work_run: whether handlers run. One of them may wait for a nested call, and the drain for that handler: so
            nested calls stay where consumers take them.
    """
    for link in list(links):
        for request in [each for each in link.calls.values() if each.queue is not None]:
            if does_work_run and request.flags & Flag.NESTED and _is_consumed(request):
                continue
            if requests.finish(now, request, Outcome.DRAINING):
                requests.withdraw(request)
                requests.tell(link, request.key, Outcome.DRAINING, _DID_NOT_RUN, {})


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


def _is_consumed(request: Request) -> bool:
    return any(not consumer.stopping for consumer in request.destination.consumers)
