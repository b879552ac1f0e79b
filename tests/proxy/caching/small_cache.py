"""A cache of the engine and a dictionary, in front of an origin that a test scripts, at a time that a test sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rpcmq.proxy.caching import (
    Answer,
    BodyPlan,
    CachePolicy,
    Deliver,
    Forward,
    Purge,
    PurgeKind,
    Refresh,
    Resend,
    Serve,
    StoredResponse,
    cache_key,
    decide,
    fail,
    receive,
)
from rpcmq.proxy.caching.dates import format_date
from rpcmq.proxy.messages import Headers, RequestHead, ResponseHead

START = 1_800_000_000.0


@dataclass
class Reply:
    """A final response with its body; None as status: the origin gave none."""

    status: int | None
    headers: Headers = field(default_factory=Headers)
    body: bytes = b""

    def get(self, name: str) -> str | None:
        return self.headers.get(name)

    @property
    def cache_status(self) -> str:
        return self.headers.every("cache-status")[-1]

    @property
    def is_hit(self) -> bool:
        return "; hit" in self.cache_status


Fields = Iterable[tuple[str, str]] | dict[str, str]


def fields(values: Fields) -> Headers:
    return Headers(values.items() if isinstance(values, dict) else values)


def reply(values: Fields = (), body: bytes = b"body", status: int | None = 200) -> Reply:
    """A response of the origin; one without Date gets that of the time at which it is sent."""
    return Reply(status, fields(values), body)


class SmallCache:
    """The cache; ``sent`` has the requests that the origin got."""

    def __init__(self, *replies: Reply | Callable[[RequestHead], Reply], policy: CachePolicy | None = None) -> None:
        self.policy = policy or CachePolicy()
        self.now = START
        self.delay = 0.0
        self.sent: list[RequestHead] = []
        self.stored: dict[str, dict[str, tuple[StoredResponse, bytes]]] = {}
        self._replies = list(replies)

    def origin_sends(self, *replies: Reply | Callable[[RequestHead], Reply]) -> None:
        self._replies += replies

    def get(self, headers: Fields = (), target: str = "/a", method: str = "GET") -> Reply:
        request = RequestHead(method, target, fields(headers), "https", "example.com")
        entries = [entry for entry, _ in self.stored.get(cache_key(request, self.policy), {}).values()]
        decision = decide(request, entries, self.now, self.policy)
        match decision:
            case Serve():
                served = self._serve(decision)
                if decision.revalidate:
                    self._forward(decision.revalidate)
                return served
            case Answer(response, body):
                return Reply(response.status, response.headers, body)
            case Forward():
                return self._forward(decision)

    def age(self, seconds: float) -> SmallCache:
        self.now += seconds
        return self

    def _forward(self, forward: Forward) -> Reply:
        self.sent.append(forward.request)
        requested_at = self.now
        answer = self._replies.pop(0) if self._replies else reply(status=599)
        given = answer(forward.request) if callable(answer) else answer
        self.now += self.delay
        if given.status is None:
            failed = fail(forward, 502, self.now, self.policy)
            return self._serve(failed) if isinstance(failed, Serve) else _answered(failed)
        headers = given.headers
        if "date" not in headers:
            headers = headers.having("Date", format_date(int(self.now)))
        body = b"" if forward.request.method == "HEAD" else given.body
        outcome = receive(forward, ResponseHead(given.status, headers), requested_at, self.now, self.policy)
        match outcome:
            case Deliver():
                for key in outcome.invalidates:
                    self.purge(Purge(PurgeKind.URL, key, self.now))
                if outcome.store is not None:
                    self._store(outcome.store, body)
                sent = body if outcome.body is None else pieces(outcome.body, body)
                return Reply(outcome.response.status, outcome.response.headers, sent)
            case Refresh():
                _, stored = self.stored[outcome.entry.key][outcome.entry.variant]
                self._store(outcome.entry, stored)
                return self._serve(outcome.serve)
            case Resend():
                return self._forward(outcome.forward)
            case Serve():
                return self._serve(outcome)
            case Answer():
                return _answered(outcome)

    def purge(self, purge: Purge) -> None:
        for variants in self.stored.values():
            for variant, (entry, body) in list(variants.items()):
                kept = purge.applied_to(entry)
                if kept is None:
                    del variants[variant]
                else:
                    variants[variant] = (kept, body)

    def _store(self, entry: StoredResponse, body: bytes) -> None:
        self.stored.setdefault(entry.key, {})[entry.variant] = (entry.with_body_size(len(body)), body)

    def _serve(self, served: Serve) -> Reply:
        _, body = self.stored[served.entry.key][served.entry.variant]
        sent = body if served.body is None else pieces(served.body, body)
        return Reply(served.response.status, served.response.headers, sent)


def pieces(plan: BodyPlan, body: bytes) -> bytes:
    return b"".join(piece if isinstance(piece, bytes) else body[piece.start : piece.stop] for piece in plan)


def _answered(answer: Answer) -> Reply:
    return Reply(answer.response.status, answer.response.headers, answer.body)
