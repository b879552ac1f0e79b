"""Stored responses for the tests of stores, as the engine makes them."""

from __future__ import annotations

from collections.abc import Iterator

from rpcmq.proxy.caching import CachePolicy, Deliver, Forward, StoredResponse, decide, receive
from rpcmq.proxy.messages import RequestHead, ResponseHead
from rpcmq.proxy.store import Store
from tests.proxy.caching.small_cache import fields

_times: Iterator[int] = iter(range(1_800_000_000, 2_000_000_000))


def entry(
    target: str = "/a",
    response: dict[str, str] | None = None,
    request: dict[str, str] | None = None,
    at: float | None = None,
) -> StoredResponse:
    """The entry of a response that came at ``at``, each at a time of its own unless that is given."""
    now = float(next(_times)) if at is None else at
    asked = RequestHead("GET", target, fields(request or {}), authority="example.com")
    forward = decide(asked, (), now, CachePolicy())
    assert isinstance(forward, Forward)
    told = fields({"Cache-Control": "max-age=100", "ETag": '"a"', **(response or {})})
    outcome = receive(forward, ResponseHead(200, told), now, now, CachePolicy())
    assert isinstance(outcome, Deliver) and outcome.store is not None
    return outcome.store


def put(store: Store, stored: StoredResponse, body: bytes, step: int = 100_000) -> StoredResponse | None:
    writer = store.create(stored)
    if writer is None:
        return None
    for start in range(0, len(body), step):
        if not writer.write(body[start : start + step]):
            return None
    return writer.commit()


def body_of(store: Store, stored: StoredResponse) -> bytes | None:
    body = store.open(stored)
    if body is None:
        return None
    try:
        return b"".join(body.read(0, stored.body_size))
    finally:
        body.close()


def maintain(store: Store, now: float) -> int:
    return sum(1 for _ in store.maintain(now))
