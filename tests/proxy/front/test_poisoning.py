"""Requests that would have a wrong response stored for others, or another client's given to them."""

from __future__ import annotations

from typing import Any

import gevent
import pytest
from gevent.event import Event

from rpcmq.proxy.front.front_end import FrontEnd
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.messages import Headers, ResponseHead
from rpcmq.testing import eventually
from tests.proxy.world import OK, SECONDS, Reply, World, ask, connect_to, raw_origin, read_reply, saying

pytestmark = pytest.mark.integration


def told(exchange: Exchange) -> None:
    """Answer with all that was asked, to be stored."""
    lines = b"\n".join(b"%s: %s" % field for field in exchange.request.headers)
    exchange.send(ResponseHead(200, Headers((("Cache-Control", "max-age=60"),))), lines.lower())


def said(front_end: FrontEnd, data: bytes) -> Reply:
    """Send ``data`` as it is, and return what comes first."""
    with connect_to(front_end) as sock:
        sock.sendall(data)
        return read_reply(sock)


@pytest.mark.parametrize(
    "name",
    [
        "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Scheme", "X-Forwarded-Server", "X-Forwarded-Anything",
        "X-Original-URL", "X-Rewrite-URL", "X-Original-Host", "X-Host", "True-Client-IP", "X-Client-IP",
        "X-HTTP-Host-Override", "X-Host-Override", "X-Forwarded", "X-HTTP-Method-Override", "X_Forwarded_For",
        "X_Forwarded-Host", "X_Real_IP", "Transfer_Encoding", "Content_Length",
    ],
)  # fmt: skip
def test_fields_that_no_key_has_and_origins_obey_stay_here(world: World, name: str) -> None:
    front_end = world.start(told)
    assert b"evil" not in ask(front_end, "/a", [(name, "evil")]).body


def test_other_fields_with_underscores_are_the_clients(world: World) -> None:
    front_end = world.start(told)
    assert b"api_key: 1" in ask(front_end, "/a", [("api_key", "1")]).body


def test_a_proxy_before_this_one_is_trusted_where_that_is_set(world: World) -> None:
    world.configure(world.origin(told).url)
    front = world.settings.front
    world.settings = world.settings.__class__(
        front=front.__class__(http=front.http, https="", admin=front.admin, trust_forwarded=True),
        sites=world.settings.sites,
    )
    front_end = world.front_end()
    world.fetcher()
    eventually(lambda: len(front_end.known.names()) == 1)
    body = ask(front_end, "/a", [("X-Forwarded-Port", "444"), ("X-Forwarded-For", "1.2.3.4")]).body
    assert b"x-forwarded-port: 444" in body and b"x-forwarded-for: 1.2.3.4, 127.0.0.1" in body
    assert b"9.9.9.9" not in ask(front_end, "/b", [("X_Forwarded_For", "9.9.9.9")]).body


@pytest.mark.parametrize(
    ("field", "status"), [(("If-Match", '"x"'), 412), (("Range", "bytes=2000000-"), 416), (("X-Long", "x"), 431)]
)
def test_an_error_that_answers_a_field_is_not_stored_for_all(world: World, field: tuple[str, str], status: int) -> None:
    def answer(exchange: Exchange) -> None:
        is_odd = exchange.request.header(field[0].lower().encode()) is not None
        exchange.send(ResponseHead(status if is_odd else 200, Headers((("Cache-Control", "max-age=60"),))), b"x")

    front_end = world.start(answer)
    assert ask(front_end, "/a", [field]).status == status
    assert ask(front_end, "/a").status == 200


def test_a_field_that_connection_names_tells_no_variants_apart(world: World) -> None:
    def answer(exchange: Exchange) -> None:
        fields = Headers((("Cache-Control", "max-age=60"), ("Vary", "X-Lang")))
        exchange.send(ResponseHead(200, fields), exchange.request.header(b"x-lang") or b"none")

    front_end = world.start(answer)
    # The origin does not see it, so that the response is not the one for it.
    assert ask(front_end, "/a", [("X-Lang", "de"), ("Connection", "X-Lang")]).body == b"none"
    assert ask(front_end, "/a", [("X-Lang", "de")]).body == b"de"


def test_connection_does_not_hide_a_body(world: World) -> None:
    front_end = world.start(lambda exchange: exchange.send(ResponseHead(200), b"".join(exchange.body())))
    fields = [("Connection", "Content-Length, Transfer-Encoding")]
    reply = ask(front_end, "/a", fields, body=b"fat")
    assert reply.body == b"fat" and "fwd=bypass" in reply.cache


@pytest.mark.parametrize("control", ["no-store", "private", "no-cache"])
def test_requests_at_several_front_ends_share_nothing_that_a_targeted_field_forbids(world: World, control: str) -> None:
    go = Event()
    count = 0

    def answer(exchange: Exchange) -> None:
        nonlocal count
        count += 1
        mine = count
        go.wait(SECONDS)
        fields = Headers((("Cache-Control", "max-age=60"), ("CDN-Cache-Control", control)))
        exchange.send(ResponseHead(200, fields), b"%d" % mine)

    first = world.start(answer)
    second = world.front_end()
    eventually(lambda: len(second.known.names()) == 1)
    asked: list[Any] = [gevent.spawn(ask, front_end, "/a") for front_end in (first, second)]
    eventually(lambda: world.fetchers[0].statistics()["requests"] == 2, SECONDS)
    go.set()
    assert sorted(each.get(timeout=SECONDS).body for each in asked) == [b"1", b"2"]


def test_a_body_that_only_the_end_of_the_connection_ends_is_not_said_to_be_stored(world: World) -> None:
    with raw_origin(OK + b"Cache-Control: max-age=60\r\n\r\nhello") as url:
        world.configure(url)
        front_end = world.front_end()
        world.fetcher()
        reply = ask(front_end, "/a")
        assert reply.body == b"hello" and "detail=partial" in reply.cache and "stored" not in reply.cache


@pytest.mark.parametrize("size", [1000, 300_000, 3_000_000])
def test_a_chunked_body_of_any_size_reaches_the_origin(world: World, size: int) -> None:
    front_end = world.start(lambda exchange: exchange.send(ResponseHead(200), b"".join(exchange.body())))
    body = bytes(range(256)) * (size // 256)
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[at : at + 999]), body[at : at + 999]) for at in range(0, size, 999))
    head = "POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert said(front_end, head.encode() + chunks + b"0\r\n\r\n").body == body


def test_malformed_chunks_are_refused_at_once(world: World) -> None:
    front_end = world.start(saying(b"x"), limits={"min_rate": 0})
    head = b"POST /a HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n"
    for bad in (b"zz\r\n", b"-1\r\n", b"3\nabc", b"ffffffffffffffffff\r\n", b"2\r\nok\r\n0\r\nX\r\n\r\n"):
        assert said(front_end, head + bad).status == 400


def test_the_body_of_a_request_that_asks_for_another_protocol_is_no_request(world: World) -> None:
    front_end = world.start(lambda exchange: exchange.send(ResponseHead(200), b"".join(exchange.body())))
    inner = b"GET /smuggled HTTP/1.1\r\nHost: a.example\r\n\r\n"
    fields = [("Connection", "Upgrade"), ("Upgrade", "h2c")]
    assert ask(front_end, "/a", fields, method="POST", body=inner).body == inner
    assert [request.target for request in world.origins[0].requests] == [b"/a"]
