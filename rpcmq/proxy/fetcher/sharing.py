"""Requests of several front ends for the same URL, of which one goes to the origin."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from time import monotonic
from typing import Any

from gevent.event import Event

from rpcmq.proxy.answers import ASKER, Answer
from rpcmq.proxy.caching.directives import response_directives
from rpcmq.proxy.caching.policy import CachePolicy
from rpcmq.proxy.messages import list_members

__all__ = ["SharedFetches", "is_shareable"]

_STATUSES = frozenset((200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501))
_WAIT_SECONDS = 30.0
_POLICY = CachePolicy()
_OF_ONE_CLIENT = ("private", "no-store", "no-cache")
_OF_ALL = ("public", "s-maxage", "max-age")


class _Flight:
    __slots__ = ("answer", "done", "since")

    def __init__(self) -> None:
        self.done = Event()
        self.since = monotonic()
        self.answer: Answer | None = None


class SharedFetches:
    """Lets requests that are alike wait for the answer to the first one of them.

    An answer is shared if it is whole, and any shared cache may give it to all of them: :func:`is_shareable`. Otherwise
    each of those that have waited asks on its own.
    """

    def __init__(self) -> None:
        self._flights: dict[Any, _Flight] = {}
        #: Requests that were answered with the answer to another.
        self.shared = 0

    def answer(self, key: Hashable, ask: Callable[[], Answer]) -> Answer:
        """Return the answer of ``ask``, or that of another request of the same ``key`` under way.

        The latter says by how much the other one was sent before this was called.
        """
        flight = self._flights.get(key)
        if flight is None:
            return self._lead(key, ask)
        lead = monotonic() - flight.since
        flight.done.wait(_WAIT_SECONDS)
        if flight.answer is None:
            return ask()
        self.shared += 1
        return flight.answer.led_by(lead)

    def _lead(self, key: Any, ask: Callable[[], Answer]) -> Answer:
        flight = self._flights[key] = _Flight()
        try:
            answer = ask()
            if is_shareable(answer):
                flight.answer = answer
            return answer
        finally:
            del self._flights[key]
            flight.done.set()


def is_shareable(answer: Answer) -> bool:
    """Return whether an answer is for whoever asked meanwhile: a failure, or a whole response any cache may reuse."""
    if answer.failed:
        return True
    if answer.token or answer.ends_with_connection or answer.status not in _STATUSES:
        return False
    headers = answer.headers
    if "set-cookie" in headers:
        return False
    directives, _ = response_directives(headers, _POLICY)
    if any(name in directives for name in _OF_ONE_CLIENT) or not any(name in directives for name in _OF_ALL):
        return False
    vary = {each.lower() for each in list_members(headers.joined("vary"))}
    return "*" not in vary and not vary & ASKER
