"""A call whose end is told, so that no greenlet waits for it: for those who have thousands of them under way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rpcmq.client.base import BaseClient
from rpcmq.client.results import progress_of, result_of
from rpcmq.wire import TRIED_SHIFT, Address, Flag, Kind

__all__ = ["call_and_tell"]

_REQUEST, _MANDATORY, _NOT_AGAIN = int(Kind.REQUEST), int(Flag.MANDATORY), int(Flag.NOT_AGAIN)
_MOST_TRIED = Flag.TRIED >> TRIED_SHIFT


def call_and_tell(
    client: BaseClient,
    topic: Address,
    msg: Mapping[str, Any],
    seconds: float,
    then: Callable[[Callable[[], Any]], object],
    on_progress: Callable[[Any], object] | None = None,
    *,
    mandatory: bool = False,
    again: bool = True,
    tried: int = 0,
) -> None:
    """Start a call in the home of ``client``, whose router is connected.

    Args:
        seconds: within which it must end.
        then: called in the loop, where nothing may wait, once it has ended: with a function that returns its result, or
            raises why there is none, as :meth:`rpcmq.Client.call` does.
        on_progress: called in the loop with each value that the handler reports.
        mandatory: as for :meth:`rpcmq.Client.call`.
        again: whether a router that takes over from another one may give it to a second consumer once it knows that
            nobody has it; else it ends with ``LinkLost``.
        tried: of one that is not given again: attempts before this one, for the dispatch log.

    Raises:
        PayloadError, UsageError: as for :meth:`rpcmq.Client.call`.
    """
    sender, process = client.sender, client.process
    flags = (_MANDATORY if mandatory else 0) | (0 if again else _NOT_AGAIN | min(tried, _MOST_TRIED) << TRIED_SHIFT)
    call = sender.start(_REQUEST, None, topic, msg, seconds, flags)

    def look() -> None:
        messages, call.progress = call.progress, []
        if on_progress is not None:
            for message in messages:
                on_progress(progress_of(process.payloads, call, message))
        if call.done:
            call.waiter = None
            # One that was refused for its format is not sent again here; the next one has another.
            sender.learn_format(call)
            then(partial(result_of, process.payloads, call))

    call.waiter = look
