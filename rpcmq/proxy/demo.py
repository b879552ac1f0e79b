"""A site to try the proxy with: its origin, and settings for it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from html import escape
from time import strftime
from typing import Any

import gevent
from gevent import subprocess

from rpcmq.errors import ConfigError
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.http.limits import Limits
from rpcmq.proxy.http.server import HttpServer, listen
from rpcmq.proxy.http.tls import Certificate
from rpcmq.proxy.messages import Headers, ResponseHead
from rpcmq.proxy.settings import CacheSettings, FrontSettings, OriginUrl, ProxySettings, SiteSettings

__all__ = ["DemoOrigin", "demo_settings", "make_certificate"]

_SLOW_SECONDS = 1.0
_LARGE_BYTES = 8 * 1024 * 1024
_PAGES = {
    "/": "max-age=10, stale-while-revalidate=30",
    "/slow": "max-age=5, stale-if-error=300",
    "/never": "no-store",
    "/large": "max-age=60",
}


@dataclass
class DemoOrigin:
    """A server with a few pages, each of which says when it was made, and how often."""

    counts: dict[str, int] = field(default_factory=dict)
    _server: HttpServer | None = None
    _port: int = 0

    def start(self) -> None:
        """Serve at a free port of the loopback interface."""
        listener = listen("127.0.0.1:0", name="origin")
        self._port = listener.getsockname()[1]
        self._server = HttpServer(self._answer, Limits())
        self._server.serve_on(listener)

    def stop(self) -> None:
        """Serve no more."""
        if self._server is not None:
            self._server.stop(1.0)

    @property
    def url(self) -> OriginUrl:
        """Its address."""
        return OriginUrl("http", "127.0.0.1", self._port)

    def _answer(self, exchange: Exchange) -> None:
        path = exchange.request.target.decode("latin-1").partition("?")[0]
        control = _PAGES.get(path)
        if control is None:
            exchange.send_error(404, f"There are {', '.join(_PAGES)}.")
            return
        count = self.counts[path] = self.counts.get(path, 0) + 1
        if path == "/slow":
            gevent.sleep(_SLOW_SECONDS)
        fields = [("Cache-Control", control), ("Surrogate-Key", "demo")]
        if path == "/large":
            fields += [("Content-Type", "application/octet-stream"), ("ETag", '"1"')]
            exchange.send(ResponseHead(200, Headers(fields)), b"rpcmq..." * (_LARGE_BYTES // 8))
            return
        fields.append(("Content-Type", "text/html; charset=utf-8"))
        links = "".join(f'<li><a href="{each}">{each}</a> {escape(how)}</li>' for each, how in _PAGES.items())
        text = (
            f"<!doctype html><title>rpcmq proxy</title>\n<p>{path} was made at {strftime('%H:%M:%S')} by the origin, "
            f"as answer no. {count}.</p>\n<ul>{links}</ul>\n"
        )
        exchange.send(ResponseHead(200, Headers(fields)), text.encode())


def demo_settings(certificate: Certificate, origin: OriginUrl, https: str, admin: str) -> ProxySettings:
    """Return settings of a proxy for the site, which listens at ``https`` and ``admin``."""
    return ProxySettings(
        front=FrontSettings(https=https, admin=admin, drain_seconds=5.0),
        cache=CacheSettings(memory_bytes=64 * 1024 * 1024, memory_body=_LARGE_BYTES),
        certificates=(certificate,),
        sites=(SiteSettings(names=("localhost", "127.0.0.1", "[::1]"), origins=(origin,)),),
    )


def make_certificate(folder: str) -> Certificate:
    """Make a certificate for this machine, signed by itself, with the openssl command.

    Raises:
        ConfigError: that is not there, or fails.
    """
    chain, key = os.path.join(folder, "localhost.pem"), os.path.join(folder, "localhost.key")
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1",
        "-out", chain, "-keyout", key,
    ]  # fmt: skip
    try:
        done: Any = subprocess.run(command, capture_output=True, timeout=60)
    except OSError as error:
        raise ConfigError(f"no certificate could be made: {error}; install openssl") from None
    if done.returncode:
        raise ConfigError(f"no certificate could be made: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return Certificate(("localhost",), chain, key)
