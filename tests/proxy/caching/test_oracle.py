"""Random histories beside a plain reading of the RFCs: nothing is served that may not be, whatever comes in any
head.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from rpcmq.proxy.caching import CachePolicy
from tests.proxy.caching.small_cache import START, Reply, SmallCache, reply

SECONDS = st.none() | st.integers(0, 30)


@dataclass(frozen=True)
class Told:
    """Directives of a response, as numbers: the oracle parses nothing."""

    number: int
    max_age: int | None
    s_maxage: int | None
    revalidating: int | None
    error: int | None
    age: int | None
    varies: bool
    words: frozenset[str]
    sent_at: float = 0.0
    selecting: str | None = None

    def reply(self) -> Reply:
        named = {
            "max-age": self.max_age,
            "s-maxage": self.s_maxage,
            "stale-while-revalidate": self.revalidating,
            "stale-if-error": self.error,
        }
        directives = [f"{name}={value}" for name, value in named.items() if value is not None] + sorted(self.words)
        own = [("Cache-Control", ", ".join(directives)), ("ETag", f'"{self.number}"'), ("X-Number", str(self.number))]
        own += [("Age", str(self.age))] if self.age is not None else []
        own += [("Vary", "X")] if self.varies else []
        return reply(own, str(self.number).encode())

    def may_be_served(self, now: float, x: str | None, *, failed: bool, max_stale: int | None, no_cache: bool) -> bool:
        if no_cache and not failed:
            return False
        if self.words & {"no-store", "private", "no-cache"} or (self.varies and x != self.selecting):
            return False
        lifetime = self.s_maxage if self.s_maxage is not None else (self.max_age or 0)
        stale = (now - self.sent_at) + (self.age or 0) - lifetime
        if stale < 0:
            return True
        if "must-revalidate" in self.words or self.s_maxage is not None:
            return False
        return stale <= max(self.revalidating or 0, max_stale or 0, (self.error or 0) if failed else 0)


@st.composite
def told(draw: st.DrawFn, number: int) -> Told:
    words = draw(st.frozensets(st.sampled_from(["no-store", "private", "no-cache", "must-revalidate"]), max_size=2))
    rare = draw(st.sampled_from([True, False, False, False]))
    max_age, s_maxage, revalidating, error, age = (draw(SECONDS) for _ in range(5))
    return Told(
        number, max_age, s_maxage, revalidating, error, age, draw(st.booleans()), words if rare else frozenset()
    )


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_nothing_is_served_that_may_not_be(data: st.DataObject) -> None:
    cache = SmallCache(policy=CachePolicy(stale_if_disconnected=0))
    sent: dict[str, Told] = {}
    for number in range(data.draw(st.integers(2, 12))):
        cache.age(data.draw(st.integers(0, 20)))
        x = data.draw(st.sampled_from([None, "1", "2"]))
        failed = data.draw(st.sampled_from([True, False, False]))
        max_stale, no_cache = data.draw(SECONDS), data.draw(st.sampled_from([True, False, False, False]))
        response = data.draw(told(number))
        now, before = cache.now, len(cache.sent)
        response = replace(response, sent_at=now, selecting=x)
        cache._replies = [reply(status=503) if failed else response.reply()]
        directives = ", ".join(
            (*([f"max-stale={max_stale}"] if max_stale is not None else ()), *(["no-cache"] if no_cache else ()))
        )
        asked = {"Cache-Control": directives} if directives else {}
        answer = cache.get({**asked, **({"X": x} if x is not None else {})})
        was_asked = len(cache.sent) > before
        if not failed and was_asked:
            sent[str(number)] = response
        if answer.status == 503:
            assert failed
        elif answer.get("x-number") != str(number) or failed:
            served = sent[answer.get("x-number") or ""]
            assert served.may_be_served(now, x, failed=failed and was_asked, max_stale=max_stale, no_cache=no_cache)
            assert answer.body == str(served.number).encode()
            assert answer.get("age") == str(int(now - served.sent_at) + (served.age or 0))


NAMES = [
    "Age", "Authorization", "Cache-Control", "CDN-Cache-Control", "Connection", "Content-Length", "Content-Location",
    "Content-Range", "Content-Type", "Date", "ETag", "Expires", "If-Match", "If-Modified-Since", "If-None-Match",
    "If-Range", "Last-Modified", "Location", "Range", "Set-Cookie", "Surrogate-Key", "Vary", "X",
]  # fmt: skip
VALUES = st.text(alphabet=st.characters(max_codepoint=255), max_size=12) | st.sampled_from(
    [
        "",
        "0",
        "1",
        "-1",
        "10",
        "*",
        '"a"',
        'W/"a"',
        "X",
        "max-age=9",
        "max-age=0, stale-while-revalidate=9",
        "no-cache",
        "s-maxage=9",
        "only-if-cached",
        "bytes=0-1",
        "bytes=1-2,4-5",
        "bytes 0-1/9",
        "/b",
        "//",
        "https://[",
        "%",
        'a\\"',
        "Fri, 15 Jan 2027 08:00:00 GMT",
        "Friday, 15-Jan-27 07:00:00 GMT",
        "Fri, 15 Jan 0001 08:00:00 GMT",
        "9" * 50,
        'no-cache="X',
        "immutable, max-age=9",
        "public",
        "private",
        "must-understand, no-store",
    ]
)
HEADS = st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=6)
METHODS = st.sampled_from(["GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "X"])
STATUSES = st.sampled_from([200, 200, 200, 204, 206, 301, 304, 404, 412, 416, 500, 503, 999, None])


@given(st.lists(st.tuples(METHODS, HEADS, STATUSES, HEADS, st.integers(-20, 20)), min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_any_heads_give_an_answer(
    steps: list[tuple[str, list[tuple[str, str]], int | None, list[tuple[str, str]], int]],
) -> None:
    cache = SmallCache()
    for method, request, status, response, seconds in steps:
        body = b"0123456789"
        cache._replies = [reply(response, body, status), reply(response, body)]
        answer = cache.age(seconds).get(request, method=method)
        assert answer.status is not None and "cache-status" in answer.headers
        if answer.is_hit and answer.status == 200 and method == "GET":
            assert answer.body == body and answer.get("content-length") == "10"
        if answer.status == 206 and answer.is_hit:
            assert answer.get("content-length") == str(len(answer.body))
    assert cache.now < START + 1000
