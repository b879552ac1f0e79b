"""Requests of several front ends for the same URL, of which one goes to the origin."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from time import monotonic
from typing import Any

from gevent.event import Event

from rpcmq.proxy.messages import Headers, list_members

__all__ = ["SharedFetches", "is_shareable"]

#: Fields of a request that say who asks, and which tell no responses apart unless these say so (Vary).
_ASKER = frozenset(
    (
        "user-agent", "referer", "cookie", "via", "forwarded", "x-forwarded-for", "x-forwarded-host",
        "x-forwarded-proto",
        "x-real-ip", "x-request-id", "traceparent", "tracestate", "priority", "sec-ch-ua", "sec-fetch-mode",
    )
)  # fmt: skip
_STATUSES = frozenset((200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501))
_WAIT_SECONDS = 30.0

Answer = dict[str, Any]


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

    def answer(
        self, site: Hashable, method: str, target: str, headers: Sequence[tuple[str, str]], ask: Callable[[], Answer]
    ) -> Answer:
        """Return the answer of ``ask``, or that of another one of ``site`` under way; the latter with ``lead``.

        ``lead`` is the time in seconds by which the other one was sent before this was called.
        """
        mine = tuple(field for field in headers if field[0].lower() not in _ASKER)
        key = (site, method, target, mine)
        flight = self._flights.get(key)
        if flight is None:
            return self._lead(key, ask)
        lead = monotonic() - flight.since
        flight.done.wait(_WAIT_SECONDS)
        if flight.answer is None:
            return ask()
        self.shared += 1
        return flight.answer | {"lead": lead}

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


def is_shareable(answer: Mapping[str, Any]) -> bool:
    """Whether an answer is for whoever asked meanwhile: a failure, or a whole response that any cache may reuse."""
    if "failed" in answer:
        return True
    if answer["rest"] is not None or answer["truncatable"] or answer["status"] not in _STATUSES:
        return False
    headers = Headers(answer["headers"])
    if "set-cookie" in headers:
        return False
    directives = {each.partition("=")[0].lower() for each in list_members(headers.joined("cache-control"))}
    if directives & {"private", "no-store", "no-cache"} or not directives & {"public", "s-maxage", "max-age"}:
        return False
    vary = {each.lower() for each in list_members(headers.joined("vary"))}
    return "*" not in vary and not vary & _ASKER
