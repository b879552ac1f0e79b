"""Fields on their way between clients and origins, and what is refused."""

from __future__ import annotations

import pytest

from rpcmq.proxy.messages import ResponseHead
from tests.proxy.world import (
    OK,
    World,
    ask,
    connect_to,
    counting,
    raw_origin,
    read_reply,
    saying,
)

pytestmark = pytest.mark.integration


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
