"""The gateway: takes connections, and looks after those that are open."""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, time
from typing import Any

import gevent
from gevent.lock import Semaphore
from gevent.pool import Pool
from gevent.server import StreamServer

from rpcmq import Client
from rpcmq.adapters.places import Places
from rpcmq.adapters.rate_limits import RateLimitedLog, TokenBucket
from rpcmq.gateway.connection import Connection, Pace, Peer
from rpcmq.gateway.effects import GOING_AWAY
from rpcmq.gateway.http import BadRequest, Gate, HttpRequest, client_address, is_among
from rpcmq.gateway.listener import end_connection, listen, read_request, send_page, send_refusal, shown_address
from rpcmq.gateway.messages import MessageCodec
from rpcmq.gateway.operations import Operations
from rpcmq.gateway.outbox import Outbox, Total
from rpcmq.gateway.pages import Page, Pages
from rpcmq.gateway.session import Session, SessionLimits
from rpcmq.gateway.settings import GatewaySettings
from rpcmq.gateway.statistics_pages import StatisticsPages
from rpcmq.gateway.subscriptions import SharedSubscriptions
from rpcmq.gateway.tls import Certificate
from rpcmq.gateway.tokens import Token, TokenFile, hash_of
from rpcmq.gateway.websocket import WebSocket

__all__ = ["Gateway"]

#: Connections that have not got to a WebSocket yet, beside those that have.
_MOST_BEGINNING = 100
#: Bytes of the first message of a connection, of which nothing is known yet.
_HELLO_BYTES = 4096
_TICK_SECONDS = 1.0
#: Time in which closed connections may end by themselves (seconds).
_LAST_SECONDS = 1.0


