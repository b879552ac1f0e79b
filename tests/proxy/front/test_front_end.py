"""Clients, a front end, a router, a fetcher and origins: what the whole does with requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event

from rpcmq.proxy.front.front_end import FrontEnd
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.messages import Headers, ResponseHead
from rpcmq.proxy.settings import AccessLogSettings
from rpcmq.proxy.store.memory import MemoryStore
from rpcmq.testing import eventually
from tests.proxy.world import (
    SECONDS,
    BrokenOff,
    Reply,
    World,
    ask,
    bodies,
    connect_to,
    raw_origin,
    read_reply,
    request_bytes,
    saying,
)

pytestmark = pytest.mark.integration

OK = b"HTTP/1.1 200 OK\r\n"


def counting(control: str = "max-age=60", *more: tuple[str, str]) -> Callable[[Exchange], None]:
    """Answer with the number of the request."""
    count = 0

    def answer(exchange: Exchange) -> None:
        nonlocal count
        count += 1
        b"".join(exchange.body())
        fields = Headers((("Cache-Control", control), *more))
        exchange.send(ResponseHead(200, fields), b"%d" % count)

    return answer


def at_once(*asking: Callable[[], Reply]) -> list[Reply]:
    greenlets = [gevent.spawn(each) for each in asking]
    gevent.joinall(greenlets, timeout=SECONDS)
    return [greenlet.get(block=False) for greenlet in greenlets]


def test_the_first_request_is_a_miss_and_the_others_are_hits(world: World) -> None:
    front_end = world.start(counting())
    replies = [ask(front_end, "/a") for _ in range(4)]
    assert bodies(replies) == [b"1"] * 4
    assert [reply.is_hit for reply in replies] == [False, True, True, True]
    assert replies[0].cache.startswith("rpcmq; fwd=uri-miss") and replies[3].headers.get("age") == "0"


def test_many_hits_over_one_connection(world: World) -> None:
    front_end = world.start(saying(b"x" * 1000))
    ask(front_end, "/a")
    with connect_to(front_end) as sock:
        sock.sendall(request_bytes("GET", "/a") * 100)
        assert [read_reply(sock).body for _ in range(1)] == [b"x" * 1000]


def test_head_ranges_and_conditions_are_answered_from_the_store(world: World) -> None:
    front_end = world.start(saying(b"0123456789", (("Cache-Control", "max-age=60"), ("ETag", '"v1"'))))
    ask(front_end, "/a")
    head = ask(front_end, "/a", method="HEAD")
    assert (head.status, head.body, head.headers.get("content-length"), head.is_hit) == (200, b"", "10", True)
    part = ask(front_end, "/a", [("Range", "bytes=2-4")])
    assert (part.status, part.body, part.headers.get("content-range")) == (206, b"234", "bytes 2-4/10")
    same = ask(front_end, "/a", [("If-None-Match", '"v1"')])
    assert (same.status, same.body, same.is_hit) == (304, b"", True)
    assert len(world.origins[0].requests) == 1


def test_a_range_of_something_that_is_not_stored_brings_all_of_it_into_the_store(world: World) -> None:
    front_end = world.start(saying(b"x" * 100_000 + b"y" * 600_000))
    assert ask(front_end, "/a", [("Range", "bytes=99999-100001")]).body == b"xyy"
    eventually(lambda: ask(front_end, "/a").is_hit)
    assert len(world.origins[0].requests) == 1


def test_a_stored_response_is_confirmed_by_the_origin(world: World) -> None:
    def answer(exchange: Exchange) -> None:
        fields = Headers((("Cache-Control", "max-age=0"), ("ETag", '"v1"')))
        if exchange.request.header(b"if-none-match") == b'"v1"':
            exchange.send(ResponseHead(304, fields), b"")
        else:
            exchange.send(ResponseHead(200, fields), b"body")

    front_end = world.start(answer)
    replies = [ask(front_end, "/a") for _ in range(3)]
    assert [(reply.status, reply.body) for reply in replies] == [(200, b"body")] * 3
    assert world.origins[0].requests[2].header(b"if-none-match") == b'"v1"'


def test_responses_are_told_apart_by_the_fields_that_they_vary_by(world: World) -> None:
    def answer(exchange: Exchange) -> None:
        fields = Headers((("Cache-Control", "max-age=60"), ("Vary", "Accept-Language")))
        exchange.send(ResponseHead(200, fields), exchange.request.header(b"accept-language") or b"none")

    front_end = world.start(answer)
    for _ in range(2):
        for language in ("de", "fr"):
            assert ask(front_end, "/a", [("Accept-Language", language)]).body == language.encode()
    assert len(world.origins[0].requests) == 2


def test_requests_for_the_same_url_wait_for_one_response(world: World) -> None:
    go = Event()

    def answer(exchange: Exchange) -> None:
        go.wait(SECONDS)
        saying(b"shared")(exchange)

    front_end = world.start(answer)
    asking = [gevent.spawn(ask, front_end, "/a") for _ in range(20)]
    eventually(lambda: front_end.status()["requests_under_way"] == 20)
    go.set()
    gevent.joinall(asking, timeout=SECONDS)
    assert bodies([greenlet.get(block=False) for greenlet in asking]) == [b"shared"] * 20
    assert len(world.origins[0].requests) == 1 and front_end.status()["collapsed"] == 19


def test_requests_that_cannot_share_a_response_each_have_their_own(world: World) -> None:
    front_end = world.start(counting("private"))
    replies = at_once(*[lambda: ask(front_end, "/a")] * 10)
    assert sorted(int(reply.body) for reply in replies) == list(range(1, 11))


def test_requests_at_several_front_ends_meet_at_the_fetcher(world: World) -> None:
    go = Event()

    def answer(exchange: Exchange) -> None:
        go.wait(SECONDS)
        saying(b"shared")(exchange)

    world.configure(world.origin(answer).url)
    front_ends = [world.front_end() for _ in range(3)]
    for _ in range(2):
        world.fetcher()
    eventually(lambda: all(len(front_end.known.names()) == 2 for front_end in front_ends))
    asking = [gevent.spawn(ask, front_end, "/a") for front_end in front_ends]
    eventually(lambda: sum(fetcher.statistics()["requests"] for fetcher in world.fetchers) == 3)
    go.set()
    gevent.joinall(asking, timeout=SECONDS)
    assert bodies([greenlet.get(block=False) for greenlet in asking]) == [b"shared"] * 3
    assert len(world.origins[0].requests) == 1
    assert all(ask(front_end, "/a").is_hit for front_end in front_ends)


def test_a_leader_that_fails_fails_for_all(world: World) -> None:
    with raw_origin(lambda sock: gevent.sleep(0.2)) as url:
        world.configure(url)
        front_end = world.front_end()
        world.fetcher()
        replies = at_once(*[lambda: ask(front_end, "/a")] * 5)
        assert {reply.status for reply in replies} == {502}


def test_stale_responses_are_served_while_the_origin_is_asked(world: World) -> None:
    front_end = world.start(counting("max-age=0, stale-while-revalidate=60"))
    assert ask(front_end, "/a").body == b"1"
    stale = ask(front_end, "/a")
    assert stale.body == b"1" and stale.is_hit
    eventually(lambda: ask(front_end, "/a").body != b"1")


def test_stale_responses_are_served_while_origins_fail(world: World) -> None:
    front_end = world.start(counting("max-age=0, stale-if-error=60"), connect_seconds=0.5)
    assert ask(front_end, "/a").body == b"1"
    world.origins[0].stop()
    reply = ask(front_end, "/a")
    assert (reply.status, reply.body) == (200, b"1")
    assert ask(front_end, "/b").status == 502


def test_a_request_that_changes_something_makes_what_is_stored_invalid(world: World) -> None:
    front_end = world.start(counting())
    assert [ask(front_end, "/a").body for _ in range(2)] == [b"1", b"1"]
    assert ask(front_end, "/a", method="POST", body=b"x").body == b"2"
    assert ask(front_end, "/a").body == b"3"


def purge(front_end: FrontEnd, query: str) -> Any:
    reply = ask(front_end, f"/purge?{query}", method="POST", listener="admin")
    return reply.status, json.loads(reply.body)


@pytest.mark.parametrize(
    ("query", "goes", "stays"),
    [
        ("url=http://a.example/a/1", "/a/1", "/a/2"),
        ("prefix=http://a.example/a/", "/a/2", "/b/1"),
        ("tag=news", "/a/1", "/b/1"),
        ("all=1", "/b/1", ""),
    ],
)
def test_purges_reach_all_front_ends(world: World, query: str, goes: str, stays: str) -> None:
    def answer(exchange: Exchange) -> None:
        fields = [("Cache-Control", "max-age=60")]
        if exchange.request.target.startswith(b"/a/"):
            fields.append(("Surrogate-Key", "news sports"))
        exchange.send(ResponseHead(200, Headers(fields)), b"%d" % len(world.origins[0].requests))

    world.configure(world.origin(answer).url)
    one, other = world.front_end(), world.front_end()
    world.fetcher()
    for front_end in (one, other):
        for target in ("/a/1", "/a/2", "/b/1"):
            ask(front_end, target)
            assert ask(front_end, target).is_hit
    status, answered = purge(one, query)
    assert status == 200 and answered["purged"] >= 1
    assert not ask(one, goes).is_hit
    eventually(lambda: other.status()["purges"] == 1)
    assert not ask(other, goes).is_hit
    assert not stays or (ask(one, stays).is_hit and ask(other, stays).is_hit)


@pytest.mark.parametrize("query", ["url=http://a.example/a", "prefix=http://a.example/", "tag=news", "all=1"])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("has_directory", [False, True])
def test_each_purge_is_seen_in_each_store(
    world: World, tmp_path: Path, query: str, soft: bool, has_directory: bool
) -> None:
    def answer(exchange: Exchange) -> None:
        fields = [("Cache-Control", "max-age=60"), ("Surrogate-Key", "news")]
        exchange.send(ResponseHead(200, Headers(fields)), b"x")

    world.configure(world.origin(answer).url, cache={"directory": str(tmp_path / "cache")} if has_directory else None)
    front_end = world.front_end()
    world.fetcher()
    ask(front_end, "/a")
    assert ask(front_end, "/a").is_hit
    assert purge(front_end, query + "&soft=1" * soft)[0] == 200
    assert not ask(front_end, "/a").is_hit


def test_a_soft_purge_leaves_what_may_be_served_while_it_is_fetched_anew(world: World) -> None:
    front_end = world.start(counting("max-age=60, stale-while-revalidate=60"))
    ask(front_end, "/a")
    assert purge(front_end, "url=http://a.example/a&soft=1") == (
        200, {"purged": 1, "kind": "url", "value": "http://a.example/a", "soft": True},
    )  # fmt: skip
    assert ask(front_end, "/a").body == b"1"
    eventually(lambda: ask(front_end, "/a").body == b"2")


def test_a_purge_that_did_not_come_has_all_revalidated(world: World) -> None:
    world.configure(world.origin(counting()).url)
    other = world.front_end()
    world.fetcher()
    assert ask(other, "/a").body == b"1"
    other._purges._take(None, "", {"from": "x", "number": 3})
    assert ask(other, "/a").is_hit
    other._purges._take(None, "", {"from": "x", "number": 4})
    assert ask(other, "/a").body == b"2"
    for noise in (None, {}, {"from": "x", "number": "y"}, {"from": "x", "number": 5, "purge": {"kind": "?"}}):
        other._purges._take(None, "", noise)
    assert other.status()["purges_missed"] == 1


@pytest.mark.parametrize(
    "query",
    ["", "url=/a", "url=x", "prefix=http://a.example", "tag=", "all=0", "url=http://a/&tag=x", "soft=2&all=1", "x=y"],
)
def test_a_purge_that_means_nothing_is_refused(world: World, query: str) -> None:
    status, answered = purge(world.start(counting()), query)
    assert status == 400 and answered["error"]


@pytest.mark.parametrize("query", ["url=http://a.example/a", "all=1"])
def test_a_purge_while_a_response_is_on_its_way_is_not_undone_by_it(world: World, query: str) -> None:
    come, go = Event(), Event()

    def answer(exchange: Exchange) -> None:
        come.set()
        go.wait(SECONDS)
        saying(b"%d" % len(world.origins[0].requests))(exchange)

    front_end = world.start(answer)
    first = gevent.spawn(ask, front_end, "/a")
    assert come.wait(SECONDS)
    assert purge(front_end, query)[0] == 200
    second = gevent.spawn(ask, front_end, "/a")
    eventually(lambda: len(world.origins[0].requests) == 2)
    go.set()
    assert first.get(timeout=SECONDS).status == 200
    assert second.get(timeout=SECONDS).cache.startswith("rpcmq; fwd=")
    assert ask(front_end, "/a").is_hit


# --- bodies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, 5_000_000])
def test_bodies_of_all_sizes_come_whole_and_are_stored(world: World, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    world.configure(world.origin(saying(body)).url, cache={"memory_body": 1 << 24})
    front_end = world.front_end(MemoryStore(1 << 26, max_body=1 << 24))
    world.fetcher()
    assert ask(front_end, "/a").body == body
    again = ask(front_end, "/a")
    assert again.body == body and again.is_hit


def test_a_body_without_a_length_is_passed_on_as_it_comes(world: World) -> None:
    go = Event()

    def slowly(exchange: Exchange) -> None:
        exchange.start(ResponseHead(200, Headers((("Cache-Control", "max-age=60"),))), None)
        exchange.write(b"first")
        go.wait(SECONDS)
        exchange.write(b"second")
        exchange.finish()

    front_end = world.start(slowly)
    with connect_to(front_end) as sock:
        sock.sendall(request_bytes("GET", "/a"))
        seen = b""
        while b"first" not in seen:
            seen += sock.recv(1000)
        go.set()
        while b"\r\n0\r\n\r\n" not in seen:
            seen += sock.recv(1000)
        assert b"second" in seen
    assert ask(front_end, "/a").body == b"firstsecond" and ask(front_end, "/a").is_hit


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Cache-Control: max-age=60\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 500_000,
        OK + b"Cache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n7a120\r\n" + b"x" * 500_000 + b"\r\n",
    ],
)
def test_a_body_that_breaks_off_looks_broken_and_is_not_stored(world: World, answer: bytes) -> None:
    with raw_origin(answer, answer, OK + b"Cache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok") as url:
        world.configure(url, cache={"memory_body": 1 << 24})
        front_end = world.front_end(MemoryStore(1 << 26, max_body=1 << 24))
        world.fetcher()
        for _ in range(2):
            with pytest.raises(BrokenOff):
                ask(front_end, "/a")
        assert front_end.status()["store"]["entries"] == 0
        assert ask(front_end, "/a").body == b"ok"


@pytest.mark.parametrize("answer", [OK + b"Content-Length: 9\r\n\r\nx", b"", b"garbage\r\n\r\n"])
def test_a_short_response_that_breaks_off_is_a_bad_gateway(world: World, answer: bytes) -> None:
    with raw_origin(answer) as url:
        world.configure(url)
        front_end = world.front_end()
        world.fetcher()
        assert ask(front_end, "/a").status == 502


def test_a_body_that_only_the_end_of_the_connection_ends_is_never_stored(world: World) -> None:
    with raw_origin(OK + b"Cache-Control: max-age=60\r\n\r\nperhaps all") as url:
        world.configure(url)
        front_end = world.front_end()
        world.fetcher()
        assert [ask(front_end, "/a").body for _ in range(2)] == [b"perhaps all"] * 2
        assert front_end.status()["store"]["entries"] == 0


def test_a_client_that_leaves_lets_those_behind_it_have_the_response(world: World) -> None:
    come, go = Event(), Event()

    def answer(exchange: Exchange) -> None:
        come.set()
        go.wait(SECONDS)
        saying(b"x" * 3_000_000)(exchange)

    world.configure(world.origin(answer).url, cache={"memory_body": 1 << 24})
    front_end = world.front_end(MemoryStore(1 << 26, max_body=1 << 24))
    world.fetcher()
    with connect_to(front_end) as sock:
        sock.sendall(request_bytes("GET", "/a"))
        assert come.wait(SECONDS)
        follower = gevent.spawn(ask, front_end, "/a")
        eventually(lambda: front_end.status()["requests_under_way"] == 2)
    go.set()
    assert len(follower.get(timeout=SECONDS).body) == 3_000_000


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, 6_000_000])
def test_the_body_of_a_request_reaches_the_origin(world: World, size: int) -> None:
    front_end = world.start(lambda exchange: exchange.send(ResponseHead(200), b"".join(exchange.body())))
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    for _ in range(2):
        assert ask(front_end, "/a", method="POST", body=body).body == body


def test_an_upload_is_read_only_as_fast_as_the_origin_takes_it(world: World) -> None:
    go = Event()

    def answer(exchange: Exchange) -> None:
        go.wait(SECONDS)
        exchange.send(ResponseHead(200), b"%d" % sum(map(len, exchange.body())))

    size = 64 << 20
    front_end = world.start(answer)
    sent = 0
    with connect_to(front_end) as sock:
        sock.sendall(request_bytes("POST", "/a", [("Content-Length", str(size))]))
        sock.settimeout(1.0)
        try:
            while sent < size:
                sent += sock.send(b"x" * min(1 << 18, size - sent))
        except TimeoutError:
            pass  # nobody takes more
        assert sent < 40 << 20
        go.set()
        sock.settimeout(SECONDS)
        sock.sendall(b"x" * (size - sent))
        assert read_reply(sock).body == b"%d" % size


def test_an_origin_that_answers_before_the_end_of_an_upload_is_heard(world: World) -> None:
    front_end = world.start(lambda exchange: exchange.send_error(413, "Too much.", closes=True))
    with connect_to(front_end) as sock:
        sock.sendall(request_bytes("POST", "/a", [("Content-Length", str(100 << 20))]))
        try:
            for _ in range(400):
                sock.sendall(b"x" * (1 << 18))
        except OSError:
            pass  # closed, as it should be
        assert read_reply(sock).status in (413, 502)


def test_a_client_that_leaves_in_its_upload_leaves_nothing_behind(world: World) -> None:
    seen: list[object] = []

    def answer(exchange: Exchange) -> None:
        try:
            seen.append(sum(map(len, exchange.body())))
        except Exception as error:
            seen.append(type(error).__name__)
            raise

    front_end = world.start(answer)
    with connect_to(front_end) as sock:
        sock.sendall(request_bytes("POST", "/a", [("Content-Length", str(100 << 20))]) + b"x" * (1 << 20))
        eventually(lambda: len(world.origins[0].requests) == 1)
    eventually(lambda: seen == ["ClientGone"])
    eventually(lambda: front_end.status()["connections"] == 0)


# --- fields ----------------------------------------------------------------------------------------


def fields_at_origin(world: World, number: int = -1) -> dict[str, str]:
    return {name.decode().lower(): value.decode() for name, value in world.origins[0].requests[number].headers}


def test_fields_of_the_connection_stay_here(world: World) -> None:
    front_end = world.start(saying(b""))
    mine = [("Connection", "X-Mine"), ("X-Mine", "1"), ("TE", "trailers"), ("X-Other", "2"), ("Proxy-Connection", "x")]
    ask(front_end, "/a", mine)
    found = fields_at_origin(world)
    assert found["x-other"] == "2" and not {"x-mine", "te", "proxy-connection", "connection"} & set(found)
    assert found["host"] == "a.example" and found["via"] == "1.1 rpcmq"


def test_fields_of_the_connection_to_the_origin_stay_there(world: World) -> None:
    fields = b"Connection: X-Drop\r\nX-Drop: 1\r\nX-Keep: 2\r\nKeep-Alive: timeout=5\r\n"
    with raw_origin(OK + fields + b"Content-Length: 0\r\n\r\n") as url:
        world.configure(url)
        front_end = world.front_end()
        world.fetcher()
        reply = ask(front_end, "/a")
    assert reply.headers.get("x-keep") == "2"
    assert not {"x-drop", "connection", "keep-alive"} & set(reply.headers.names())


def test_clients_cannot_say_who_they_are(world: World) -> None:
    front_end = world.start(saying(b""))
    ask(front_end, "/a", [("X-Forwarded-For", "1.2.3.4"), ("Forwarded", "for=1.2.3.4"), ("X-Real-IP", "1.2.3.4")])
    found = fields_at_origin(world)
    assert found["x-forwarded-for"] == "127.0.0.1" and found["x-forwarded-proto"] == "http"
    assert "1.2.3.4" not in str(found)


@pytest.mark.parametrize(
    "smuggled",
    [
        b"POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 40\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\nContent-Length: 40\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: a.example\r\nX: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: +0\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: a.example\r\nX: y\r\n z\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: a.example\r\nHost: evil.example\r\n\r\n",
        b"GET /a\x00 HTTP/1.1\r\nHost: a.example\r\n\r\n",
    ],
)
def test_nothing_is_smuggled_through_to_the_origin(world: World, smuggled: bytes) -> None:
    front_end = world.start(counting())
    inner = b"GET /inner HTTP/1.1\r\nHost: a.example\r\n\r\n"
    with connect_to(front_end) as sock:
        sock.sendall(smuggled + inner)
        assert read_reply(sock).status in (400, 501)
        assert sock.recv(1000) == b""
    assert world.origins[0].requests == []


def test_a_chunked_request_reaches_the_origin_with_one_meaning(world: World) -> None:
    front_end = world.start(lambda exchange: exchange.send(ResponseHead(200), b"".join(exchange.body())))
    with connect_to(front_end) as sock:
        inner = b"GET /inner HTTP/1.1\r\nHost: a\r\n\r\n"
        sock.sendall(
            b"PUT /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"%x;e=1\r\n%s\r\n0\r\nX-T: 1\r\n\r\n" % (len(inner), inner)
        )
        assert read_reply(sock).body == inner
    assert [request.target for request in world.origins[0].requests] == [b"/a"]


def test_a_host_that_is_no_site_is_misdirected(world: World) -> None:
    world.configure(world.origin(counting()).url)
    site = world.settings.sites[0]
    world.settings = world.settings.__class__(
        front=world.settings.front, sites=(site.__class__(names=("a.example", "*.b.example"), origins=site.origins),)
    )
    front_end = world.front_end()
    world.fetcher()
    statuses = [
        ask(front_end, "/", host=host).status for host in ("a.example", "A.example:80", "x.b.example", "b.example")
    ]
    assert statuses == [200, 200, 200, 421]


# --- fetchers and front ends come and go -----------------------------------------------------------


def test_without_a_fetcher_there_is_a_clear_answer_and_hits_go_on(world: World) -> None:
    front_end = world.start(counting())
    ask(front_end, "/a")
    world.fetchers.pop().stop(5.0)
    reply = ask(front_end, "/b")
    assert reply.status == 502 and ask(front_end, "/a").is_hit
    world.fetcher()
    assert ask(front_end, "/b").status == 200


def test_a_front_end_that_stops_answers_what_runs(world: World) -> None:
    come, go = Event(), Event()

    def answer(exchange: Exchange) -> None:
        come.set()
        go.wait(SECONDS)
        saying(b"late")(exchange)

    front_end = world.start(answer)
    running = gevent.spawn(ask, front_end, "/a")
    assert come.wait(SECONDS)
    world.front_ends.remove(front_end)
    stopping = gevent.spawn(front_end.stop)
    gevent.sleep(0)
    go.set()
    assert running.get(timeout=SECONDS).body == b"late"
    assert stopping.get(timeout=SECONDS) == 0


def test_a_second_fetcher_answers_for_an_origin_that_stalls(world: World) -> None:
    go = Event()

    def stalling(exchange: Exchange) -> None:
        go.wait(SECONDS)
        saying(b"late")(exchange)

    stalled, quick = world.origin(stalling), world.origin(saying(b"quick"))
    hedging = {"hedge_after": 0.1}
    world.configure(stalled.url, fetch=hedging)
    world.fetcher()
    world.configure(quick.url, fetch=hedging)
    world.fetcher()
    front_end = world.front_end()
    eventually(lambda: len(front_end.known.names()) == 2)
    assert bodies([ask(front_end, f"/{number}") for number in range(6)]) == [b"quick"] * 6
    assert stalled.requests and len(quick.requests) == 6
    go.set()


def test_a_failure_counts_only_if_all_fetchers_have_failed(world: World) -> None:
    with raw_origin(b"garbage") as broken:
        quick = world.origin(saying(b"good"))
        for url in (broken, quick.url):
            world.configure(url, fetch={"first_of": 2})
            world.fetcher()
        front_end = world.front_end()
        eventually(lambda: len(front_end.known.names()) == 2)
        assert bodies([ask(front_end, f"/{number}") for number in range(4)]) == [b"good"] * 4
        quick.stop()
        assert ask(front_end, "/x").status in (502, 504)
        quick.start()


# --- beside ------------------------------------------------------------------------------------------


def test_websocket_is_tunnelled(world: World) -> None:
    def switch(sock: Any) -> None:
        sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        while data := sock.recv(1000):
            sock.sendall(data[::-1])

    with raw_origin(switch) as url:
        world.configure(url)
        front_end = world.front_end()
        with connect_to(front_end) as sock:
            fields = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", "x")]
            sock.sendall(request_bytes("GET", "/ws", fields))
            seen = b""
            while not seen.endswith(b"\r\n\r\n"):
                seen += sock.recv(1)
            assert seen.startswith(b"HTTP/1.1 101 ")
            for message in (b"abc", b"\x00\xff"):
                sock.sendall(message)
                assert sock.recv(10) == message[::-1]
        eventually(lambda: front_end.status()["connections"] == 0)


def test_a_refused_websocket_is_an_ordinary_answer(world: World) -> None:
    front_end = world.start(saying(b"no", (), 403))
    fields = [("Connection", "Upgrade"), ("Upgrade", "websocket")]
    assert ask(front_end, "/ws", fields).status == 403


@pytest.mark.parametrize("form", ["combined", "json"])
def test_the_access_log_has_a_line_for_each_request(world: World, tmp_path: Path, form: str) -> None:
    path = tmp_path / "access.log"
    world.configure(world.origin(counting()).url)
    world.settings = world.settings.__class__(
        front=world.settings.front, sites=world.settings.sites, access_log=AccessLogSettings(str(path), form)
    )
    front_end = world.front_end()
    world.fetcher()
    for _ in range(2):
        ask(front_end, "/a?b", [("User-Agent", 'x"y\xe9')])
    eventually(lambda: len(path.read_text().splitlines()) == 2)
    lines = path.read_text().splitlines()
    if form == "json":
        assert [json.loads(line)["cache"] for line in lines] == ["miss", "hit"]
        assert json.loads(lines[0])["target"] == "/a?b"
    else:
        assert '"GET /a?b HTTP/1.1" 200 1 "-" "x\\x22y\\xc3\\xa9"' in lines[0]
    path.rename(tmp_path / "old")
    front_end.reload()
    ask(front_end, "/a")
    eventually(lambda: path.exists() and len(path.read_text().splitlines()) == 1)


def test_metrics_and_state(world: World) -> None:
    front_end = world.start(counting())
    for _ in range(3):
        ask(front_end, "/a")
    text = ask(front_end, "/metrics", listener="admin").body.decode()
    assert 'rpcmq_proxy_requests_total{cache="hit",status="200"} 2\n' in text
    assert 'rpcmq_proxy_request_seconds_bucket{le="+Inf"} 3\n' in text
    state = json.loads(ask(front_end, "/status", listener="admin").body)
    assert state["fetchers"] == ["fetcher-0"] and state["store"]["entries"] == 1
    assert ask(front_end, "/healthz", listener="admin").body == b"ok\n"
    assert ask(front_end, "/x", listener="admin").status == 404
    assert ask(front_end, "/metrics", method="DELETE", listener="admin").status == 405


def test_pages_in_browsers_and_strangers_cannot_purge(world: World) -> None:
    world.configure(world.origin(counting()).url)
    front = world.settings.front.__class__(https="", http="127.0.0.1:0", admin="127.0.0.1:0", admin_token="secret")
    world.settings = world.settings.__class__(front=front, sites=world.settings.sites)
    front_end = world.front_end()
    for fields, status in [
        ([], 401), ([("Authorization", "Bearer wrong")], 401), ([("Authorization", "Bearer secret")], 200),
        ([("Authorization", "Bearer secret"), ("Origin", "https://evil.example")], 403),
    ]:  # fmt: skip
        assert ask(front_end, "/purge?all=1", fields, method="POST", listener="admin").status == status
