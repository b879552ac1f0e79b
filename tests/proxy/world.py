"""A whole proxy in the process of the test: origins, a router, fetchers, front ends; and clients of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import gevent
from gevent.pool import Pool
from gevent.server import StreamServer
from gevent.socket import create_connection

from rpcmq.proxy.fetcher.responses import ResponseParser
from rpcmq.proxy.fetcher.service import Fetcher
from rpcmq.proxy.front.front_end import FrontEnd
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.http.limits import Limits
from rpcmq.proxy.http.server import HttpServer, listen
from rpcmq.proxy.messages import Headers, ResponseHead
from rpcmq.proxy.settings import (
    CacheSettings,
    FetchSettings,
    FrontSettings,
    LimitSettings,
    OriginUrl,
    ProxySettings,
    SiteSettings,
)
from rpcmq.proxy.store.contract import Store
from rpcmq.proxy.store.memory import MemoryStore
from rpcmq.testing import eventually

SECONDS = 30
OK = b"HTTP/1.1 200 OK\r\n"
Fields = Iterable[tuple[str, str]]


@dataclass
class Reply:
    """A response as a client has it."""

    status: int
    headers: Headers
    body: bytes

    @property
    def cache(self) -> str:
        """What Cache-Status says."""
        return self.headers.joined("cache-status") or ""

    @property
    def is_hit(self) -> bool:
        return "; hit" in self.cache


def request_bytes(method: str, target: str, fields: Fields = (), body: bytes = b"", host: str = "a.example") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in fields)]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class BrokenOff(Exception):
    """A response did not come whole."""


def read_reply(sock: Any, *, is_head: bool = False) -> Reply:
    """Read one response.

    Raises:
        BrokenOff: it ended early.
    """
    parser = ResponseParser(is_head=is_head)
    body: list[bytes] = []
    while not parser.is_complete:
        try:
            data = sock.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            if not parser.end():
                raise BrokenOff(f"{parser.status} {len(b''.join(body))}")
            break
        parser.feed(data)
        body.append(parser.take() if parser.chunks else b"")
    if parser.chunks:
        body.append(parser.take())
    fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in parser.headers]
    return Reply(parser.status, Headers(fields), b"".join(body))


@dataclass
class Origin:
    """A server of a site; ``requests`` has what it was asked, ``answer`` is what answers."""

    answer: Callable[[Exchange], None]
    requests: list[Any] = field(default_factory=list)
    server: HttpServer | None = None
    port: int = 0

    def start(self, port: int = 0) -> None:
        listener = listen(f"127.0.0.1:{port}", name="origin")
        self.port = listener.getsockname()[1]
        self.server = HttpServer(self._serve, Limits())
        self.server.serve_on(listener)

    def _serve(self, exchange: Exchange) -> None:
        self.requests.append(exchange.request)
        self.answer(exchange)

    def stop(self) -> None:
        assert self.server is not None
        self.server.stop(0.0)

    @property
    def url(self) -> OriginUrl:
        return OriginUrl("http", "127.0.0.1", self.port)


FRESH = (("Cache-Control", "max-age=60"),)


def saying(body: bytes, fields: Fields = FRESH, status: int = 200) -> Callable[[Exchange], None]:
    """Answer each request so."""
    return lambda exchange: exchange.send(ResponseHead(status, Headers(fields)), body)


@contextmanager
def raw_origin(*answers: bytes | Callable[[Any], None]) -> Iterator[OriginUrl]:
    """A server that answers the first request of each connection with bytes, and closes; the last answer goes on."""
    left = list(answers)

    def serve(sock: Any, peer: Any) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = sock.recv(65536)
            if not piece:
                return
            data += piece
        answer = left.pop(0) if len(left) > 1 else left[0]
        if callable(answer):
            answer(sock)
        else:
            sock.sendall(answer)

    server = StreamServer(("127.0.0.1", 0), serve, spawn=Pool())
    server.start()
    try:
        yield OriginUrl("http", "127.0.0.1", int(server.server_port or 0))
    finally:
        server.stop(0.0)


class World:
    """Fetchers and front ends of one router.

    Args:
        connect: makes a client of the router.
    """

    def __init__(self, connect: Callable[..., Any]) -> None:
        self._connect = connect
        self.origins: list[Origin] = []
        self.fetchers: list[Fetcher] = []
        self.front_ends: list[FrontEnd] = []
        self.settings = ProxySettings(
            front=FrontSettings(https="", http="127.0.0.1:0", admin="127.0.0.1:0", drain_seconds=5.0),
            fetch=FetchSettings(seconds=60.0),
        )

    def origin(self, answer: Callable[[Exchange], None]) -> Origin:
        made = Origin(answer)
        made.start()
        self.origins.append(made)
        return made

    def configure(
        self,
        *urls: OriginUrl,
        cache: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] | None = None,
        fetch: Mapping[str, Any] | None = None,
        **site: Any,
    ) -> None:
        """Settings with one site for all hosts."""
        given = {"first_byte_seconds": 30.0, "idle_seconds": 30.0} | site
        self.settings = replace(
            self.settings,
            sites=(SiteSettings(names=("a.example", "*"), origins=urls, **given),),
            cache=CacheSettings(**(cache or {})),
            limits=LimitSettings(**(limits or {})),
            fetch=replace(self.settings.fetch, **(fetch or {})),
        )

    def fetcher(self) -> Fetcher:
        made = Fetcher(self._connect(), self.settings, f"fetcher-{len(self.fetchers)}")
        made.start(SECONDS)
        self.fetchers.append(made)
        return made

    def front_end(self, store: Store | None = None) -> FrontEnd:
        made = FrontEnd(self._connect(), self.settings, store or MemoryStore(1 << 26))
        made.start()
        self.front_ends.append(made)
        return made

    def start(self, *answers: Callable[[Exchange], None], **options: Any) -> FrontEnd:
        """One front end, one fetcher, and an origin for each of ``answers``."""
        self.configure(*(self.origin(answer).url for answer in answers), **options)
        front_end = self.front_end()
        self.fetcher()
        eventually(lambda: len(front_end.known.names()) == 1)
        return front_end

    def close(self) -> None:
        for front_end in self.front_ends:
            front_end.stop()
        for fetcher in self.fetchers:
            fetcher.stop(5.0)
        for origin in self.origins:
            origin.stop()


def connect_to(front_end: FrontEnd, name: str = "http") -> Any:
    return create_connection(front_end.addresses[name], timeout=SECONDS)


def ask(
    front_end: FrontEnd,
    target: str = "/",
    fields: Fields = (),
    *,
    method: str = "GET",
    body: bytes = b"",
    listener: str = "http",
    host: str = "",
) -> Reply:
    """Send one request over a connection of its own."""
    host = host or ("localhost" if listener == "admin" else "a.example")
    with connect_to(front_end, listener) as sock:
        sock.sendall(request_bytes(method, target, fields, body, host))
        return read_reply(sock, is_head=method == "HEAD")


def bodies(replies: Sequence[Reply]) -> list[bytes]:
    return [reply.body for reply in replies]


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