class Gateway:
    """Listens as ``settings`` say, and does what browsers ask for by ``client``.

    Args:
        exchange: of a request that names none.

    Raises:
        ConfigError: an address cannot be listened at, or a file is missing or wrong.
    """

    def __init__(self, client: Client, settings: GatewaySettings, exchange: str = "") -> None:
        self._client = client
        self._settings = settings
        self._exchange = exchange
        self._plain_log = logging.getLogger("rpcmq.gateway")
        self._log = RateLimitedLog(self._plain_log)
        limits, certificate = settings.limits, settings.listen.certificate
        self._tokens = TokenFile(settings.access.tokens)
        self._certificate = Certificate(certificate, settings.listen.key) if certificate else None
        self._pages = Pages(settings.pages.folder)
        self._gate = Gate(settings.listen.hosts, settings.access.origins, self._certificate is not None)
        self._codec = MessageCodec(settings.message.max_bytes, settings.message.max_result_bytes)
        self._subscriptions = SharedSubscriptions(client, self._codec, limits.patterns)
        self._total = Total(limits.total_outgoing_bytes)
        self._held = Total(limits.total_request_bytes)
        self._heavy_turn = Semaphore(1)
        self._connections: set[Connection] = set()
        self._addresses = Places(limits.connections_per_address)
        self._token_places = Places(limits.connections_per_token)
        self._buckets: dict[str, TokenBucket] = {}
        self._counts: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()
        self._messages: Counter[str] = Counter()
        self._ticker: Any = None
        self._is_draining = False
        pool = Pool(limits.connections + _MOST_BEGINNING)
        self._servers = [StreamServer(listen(settings.listen.bind, "listen.bind"), self._serve, spawn=pool)]
        if settings.listen.metrics:
            pages = StatisticsPages(self.statistics, self._gate, settings.times.handshake_seconds)
            try:
                metrics = listen(settings.listen.metrics, "listen.metrics")
            except BaseException:
                self._servers[0].close()
                raise
            self._servers.append(StreamServer(metrics, pages.serve, spawn=Pool(_MOST_BEGINNING)))

    @property
    def url(self) -> str:
        """Base URL of the pages."""
        return f"{'https' if self._certificate else 'http'}://{shown_address(self._servers[0].socket)}"

    @property
    def websocket_url(self) -> str:
        """URL of the WebSocket."""
        return f"ws{self.url.removeprefix('http')}{self._settings.listen.path}"

    @property
    def metrics_url(self) -> str:
        """Base URL of ``/metrics``; "": there is none."""
        return f"http://{shown_address(self._servers[1].socket)}" if len(self._servers) > 1 else ""

    def start(self) -> None:
        """Take connections."""
        for server in self._servers:
            server.start()
        self._ticker = gevent.spawn(self._tick)

    def stop(self, seconds: float | None = None) -> int:
        """Take no more connections and requests, let those that run end, and close all.

        Args:
            seconds: for those that run; default: ``times.drain_seconds``.

        Returns:
            Number of requests that were cut off, because the time was over.
        """
        end = monotonic() + (self._settings.times.drain_seconds if seconds is None else seconds)
        self._is_draining = True
        self._servers[0].close()
        for connection in list(self._connections):
            connection.perform(connection.session.drain())
        while monotonic() < end and not all(connection.session.is_idle for connection in self._connections):
            gevent.sleep(0.05)
        cut = self.statistics()["requests"]
        for connection in list(self._connections):
            connection.perform(connection.session.close(GOING_AWAY, "the gateway is stopping"))
        last = monotonic() + _LAST_SECONDS
        while self._connections and monotonic() < last:
            gevent.sleep(0.02)
        for server in self._servers:
            server.stop(timeout=0)
        if self._ticker is not None:
            self._ticker.kill()
        return int(cut)

    def statistics(self) -> dict[str, Any]:
        """Counts since the start, and what is open now."""
        messages = self._messages.copy()
        for connection in self._connections:
            messages.update(connection.session.counts)
        if self._subscriptions.unencodable:
            messages["events without JSON"] = self._subscriptions.unencodable
        sessions = [connection.session for connection in self._connections]
        return {
            "is_draining": self._is_draining,
            "connections": len(sessions),
            "requests": sum(len(session.running) - len(session.subscriptions) for session in sessions),
            "subscriptions": sum(len(session.subscriptions) for session in sessions),
            "patterns": len(self._subscriptions),
            "request_bytes": self._held.size,
            "outgoing_bytes": self._total.size,
            "opened": self._counts["opened"],
            "pages": self._counts["pages"],
            "refused": dict(self._refused),
            "ended": dict(self._ended),
            "messages": dict(messages),
        }

    # --- connections -------------------------------------------------------------------------

    def _serve(self, sock: Any, peer: tuple[Any, ...]) -> None:
        address = str(peer[0])
        is_counted = not is_among(address, self._settings.listen.proxies)
        if is_counted and not self._addresses.take(address):
            # Nothing is read of whoever has so many already, so that nothing of it costs more than this.
            self._refused["connections of an address"] += 1
            text = f"{address} has more connections than limits.connections_per_address = {self._addresses.most}"
            self._log.warning("address", text)
            return
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._certificate is not None:
                with gevent.Timeout(self._settings.times.handshake_seconds, TimeoutError):
                    sock = self._certificate.context.wrap_socket(sock, server_side=True)
            self._serve_one(sock, address)
        except TimeoutError:
            self._refused["handshake timeout"] += 1
        except OSError as error:
            # A port is scanned, a browser changes its mind, or refuses the certificate.
            self._refused["broken"] += 1
            self._plain_log.debug("connection of %s broke: %s", address, error)
        except Exception as error:
            self._refused["internal error"] += 1
            self._log.error("internal error", f"a connection of {address} failed in the gateway", error)
        finally:
            sock.close()
            if is_counted:
                self._addresses.give_back(address)

    def _serve_one(self, sock: Any, address: str) -> None:
        times = self._settings.times
        page = connection = None
        with gevent.Timeout(times.handshake_seconds, TimeoutError):
            try:
                request = read_request(sock)
                if request is None:
                    return
                self._gate.check(request)
                if request.path != self._settings.listen.path:
                    page = self._find_page(request)
                else:
                    connection = self._open(sock, request, address)
            except BadRequest as error:
                self._refused[f"HTTP {error.status}"] += 1
                self._log.warning(f"HTTP {error.status}", f"{address} was refused: {error}")
                send_refusal(sock, error)
                end_connection(sock)
                return
        if page is not None:
            send_page(sock, page, request.method == "HEAD", times.stalled_seconds)
        elif connection is not None:
            with self._place(connection):
                reason = connection.run(request.rest)
            self._ended[connection.end_kind] += 1
            self._plain_log.debug("connection of %s has ended: %s", connection.peer, reason)
        end_connection(sock)

    def _open(self, sock: Any, request: HttpRequest, peer: str) -> Connection:
        """Answer the handshake of a WebSocket.

        Raises:
            BadRequest: it is refused.
        """
        origin = self._gate.check_origin(request)
        accepted = self._gate.accept(request)
        limits = self._settings.limits
        address = client_address(request, peer, self._settings.listen.proxies)
        if self._is_draining:
            raise BadRequest(503, "the gateway is stopping")
        if len(self._connections) >= limits.connections:
            raise BadRequest(503, f"more connections than limits.connections = {limits.connections}")
        if address != peer and not self._addresses.take(address):
            text = f"more connections of {address} than limits.connections_per_address = {self._addresses.most}"
            raise BadRequest(429, text)
        connection = self._new_connection(sock, Peer(address, origin, address != peer))
        self._connections.add(connection)
        self._counts["opened"] += 1
        try:
            sock.sendall(accepted)
        except BaseException:
            self._forget(connection)
            raise
        return connection

    def _new_connection(self, sock: Any, peer: Peer) -> Connection:
        settings, now = self._settings, monotonic()
        limits, times = settings.limits, settings.times
        told = {
            "max_bytes": settings.message.max_bytes,
            "requests": limits.requests,
            "subscriptions": limits.subscriptions,
            "max_call_seconds": times.max_call_seconds,
            "ping_seconds": times.ping_seconds,
        }
        session_limits = SessionLimits(
            limits.requests,
            limits.request_bytes,
            limits.subscriptions,
            limits.messages_per_second,
            settings.access.tracebacks,
            told,
        )
        session = Session(
            self._codec, session_limits, self._exchange, self._finder(peer), self._rate_of, self._held, now
        )
        operations = Operations(
            self._client, self._subscriptions, self._exchange, times.call_seconds, times.max_call_seconds
        )
        return Connection(
            sock, peer, WebSocket(settings.message.max_bytes, _HELLO_BYTES), session, operations,
            Outbox(limits.outgoing_bytes, self._total), times, Pace(limits.bytes_per_second, now), self._log,
            self._heavy_turn, self._shed,
        )  # fmt: skip

    @contextmanager
    def _place(self, connection: Connection) -> Iterator[None]:
        try:
            yield
        finally:
            self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection.peer.is_behind_proxy:
            self._addresses.give_back(connection.peer.address)
        if connection.token is not None:
            self._token_places.give_back(connection.token.name)
        self._messages.update(connection.session.counts)

    def _shed(self) -> None:
        """End the connection for which most waits."""
        most = max(self._connections, key=lambda connection: connection.outbox.size)
        text = (
            f"more waits for all browsers than limits.total_outgoing_bytes = {self._total.most}, and most for this one"
        )
        self._log.warning("shed", f"{most.peer}: {text}")
        most.outbox.clear()
        most.abort("shed", text)

    # --- tokens ------------------------------------------------------------------------------

    def _finder(self, peer: Peer) -> Callable[[str], Token | str]:
        def find(secret: str) -> Token | str:
            token = self._tokens.by_secret(secret)
            if token is None:
                # It may have been added a moment ago.
                self._read_tokens()
                token = self._tokens.by_secret(secret)
            problem = "the token is unknown" if token is None else self._problem_of(token, peer)
            if token is None or problem:
                self._refused["token"] += 1
                self._log.warning("token", f"{peer} was refused: {problem}; hash {hash_of(secret)[:8]}...")
                return problem
            return token

        return find

    def _problem_of(self, token: Token, peer: Peer) -> str:
        """Say why ``peer`` may not use ``token``; a place is taken for it if it may."""
        if problem := self._unfit(token, peer):
            return problem
        if not self._token_places.take(token.name):
            most = self._token_places.most
            return f"token {token.name!r} has more connections than limits.connections_per_token = {most}"
        return ""

    def _unfit(self, token: Token, peer: Peer) -> str:
        if not token.is_valid(time()):
            return f"token {token.name!r} has expired"
        if token.origins is not None and peer.origin not in token.origins:
            return f"token {token.name!r} is not for pages of {peer.origin or 'no origin'}"
        return ""

    def _rate_of(self, token: Token) -> TokenBucket | None:
        rate = token.messages_per_second
        if not rate:
            return None
        bucket = self._buckets.get(token.name)
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[token.name] = TokenBucket(rate, monotonic())
        return bucket

    def _read_tokens(self) -> None:
        if problem := self._tokens.refresh():
            self._plain_log.warning("tokens stay as they were: %s", problem)

    def _refresh_tokens(self) -> None:
        self._read_tokens()
        for connection in list(self._connections):
            had = connection.token
            if had is None:
                continue
            now = self._tokens.by_name(had.name)
            if now is None or now.sha256 != had.sha256:
                connection.perform(connection.session.token_changed(None, f"token {had.name!r} was revoked"))
            elif problem := self._unfit(now, connection.peer):
                connection.perform(connection.session.token_changed(None, problem))
            elif now != had:
                connection.perform(connection.session.token_changed(now, ""))
        for name in [name for name in self._buckets if self._tokens.by_name(name) is None]:
            del self._buckets[name]

    def _tick(self) -> None:
        while True:
            gevent.sleep(_TICK_SECONDS)
            try:
                self._refresh_tokens()
                if self._certificate is not None and (problem := self._certificate.refresh()):
                    self._plain_log.warning("the certificate stays as it was: %s", problem)
                self._subscriptions.tell_lost()
                now = monotonic()
                for connection in list(self._connections):
                    connection.tick(now)
            except Exception as error:
                self._log.error("internal error", "the gateway failed to look after its connections", error)

    # --- pages -------------------------------------------------------------------------------

    def _find_page(self, request: HttpRequest) -> Page:
        page = self._pages.find(request.path)
        if page is None:
            raise BadRequest(404, f"there is no page {request.path[:200]}")
        self._counts["pages"] += 1
        return page
