"""Requests of clients: from the store where it can answer, else from origins."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from time import monotonic, time

from gevent.pool import Pool

from rpcmq.client.limited_log import RateLimitedLog
from rpcmq.proxy.caching import (
    Answer,
    CachePolicy,
    Deliver,
    Forward,
    Refresh,
    Resend,
    Serve,
    cache_key,
    decide,
    fail,
    follow,
    receive,
)
from rpcmq.proxy.caching.freshness import remaining
from rpcmq.proxy.caching.purge import Purge, PurgeKind
from rpcmq.proxy.front.delivering import deliver
from rpcmq.proxy.front.fetching import Fetching, NoResponse, OriginAnswer
from rpcmq.proxy.front.flights import Flight, Flights, Landing
from rpcmq.proxy.front.heads import fields_for_origin, request_head
from rpcmq.proxy.front.hot import HotResponses
from rpcmq.proxy.front.purges import Purges
from rpcmq.proxy.front.serving import send_cut, serve
from rpcmq.proxy.front.shares import AddressShares
from rpcmq.proxy.http.errors import HttpError
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.messages import RequestHead
from rpcmq.proxy.settings import ProxySettings, SiteSettings
from rpcmq.proxy.store.contract import Store
from rpcmq.proxy.store.tiers import TieredStore

__all__ = ["Handler"]

#: Bodies of requests up to this size are read before they are sent on, so that they can be sent again.
_BODY_AT_HAND = 256 * 1024
#: Stored responses that are revalidated at once while clients have been answered.
_BACKGROUND = 256
#: Requests that a 304 for something that is not stored leads to, for one request of a client.
_RESENDS = 2


@dataclass(frozen=True, slots=True)
class _Asked:
    """A client's request: its head, its site, its client's address, and the time at which it came."""

    head: RequestHead
    site: SiteSettings
    peer: str
    at: float


class Handler:
    """Answers requests.

    Args:
        store: see :class:`Store`.
        hot: responses of this second.
    """

    def __init__(
        self,
        settings: ProxySettings,
        policy: CachePolicy,
        store: Store,
        fetching: Fetching,
        purges: Purges,
        hot: HotResponses,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._store = store
        self._fetching = fetching
        self._purges = purges
        self._hot = hot
        self._tiers = store if isinstance(store, TieredStore) else None
        self.flights = Flights()
        # Of clients of a proxy before this one only that proxy's address is known for certain.
        self.shares = AddressShares(0 if settings.front.trust_forwarded else settings.limits.fetches_for_address)
        purges.on_purge(self.flights.detach)
        self._background = Pool(_BACKGROUND)
        self._revalidated: set[tuple[str, str]] = set()
        self._log = RateLimitedLog(logging.getLogger("rpcmq.proxy"))

    def answer(self, exchange: Exchange) -> str:
        """Answer a request; return the part that the cache had in it, in a word, for logs and metrics.

        Raises:
            HttpError: the response broke off.
        """
        request = exchange.request
        if request.is_plain and exchange.keep_alive and request.is_http_11:
            ready = self._hot.find(exchange.scheme, request)
            if ready is not None:
                exchange.send_prepared(*ready)
                return "hit"
        head = request_head(exchange)
        name = head.authority.rpartition(":")[0] if head.authority[-1:].isdigit() and ":" in head.authority else ""
        site = self._settings.site_of(name or head.authority)
        if site is None:
            exchange.send_error(421, f"No site of this proxy has the host {head.authority!r}.")
            return "none"
        now = time()
        asked = _Asked(head, site, exchange.peer, now)
        key = cache_key(head, self._policy)
        stored = self._store.find(key)
        decision = decide(head, stored, now, self._policy, key)
        if self._tiers is not None and stored and not (isinstance(decision, Serve) and decision.revalidate is None):
            # Another process may have stored something newer.
            stored = self._tiers.find_shared(key)
            decision = decide(head, stored, now, self._policy, key)
        if isinstance(decision, Serve):
            is_for_all = request.is_plain and len(stored) == 1 and not decision.entry.selecting
            # It is kept to the end of this second, in which it must not become stale.
            hot = self._hot if is_for_all and remaining(decision.entry, now) >= 1.0 - now % 1.0 else None
            if serve(exchange, decision, self._store, hot, now):
                if decision.revalidate is not None:
                    self._revalidate(decision.revalidate, asked)
                    return "stale"
                return "hit"
            decision = decide(head, (), now, self._policy, key)
        if isinstance(decision, Answer):
            exchange.send(decision.response, decision.body)
            return "none"
        assert isinstance(decision, Forward)
        return self._forward(exchange, decision, asked)

    def stop(self, seconds: float) -> None:
        """Let what is being revalidated end, for so long."""
        self._background.join(seconds)
        self._background.kill()

    # --- to the origin -------------------------------------------------------------------------

    def _forward(self, exchange: Exchange, forward: Forward, asked: _Asked) -> str:
        flights = self.flights
        if not (forward.may_collapse and self._settings.cache.collapse and flights.may_share(forward.key)):
            return self._fetch_in_share(exchange, forward, asked, is_leading=False)
        end = monotonic() + self._settings.cache.collapse_seconds
        while (flight := flights.join(forward.key)) is not None:
            landing = flight.wait(end - monotonic())
            if flight.is_held_up and monotonic() < end:
                flights.leave(forward.key, flight)
                continue
            done = self._follow(exchange, forward, asked, landing)
            return done or self._fetch_in_share(exchange, forward, asked, is_leading=False)
        return self._fetch_in_share(exchange, forward, asked, is_leading=True)

    def _fetch_in_share(self, exchange: Exchange, forward: Forward, asked: _Asked, *, is_leading: bool) -> str:
        """Ask the origin, unless the client's address has too many such requests under way."""
        if not self.shares.take(asked.peer):
            return self._fail(exchange, forward, NoResponse(503, f"{asked.peer} has too many requests under way"))
        flight, end = self.flights.lead(forward.key) if is_leading else (None, None)
        try:
            return self._fetch(exchange, forward, asked, flight)
        finally:
            self.shares.give_back(asked.peer)
            if end is not None:
                end()

    def _follow(self, exchange: Exchange, forward: Forward, asked: _Asked, landing: Landing) -> str:
        """Answer with the response to another request; return an empty text, and send nothing, if that cannot be."""
        now = time()
        if landing.failed:
            return self._fail(exchange, forward, NoResponse(landing.failed, "the origin did not answer"))
        entry = landing.entry
        if entry is None or (entry.responded_at < asked.at and remaining(entry, asked.at) <= 0):
            return ""  # there is none, or it was stale already when this one was asked for
        serving = follow(forward, entry, now, self._policy)
        if serving is None:
            return ""
        if landing.body is not None:
            send_cut(exchange, serving.response, serving.body, landing.body)
        elif serving.body is None or not serve(exchange, serving, self._store, None, now):
            return ""
        self.flights.followed += 1
        return "collapsed"

    def _fetch(self, exchange: Exchange | None, forward: Forward, asked: _Asked, flight: Flight | None) -> str:
        """Ask the origin; send its response to the client, if there is one, and to the store."""
        for _ in range(_RESENDS + 1):
            try:
                answer = self._ask(exchange, forward, asked, may_share=flight is not None)
            except NoResponse as error:
                if flight is not None:
                    flight.land(Landing(failed=error.status))
                return self._fail(exchange, forward, error)
            times = answer.requested_at, answer.responded_at
            outcome = receive(forward, answer.head, *times, self._policy, has_end=answer.has_end)
            if isinstance(outcome, Deliver):
                return self._deliver(exchange, forward, answer, outcome, flight)
            answer.close()
            if isinstance(outcome, Resend):
                forward = outcome.forward
                continue
            if isinstance(outcome, Refresh):
                self._store.refresh(outcome.entry)
                self._hot.forget(forward.key)
                if exchange is None or serve(exchange, outcome.serve, self._store, None, time()):
                    if flight is not None:
                        flight.land(Landing(outcome.entry))
                    return "revalidated"
                again = decide(asked.head, (), time(), self._policy)
                if isinstance(again, Forward):
                    forward = again
                    continue
            elif isinstance(outcome, Serve):
                if flight is not None:
                    flight.land(Landing(failed=502))
                if exchange is None or serve(exchange, outcome, self._store, None, time()):
                    return "stale"
            elif exchange is not None:
                exchange.send(outcome.response, outcome.body)
                return "none"
            break
        return self._fail(exchange, forward, NoResponse(502, "the origin confirms what is not stored"), is_last=True)

    def _ask(self, exchange: Exchange | None, forward: Forward, asked: _Asked, *, may_share: bool) -> OriginAnswer:
        request, site = forward.request, asked.site
        fields = fields_for_origin(request, asked.peer, site.host, trust_forwarded=self._settings.front.trust_forwarded)
        body: bytes | Iterable[bytes] = _body_of(exchange) if exchange is not None else b""
        share_key = forward.key if may_share else ""
        # A response to a request from before a purge is not shared with one from after it.
        mark = repr(self._purges.last_at) if may_share else ""
        return self._fetching.ask(site.name, request.method, request.target, fields, body, share_key, mark)

    def _deliver(
        self, exchange: Exchange | None, forward: Forward, answer: OriginAnswer, outcome: Deliver, flight: Flight | None
    ) -> str:
        for key in outcome.invalidates:
            self._purges.purge(Purge(PurgeKind.URL, key, time()))
        if outcome.uncacheable_for:
            self.flights.go_alone(forward.key, outcome.uncacheable_for)
        if outcome.store is not None:
            self._hot.forget(forward.key)
        try:
            deliver(exchange, answer, outcome, self._store, flight)
        except NoResponse as error:
            if flight is not None:
                flight.land(Landing(failed=error.status))
            return self._fail(exchange, forward, error)
        finally:
            if outcome.store is not None:
                self._hot.forget(forward.key)
        return "miss" if outcome.store is not None else "pass"

    def _fail(self, exchange: Exchange | None, forward: Forward, error: NoResponse, *, is_last: bool = False) -> str:
        """Answer where no origin does: with a stale response, where that is allowed."""
        self._log.warning("no response", f"no response for {forward.key}: {error}")
        if exchange is None:
            return "error"
        now = time()
        outcome = fail(forward, error.status, now, self._policy)
        if isinstance(outcome, Serve) and not is_last and serve(exchange, outcome, self._store, None, now):
            return "stale"
        if isinstance(outcome, Answer):
            exchange.send(outcome.response, outcome.body)
        else:
            exchange.send_error(error.status, "The origin did not answer.")
        return "error"

    # --- behind the client's back --------------------------------------------------------------

    def _revalidate(self, forward: Forward, asked: _Asked) -> None:
        """Ask the origin for a stored response that was served stale, unless that is under way already."""
        entry = forward.stale or (forward.candidates[0] if forward.candidates else None)
        mark = (forward.key, entry.variant if entry is not None else "")
        if mark in self._revalidated or self._background.free_count() == 0:
            return
        self._revalidated.add(mark)

        def run() -> None:
            try:
                self._fetch(None, forward, asked, None)
            except HttpError as error:
                self._log.warning("revalidation", f"{forward.key} could not be revalidated: {error}")
            finally:
                self._revalidated.discard(mark)

        self._background.spawn(run)


def _body_of(exchange: Exchange) -> bytes | Iterable[bytes]:
    """Return the body of a request: all of a short one, the pieces of a longer one as they come."""
    request = exchange.request
    if not request.has_body:
        return b""
    pieces = exchange.body()
    if request.length is not None and request.length > _BODY_AT_HAND:
        return pieces
    first: list[bytes] = []
    size = 0
    for piece in pieces:
        first.append(piece)
        size += len(piece)
        if size > _BODY_AT_HAND:
            return _after(first, pieces)
    return b"".join(first)


def _after(first: list[bytes], pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield b"".join(first)
    first.clear()
    yield from pieces
